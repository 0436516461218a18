"""What a user may bring: a model, an optimiser, a loss, data; and what stays as it was."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, TensorDataset

import fallow
from fallow import methods
from fallow.base.errors import RequestError, WorkError
from fallow.core.method import Method
from tests.core.small import OWN, TINY, Net, equal, points, weights


def some(n: int = 40) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(n)
    y = torch.arange(n) % 2
    return torch.randn(n, 4, generator=draw) + 3.0 * y[:, None], y


class Own(Dataset):
    """A Dataset with a random transform."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        x, y = some()
        return x[index] + 0.01 * torch.randn(4) + 0.01 * random.random() + 0.01 * np.random.rand(), int(y[index])


@pytest.mark.parametrize("method", ["normal", "llf", "seal:scale=1,share=0.5"])
@pytest.mark.parametrize("kind", ["tensors", "arrays", "dataset", "loader", "loaders"])
def test_data_of_the_user(kind: str, method: str) -> None:
    x, y = some()
    loader = DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True)
    data = {
        "tensors": (x, y),
        "arrays": (x.numpy(), y.numpy()),
        "dataset": Own(),
        "loader": loader,
        "loaders": [loader, DataLoader(TensorDataset(*some(12)), 4), DataLoader(TensorDataset(*some(14)), 4)],
    }[kind]
    first = fallow.fit(Net(), data, method, **(TINY | {"epochs": 4}))
    again = fallow.fit(Net(), data, method, **(TINY | {"epochs": 4}))
    assert first.history[-1]["train_loss"] < first.history[0]["train_loss"]
    assert ("test_accuracy" in first.last) == (kind != "loader")  # a loader alone is taken as it is
    assert equal(weights(first.network), weights(again.network))


def test_a_module_is_trained_in_place() -> None:
    net = Net()
    before = weights(net)
    result = fallow.fit(net, points(), **TINY)
    assert result.network is net
    assert not equal(before, weights(net))


@pytest.mark.parametrize("fails", [False, True])
def test_the_random_state_of_the_caller_is_untouched(fails: bool) -> None:
    def loss(output, y):
        return functional.cross_entropy(output, y) * (float("nan") if fails else 1.0)

    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)
    torch_state, own, numpy_state = torch.get_rng_state(), random.getstate(), np.random.get_state(legacy=False)
    try:
        fallow.fit("mlp:hidden=8,8", Own(), "born-again", loss=loss, **TINY)
    except WorkError:
        assert fails
    assert torch.equal(torch_state, torch.get_rng_state())
    assert own == random.getstate()
    now = np.random.get_state(legacy=False)
    assert np.array_equal(numpy_state["state"]["key"], now["state"]["key"])
    assert numpy_state["state"]["pos"] == now["state"]["pos"]


def test_seeds() -> None:
    def train(seed: int) -> dict[str, torch.Tensor]:
        torch.manual_seed(random.randrange(99))  # whatever the caller did before
        return weights(fallow.fit("mlp:hidden=8", points(), "llf", **(TINY | {"seed": seed})).network)

    assert equal(train(1), train(1))
    assert not equal(train(1), train(2))


class Batches(Method):
    """Notes the initial weights and every batch."""

    name = "batches"

    def begin(self, ctx) -> None:
        self.initial, self.seen = weights(ctx.model), []

    def penalty(self, ctx, batch):
        self.seen.append(batch[0].clone())


def test_methods_of_a_seed_start_alike_and_see_the_same_batches() -> None:
    """Otherwise a comparison of methods at one seed would compare luck as well."""
    found = []
    for spec in ("long", "restart", "llf", "seal:scale=0.5", "seal:ascent=adaptive", "born-again", "sagd", "llf+sagd"):
        spy = Batches()
        settings = TINY | {"epochs": 4, "augment": "none"}
        fallow.fit("mlp:hidden=8,8", points(), methods.build(spec) + spy, **settings)
        found.append(spy)
    first = found[0]
    assert len(first.seen) == 16
    assert not torch.equal(first.seen[0], first.seen[2])  # another epoch, another order
    for other in found[1:]:
        assert equal(first.initial, other.initial)
        assert len(first.seen) == len(other.seen)
        assert all(torch.equal(a, b) for a, b in zip(first.seen, other.seen, strict=True))


def test_a_loss_of_the_user_is_minimised_and_measured() -> None:
    def loss(output, y):
        return (output - functional.one_hot(y, 2)).square().sum(1).mean()

    net, data = Net(), points(64)
    result = fallow.fit(net, data, loss=loss, **(TINY | {"epochs": 20}))
    assert result.history[-1]["train_loss"] < result.history[0]["train_loss"]
    with torch.no_grad():
        assert result.last["test_loss"] == pytest.approx(loss(net(data.test.x), data.test.y).item(), rel=1e-5)


def test_numbers_stay_in_their_units_where_the_loss_is_the_users() -> None:
    """Poisson's and its like are written for counts, not for deviations from their mean."""
    x, _ = some(80)
    y = 100 + 5 * x[:, 0]

    def loss(output, y):
        return (output.flatten() - y).abs().mean()

    data = fallow.data.load((x, y), target="numbers")
    result = fallow.fit(nn.Linear(4, 1), data, loss=loss, generations=1, epochs=2, lr=0.01, label_smoothing=0.0)
    with torch.no_grad():
        output = result.model(data.test.x).flatten()
    assert result.last["test_rmse"] == pytest.approx((output - data.test.y).square().mean().sqrt().item(), rel=1e-5)
    assert result.last["test_loss"] == pytest.approx(loss(output, data.test.y).item(), rel=1e-5)


def test_outputs_that_are_no_classes_are_judged_by_the_loss_alone() -> None:
    def loss(output, y):
        return functional.binary_cross_entropy_with_logits(output.flatten(), y.float())

    result = fallow.fit(nn.Linear(4, 1), points(), loss=loss, **TINY)
    assert {"val_loss", "test_loss"} <= result.last.keys()
    assert not any("accuracy" in key for key in result.last)  # the place of the largest of one output says nothing


def test_the_model_that_is_returned_is_ready_to_be_asked() -> None:
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 2))
    data = points(64)
    result = fallow.fit(net, data, "ema", **TINY)
    with torch.no_grad():
        right = (result.model(data.test.x).argmax(1) == data.test.y).double().mean().item()
        result.model(data.test.x[:1])  # a batch norm in training refuses a single example
    assert right == pytest.approx(result.last["test_accuracy"])


def test_data_that_are_loaded_take_no_options_of_loading() -> None:
    for options in ({"train": 10}, {"val": 0.3}, {"target": "numbers"}, {"as_": "signals"}):
        with pytest.raises(RequestError, match=f"give {next(iter(options))} to fallow.data.load instead"):
            fallow.fit(Net(), points(), **TINY, **options)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"method": None}, "the method is None: give a name such as 'llf'"),
        ({"method": fallow.LLF}, r"give LLF\(\)"),
        ({"optimizer": torch.optim.LBFGS}, "LBFGS asks for the loss several times a step"),
        ({"model": nn.Sequential(nn.LazyLinear(2))}, "pass one batch through it first"),
    ],
)
def test_what_cannot_be_trained_is_refused_in_a_line(asked, says) -> None:
    model = asked.pop("model", None) or Net()
    with pytest.raises(RequestError, match=says):
        fallow.fit(model, points(), **(OWN if "optimizer" in asked else TINY), **asked)


def test_label_smoothing_is_for_training_only() -> None:
    net, data = Net(), points()
    result = fallow.fit(net, data, label_smoothing=0.3, **TINY)
    with torch.no_grad():
        plain = functional.cross_entropy(net(data.test.x), data.test.y).item()
    assert result.last["test_loss"] == pytest.approx(plain, rel=1e-5)


def test_an_optimiser_as_instance_factory_and_name_gives_the_same_bits() -> None:
    options = {"lr": 0.05, "momentum": 0.9, "weight_decay": 5e-4, "fused": True}

    def train(net: nn.Module, optimizer) -> dict[str, torch.Tensor]:
        named = TINY if isinstance(optimizer, str) else OWN
        return weights(fallow.fit(net, points(), "llf", optimizer=optimizer, **named).network)

    net = Net()
    instance = train(net, torch.optim.SGD(net.parameters(), **options))
    assert equal(instance, train(Net(), lambda parameters: torch.optim.SGD(parameters, **options)))
    assert equal(instance, train(Net(), "sgd"))


def test_an_optimiser_of_another_model() -> None:
    with pytest.raises(RequestError, match="holds none of the model's parameters"):
        fallow.fit(Net(), points(), optimizer=torch.optim.SGD(Net().parameters(), lr=0.1), **OWN)


def test_an_optimiser_keeps_its_own_rate() -> None:
    """One beside it is refused; after a training it has the rate that it came with, and a new one counts."""
    net = Net()
    sgd = torch.optim.SGD(net.parameters(), lr=0.05)
    with pytest.raises(RequestError, match="your optimizer has its own lr and weight_decay: leave these out"):
        fallow.fit(net, points(), optimizer=sgd, weight_decay=0.1, **TINY)
    for rate in (0.05, 0.02):
        sgd.param_groups[0]["lr"] = rate
        result = fallow.fit(net, points(), "llf", optimizer=sgd, schedule="cosine", **OWN)
        assert rate / 2 < result.history[0]["lr"] <= rate
        assert all(group["lr"] == rate for group in sgd.param_groups)
        assert not any({"base_lr", "scale"} & group.keys() for group in sgd.param_groups)


def test_an_optimiser_is_handed_back_where_the_training_was_interrupted() -> None:
    """In the middle of an ascent, without its decay: under another loop the weights would go on climbing."""

    def interrupt(ctx) -> None:
        if ctx.disturbed:
            assert ctx.optimizer.param_groups[0]["maximize"]
            raise KeyboardInterrupt

    net = Net()
    sgd = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=0.1)
    given = {key: value for key, value in sgd.param_groups[0].items() if key != "params"}
    with pytest.raises(KeyboardInterrupt):
        fallow.fit(
            net, points(), "seal:scale=0.5,decay=False", optimizer=sgd, observer=interrupt, generations=2, epochs=4
        )
    assert len(sgd.param_groups) == 2
    for group in sgd.param_groups:
        assert {key: value for key, value in group.items() if key != "params"} == given


def test_a_run_is_resumed_with_the_same_optimiser(tmp_path: Path) -> None:
    def sgd(parameters) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.05)

    fallow.fit(Net(), points(), optimizer=sgd, out=tmp_path, **OWN)
    settings = json.loads((tmp_path / "run.json").read_text())["settings"]
    assert (
        settings["optimizer"] == "SGD(dampening=0, lr=0.05, maximize=False, momentum=0, nesterov=False, weight_decay=0)"
    )
    assert "lr" not in settings  # which was not used
    for other in (lambda p: torch.optim.SGD(p, lr=0.5), lambda p: torch.optim.Adam(p, lr=0.05)):
        with pytest.raises(RequestError, match=r"its settings\.optimizer is 'SGD"):
            fallow.fit(Net(), points(), optimizer=other, out=tmp_path, resume=True, **OWN)


def test_a_frozen_model() -> None:
    with pytest.raises(RequestError, match="no parameters to train"):
        fallow.fit(Net().requires_grad_(False), points(), **TINY)


def test_frozen_layers_stay() -> None:
    net = Net()
    net.first.requires_grad_(False)
    before = weights(net)
    fallow.fit(net, points(), **TINY)
    assert torch.equal(net.first.weight, before["first.weight"])
    assert not torch.equal(net.second.weight, before["second.weight"])


class Kaiming(nn.Sequential):
    """Initialised by hand, as most networks in the wild are."""

    def __init__(self) -> None:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            super().__init__(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 2))
            for layer in (self[0], self[2], self[4]):
                nn.init.kaiming_normal_(layer.weight)
                nn.init.constant_(layer.bias, 0.25)


class After(Method):
    """Keeps the weights as they are right after each forgetting."""

    name = "after"

    def begin(self, ctx) -> None:
        self.seen = []

    def begin_generation(self, ctx) -> None:
        self.seen.append(weights(ctx.model))


def test_weights_are_re_drawn_as_the_user_drew_them() -> None:
    """torch's own reset would make them √6 times too small."""
    net, spy = Kaiming(), After()
    fallow.fit(net, points(), methods.build("llf") + spy, **(TINY | {"lr": 0.2}))
    start, forgot = spy.seen
    wanted = (2 / 64) ** 0.5
    assert start["2.weight"].std() == pytest.approx(wanted, rel=0.05)
    assert forgot["2.weight"].std() == pytest.approx(wanted, rel=0.05)
    assert not torch.equal(start["2.weight"], forgot["2.weight"])
    assert forgot["4.weight"].std() == pytest.approx(start["4.weight"].std().item(), rel=0.2)
    assert torch.equal(forgot["2.bias"], start["2.bias"])  # all 0.25, as the user set them
    assert not torch.equal(forgot["0.weight"], start["0.weight"])  # trained and kept


def test_pretrained_weights_are_no_initialisation(tmp_path) -> None:
    from safetensors.torch import save_file

    pretrained = {name: value + 7 for name, value in weights(Kaiming()).items()}
    save_file(pretrained, tmp_path / "w.safetensors")
    spy = After()
    fallow.fit(Kaiming(), points(), methods.build("llf") + spy, weights=tmp_path / "w.safetensors", **TINY)
    start, forgot = spy.seen
    assert equal(start, pretrained)
    assert forgot["2.weight"].mean().abs() < 0.1


def test_methods_do_not_carry_anything_over() -> None:
    for spec in ("seal:ascent=adaptive", "born-again", "llf"):
        method = methods.build(spec)
        first = weights(fallow.fit(Net(), points(), method, **(TINY | {"epochs": 4})).network)
        assert equal(first, weights(fallow.fit(Net(), points(), method, **(TINY | {"epochs": 4})).network))


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (nn.Sequential(nn.Flatten(), nn.Linear(64, 2)), "3 classes need 3 numbers"),
        (nn.Sequential(nn.Flatten(), nn.Linear(63, 3)), r"cannot take examples of shape \(1, 8, 8\)"),
        (nn.Sequential(nn.Flatten(), nn.LSTM(64, 3)), "the model gives a tuple: let it give its outputs alone"),
        (nn.Sequential(nn.Flatten(), nn.Linear(64, 3)).double(), r"float64; give model\.float\(\), and precision"),
    ],
)
def test_a_model_that_does_not_fit_the_data_is_refused_before_training(model, says, images) -> None:
    with pytest.raises(fallow.RequestError, match=says):
        fallow.fit(model, images, epochs=1)


def test_the_test_split_waits_for_the_end_if_asked() -> None:
    every = fallow.fit("mlp", points(), "llf", **TINY)
    at_end = fallow.fit("mlp", points(), "llf", test_at_end=True, **TINY)
    assert at_end.last == every.last
    assert at_end.best == every.best
    looked = ["test_accuracy" in record["last"] for record in at_end.generations]
    assert looked == [False, True]


def test_nesterov_looks_ahead_by_its_momentum() -> None:
    plain, ahead = (fallow.fit(Net(), points(), "normal", **TINY, nesterov=on).network for on in (False, True))
    assert not equal(weights(plain), weights(ahead))
    with pytest.raises(RequestError, match="momentum is 0: it must be above 0 for nesterov"):
        fallow.Settings(momentum=0, nesterov=True)


def test_a_result_shows_itself_in_a_line_and_in_a_small_table(images) -> None:
    result = fallow.fit("mlp:hidden=4", images, "llf", generations=2, epochs=1, seed=0)
    test = f"{100 * result.last['test_accuracy']:.1f} %"
    assert repr(result).startswith(f"Result(test accuracy {test} (")
    assert len(repr(result)) < 150
    shown = result._repr_html_()
    assert shown.count("<tr>") == 1 + 2
    assert f"<td>{test}</td></tr></table>" in shown


def test_a_result_without_a_test_part_shows_its_validation() -> None:
    x, y = torch.randn(40, 3), torch.randn(40)
    result = fallow.fit("mlp:hidden=4", (x, y), generations=1, epochs=1, test=0.0)
    assert repr(result).startswith(f"Result(validation RMSE {result.last['val_rmse']:.4g} (")


class Two(Net):
    """A second output in training, as auxiliary heads are built."""

    def forward(self, x):
        found = super().forward(x)
        return (found, found) if self.training else found


@pytest.mark.parametrize(
    ("model", "options", "says"),
    [
        (Two, {}, "in training the model gives a tuple: let it give its outputs alone"),
        (Net, {"loss": nn.CrossEntropyLoss(reduction="none")}, r"the loss has shape \(\d,\): let it be one number"),
        (lambda: nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2)), {"batch_size": 1}, "two or more"),
        (lambda: nn.Linear(4, 2, dtype=torch.complex64), {}, "complex parameters"),
        (lambda: nn.ReLU(), {}, "no layers with weights"),
        (lambda: Net, {}, "give a module, or the name of a model"),
    ],
)
def test_what_would_be_a_traceback_is_a_line(model, options, says) -> None:
    with pytest.raises(RequestError, match=says):
        fallow.fit(model(), points(), **(TINY | options))


def test_numbers_of_numpy_are_settings_of_methods(tmp_path: Path) -> None:
    sam = fallow.SAM(rho=np.float32(0.1))  # as searches draw them
    fallow.fit(Net(), points(), sam, out=tmp_path, **TINY)
    assert json.loads((tmp_path / "run.json").read_text())["method_settings"]["rho"] == pytest.approx(0.1)
    assert fallow.LW(repeats=np.int64(1)).repeats == 1


def test_what_a_data_loader_would_not_do_is_refused() -> None:
    loader = DataLoader(TensorDataset(torch.randn(24, 4), torch.arange(24) % 2), batch_size=8)
    with pytest.raises(RequestError, match="the DataLoader makes batches of 8: leave batch_size=16 out"):
        fallow.fit("mlp", loader, batch_size=16)
    with pytest.raises(RequestError, match=r"val=0\.2 cannot be carved from a DataLoader"):
        fallow.fit("mlp", loader, val=0.2)
    assert fallow.fit("mlp", loader, epochs=1, batch_size=8, val=0, test=0).steps == 3
