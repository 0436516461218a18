"""LW, WELS, WELSR, KELS, DSD, FC, IMP and Rescale: every step at the edge of a generation, by plain references."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from scipy.stats import kstest
from torch import Tensor, nn

import fallow
from fallow import models
from fallow.core import checkpoint, loop
from fallow.core.context import Context
from fallow.data import Data
from fallow.evaluate.score import score
from fallow.methods import build
from fallow.training.prepare import prepare
from fallow.weights import FixedNorm, insert_norms, is_norm, matrices, slim

MLP, SCNN = "mlp:hidden=24,20,16", "scnn:width=4,dense=12,norm=batch"
SETTINGS: dict[str, Any] = {"generations": 3, "epochs": 1, "batch_size": 32, "lr": 0.05, "seed": 4}
State = dict[str, Tensor]


def state(model: nn.Module) -> State:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


class Run:
    """A training that is watched: the weights at its start and around every ``begin_generation``.

    ``look`` is asked after each of them for anything else worth keeping.
    """

    def __init__(
        self, spec: str, data: Data, model: str | nn.Module = MLP, look: Callable | None = None, **changes
    ) -> None:
        with torch.random.fork_rng():
            self.ctx = ctx = prepare(model, data, spec, **(SETTINGS | changes))
            self.method: Any = ctx.method
            self.start, self.before, self.after, self.seen = state(ctx.model), [], [], []
            begin = ctx.method.begin_generation

            def watched(ctx: Context) -> None:
                self.before.append(state(ctx.model))
                begin(ctx)
                self.after.append(state(ctx.model))
                self.seen.append(look(ctx) if look else None)

            ctx.method.begin_generation = watched  # type: ignore[method-assign]
            loop.run(ctx)
            self.end = state(ctx.model)

    @property
    def edges(self) -> list[tuple[State, State]]:
        """Before and after each forgetting: every generation but the first."""
        return list(zip(self.before, self.after, strict=True))[1:]


def changed(before: State, after: State) -> set[str]:
    return {name for name in before if not torch.equal(before[name], after[name])}


# ---- LW -------------------------------------------------------------------------------------------------------


def first_batch(ctx: Context) -> Tensor:
    """The batch on which LW looks: the first of the generation that begins."""
    return next(iter(ctx.train.epoch(ctx.clock.generation * ctx.clock.epochs)))[0]


def below(k: int) -> list[str]:
    return [f"hidden{i}" for i in range(1, k + 1)]


def rescaled(before: State, start: State, k: int) -> State:
    """Line 7 of algorithm 1 for blocks 1..k, in double precision."""
    new = {name: tensor.double() for name, tensor in before.items()}
    for block in below(k):
        name = f"{block}.linear.weight"
        new[name] = new[name] * (start[name].double().norm() / new[name].norm())
    return new


def hidden(weights: State, k: int, x: Tensor) -> Tensor:
    """The output of block k before its own normalisation, written out."""
    x = x.double().flatten(1)
    for block in below(k):
        x = torch.relu(x @ weights[f"{block}.linear.weight"].double().T + weights[f"{block}.linear.bias"].double())
        if block != f"hidden{k}":
            x = (x - weights[f"{block}.fixed_norm.mean"]) / weights[f"{block}.fixed_norm.std"]
    return x


@pytest.mark.parametrize(
    ("spec", "generations", "order"),
    [("lw", 3, [1, 2, 3]), ("lw", 2, [1, 2]), ("lw:repeats=2", 6, [1, 1, 2, 2, 3, 3]), ("lw:repeats=3", 3, [1, 1, 1])],
)
def test_lw_takes_the_steps_of_algorithm_1(spec: str, generations: int, order: list[int], images: Data) -> None:
    """Of the first generation too; the last case, K = 1, re-draws everything above the first block each time."""
    run = Run(spec, images, look=first_batch, generations=generations, epochs=2)
    fresh: list[Tensor] = []
    for k, before, after, x in zip(order, run.before, run.after, run.seen, strict=True):
        lower, upper = below(k), [name for name in ("hidden1", "hidden2", "hidden3", "head") if name not in below(k)]
        reference = rescaled(before, run.start, k)
        for block in lower:  # (1) back to the initial norm; the bias stays as it is
            name = f"{block}.linear.weight"
            torch.testing.assert_close(after[name].double(), reference[name], rtol=1e-6, atol=1e-8)
            assert after[name].double().norm().item() == pytest.approx(run.start[name].double().norm().item(), rel=1e-6)
            assert torch.equal(after[f"{block}.linear.bias"], before[f"{block}.linear.bias"])
        z = hidden(reference, k, x)  # (2) scalars of block k's output on this batch
        assert after[f"hidden{k}.fixed_norm.mean"].item() == pytest.approx(z.mean().item(), rel=1e-5)
        assert after[f"hidden{k}.fixed_norm.std"].item() == pytest.approx(z.std(correction=0).item(), rel=1e-5)
        for name in before:
            if "fixed_norm" in name and not name.startswith(f"hidden{k}."):
                assert torch.equal(after[name], before[name]), name
        for block in upper:  # (3) drawn afresh
            path = "head" if block == "head" else f"{block}.linear"
            weight = after[f"{path}.weight"]
            assert (weight != before[f"{path}.weight"]).all()
            assert after[f"{path}.bias"].eq(0).all()
            fresh.append((weight / (2 / weight.shape[1]) ** 0.5).flatten())
    assert kstest(torch.cat(fresh).numpy(), "norm").pvalue > 0.01
    assert [row["keeps"] for row in run.ctx.history if "keeps" in row] == [", ".join(below(k)) for k in order]
    blocks = {name.partition(".")[0] for name in run.end if "fixed_norm" in name}
    assert blocks == set(below(max(order)))


def test_lw_never_trains_the_normalisation(images: Data) -> None:
    run = Run("lw", images, epochs=3)
    ends = [*run.before[1:], run.end]  # of every generation
    for after, end in zip(run.after, ends, strict=True):
        for name in after:
            assert torch.equal(after[name], end[name]) == ("fixed_norm" in name), name
    held = {id(p) for group in run.ctx.optimizer.param_groups for p in group["params"]}
    assert held == {id(p) for p in run.ctx.model.parameters()}
    assert not any("fixed_norm" in name for name, _ in run.ctx.model.named_parameters())


def in_training(ctx: Context) -> tuple[float, float]:
    """Mean and deviation of the normalised block's output, as the generation's first step will see them."""
    twin = copy.deepcopy(ctx.model).train()
    block = ctx.method.outputs[ctx.clock.generation]
    seen = []
    twin.get_submodule(block).register_forward_hook(lambda _, __, output: seen.append(output))
    with torch.no_grad():
        twin(first_batch(ctx))
    assert len(seen) == 1
    return seen[0].double().mean().item(), seen[0].double().std(correction=0).item()


def sequential() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 6, 3), nn.ReLU(), nn.Flatten(),
        nn.Linear(6 * 16, 8), nn.Tanh(), nn.Linear(8, 3),
    )  # fmt: skip


@pytest.mark.parametrize(
    "model", [SCNN, "scnn:width=4,dense=12", "resnet18:width=3", "mobilenet:width=3,norm=batch", sequential]
)
def test_lw_normalises_what_training_sees(model: Any, images: Data) -> None:
    """Mean 0 and deviation 1 behind block k: applied once, and with a batch norm's statistics of this batch."""
    run = Run("lw", images, model() if callable(model) else model, in_training, epochs=2)
    for mean, std in run.seen:
        assert mean == pytest.approx(0, abs=1e-4)
        assert std == pytest.approx(1, abs=1e-4)
    for before, after in zip(run.before, run.after, strict=True):  # looking leaves no trace in the early statistics
        for name in before:
            if name.startswith(("conv1.norm", "block1.norm", "bn1", "1.")) and "fixed_norm" not in name:
                assert torch.equal(before[name], after[name]), name


def test_lw_without_rescaling_or_normalisation(images: Data) -> None:
    run = Run("lw:rescaling=False", images)
    for k, (before, after) in enumerate(zip(run.before, run.after, strict=True), start=1):
        for block in below(k):
            assert torch.equal(before[f"{block}.linear.weight"], after[f"{block}.linear.weight"])
        assert after[f"hidden{k}.fixed_norm.std"] != 1
    run = Run("lw:normalisation=False", images)
    assert not any(isinstance(module, FixedNorm) for module in run.ctx.model.modules())
    for k, (before, after) in enumerate(zip(run.before, run.after, strict=True), start=1):
        name = f"hidden{k}.linear.weight"
        torch.testing.assert_close(after[name].double(), rescaled(before, run.start, k)[name], rtol=1e-6, atol=1e-8)
        assert torch.equal(before["hidden1.linear.bias"], after["hidden1.linear.bias"])
        assert not torch.equal(before["head.weight"], after["head.weight"])


def test_lw_frozen_blocks_keep_every_bit_during_the_round(images: Data) -> None:
    run = Run("lw:freeze=True", images, epochs=2, weight_decay=0.01)
    ends = [*run.before[1:], run.end]
    for k, (after, end) in enumerate(zip(run.after, ends, strict=True), start=1):
        for name, value in after.items():
            if "fixed_norm" not in name:
                assert torch.equal(value, end[name]) == (name.partition(".")[0] in below(k)), name


@pytest.mark.parametrize("model", [MLP, SCNN, "resnet18:width=3"])
def test_lw_weights_load_elsewhere_and_score_the_same(model: str, images: Data, tmp_path: Path) -> None:
    result = fallow.fit(model, images, "lw", out=tmp_path / "run", **SETTINGS)
    kept = load_file(tmp_path / "run" / "last.safetensors")
    weights = {name.removeprefix("network."): w for name, w in kept.items() if name.startswith("network.")}
    fresh = models.build(model, shape=images.shape, classes=3)
    insert_norms(fresh, [n.removesuffix(".fixed_norm.mean") for n in weights if n.endswith(".fixed_norm.mean")])
    fresh.load_state_dict(weights)
    stream = prepare(model, images, **SETTINGS).test
    assert stream is not None
    found = score(fresh, stream.ordered(), nn.functional.cross_entropy)
    assert found.accuracy == result.last["test_accuracy"]
    assert found.loss == pytest.approx(result.last["test_loss"], rel=1e-6)
    assert found.accuracy is not None
    assert found.accuracy > 1 / 3


class Zeroed(models.Model):
    """A first layer that starts at zero."""

    def __init__(self) -> None:
        super().__init__("he")
        self.blocks = ("body",)
        self.body, self.head = nn.Sequential(nn.Flatten(), nn.Linear(64, 4), nn.ReLU()), nn.Linear(4, 3)
        nn.init.zeros_(self.body[1].weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


class Shared(nn.Module):
    """Two layers that share an activation, so that nothing can stand behind the first alone."""

    def __init__(self) -> None:
        super().__init__()
        relu = nn.ReLU()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(64, 5), relu, nn.Linear(5, 5), relu, nn.Linear(5, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


@pytest.mark.parametrize(
    ("spec", "model", "changes", "message"),
    [
        ("lw", MLP, {"generations": 4}, "lw goes through 4 blocks and the model has 3: ask for 3 generations"),
        ("lw:repeats=2", MLP, {"generations": 8}, "ask for 6 generations or fewer, or for more repeats"),
        ("lw:repeats=2", MLP, {"generations": 3}, "3 generations are not a multiple of repeats=2: ask for 4"),
        ("lw:repeats=2.5", MLP, {"generations": 5}, "repeats is 2.5: it must be a whole number from 1"),
        ("lw:repeats=0", MLP, {}, "repeats is 0: it must be a whole number from 1"),
        ("lw", Zeroed, {"generations": 1}, r"body\.1\.weight has norm 0"),
        ("rescale", Zeroed, {}, r"body\.1\.weight has norm 0"),
        ("lw", Shared, {"generations": 2}, r"lw cannot normalise behind net\.2: it must run once"),
    ],
)
def test_wrong_requests_are_refused_before_training(
    spec: str, model: Any, changes: dict, message: str, images: Data, tmp_path: Path
) -> None:
    net = model if isinstance(model, str) else model()
    with pytest.raises(fallow.RequestError, match=message) as caught:
        prepare(net, images, spec, out=tmp_path / "run", **(SETTINGS | changes))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()
    if isinstance(net, nn.Module):
        assert not any(isinstance(module, FixedNorm) for module in net.modules())


@pytest.mark.parametrize(("weight", "bias"), [(1.0, -1e4), (1e-12, 3.1)])  # all units dead; all of one constant value
def test_a_block_without_variation_is_named(weight: float, bias: float, images: Data) -> None:
    ctx = prepare(MLP, images, "lw:rescaling=False", **SETTINGS)
    begin = ctx.method.begin_generation

    def dead(ctx: Context) -> None:
        if ctx.clock.generation == 1:
            ctx.model.hidden2.linear.weight.data.mul_(weight)
            ctx.model.hidden2.linear.bias.data.fill_(bias)
        begin(ctx)

    ctx.method.begin_generation = dead  # type: ignore[method-assign]
    with pytest.raises(fallow.WorkError, match=r"the output of hidden2 is the same everywhere \(σ = 0\)") as caught:
        loop.run(ctx)
    assert "\n" not in str(caught.value)


# ---- WELS, WELSR, KELS ----------------------------------------------------------------------------------------


def masks_of(ctx: Context) -> dict[str, Tensor]:
    return {name: mask.clone() for name, mask in ctx.method.masks.items()}


def redrawn_exactly(run: Run) -> None:
    """Every masked weight is new, every other bit of the model is the same."""
    assert len(run.edges) == len(run.seen) - 1
    for (before, after), masks in zip(run.edges, run.seen[1:], strict=True):
        for name in before:
            if name in masks:
                assert torch.equal(before[name] != after[name], masks[name]), name
            else:
                assert torch.equal(before[name], after[name]), name
    assert not changed(run.before[0], run.after[0])  # the first generation is ordinary


@pytest.mark.parametrize("spec", ["wels", "welsr", "wels:fraction=0.6", "welsr:fraction=0.6"])
@pytest.mark.parametrize("model", [MLP, SCNN])
def test_wels_redraws_exactly_its_fraction(spec: str, model: str, images: Data) -> None:
    run = Run(spec, images, model, masks_of)
    redrawn_exactly(run)
    fraction = run.method.fraction
    for masks in run.seen:
        assert masks.keys() == matrices(run.ctx.model).keys()
        assert all(mask.sum() == round(fraction * mask.numel()) for mask in masks.values())
    first, *others = run.seen[1:]
    for masks in others:
        same = [torch.equal(masks[name], first[name]) for name in masks]
        assert all(same) if run.method.name == "wels" else not any(same)


@pytest.mark.parametrize("rate", [0.5, 0.8])
def test_kels_keeps_the_first_block_of_every_kernel(rate: float, images: Data) -> None:
    run = Run(f"kels:fraction={rate}", images, SCNN, masks_of)
    redrawn_exactly(run)
    assert all(torch.equal(run.seen[0][name], masks[name]) for masks in run.seen for name in masks)
    before, after = run.edges[-1]
    small = slim(run.ctx.model, rate, first_batch(run.ctx)[:2])
    for name, parameter in small.named_parameters():
        corner = tuple(slice(size) for size in parameter.shape)
        assert torch.equal(before[name][corner], after[name][corner]), name
        assert torch.equal(parameter, run.end[name][corner]), name


def test_kels_refuses_before_training(images: Data) -> None:
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3, groups=2), nn.Flatten(), nn.Linear(64, 3))
    with pytest.raises(fallow.RequestError, match="kels cannot split 1: it has 2 groups of channels"):
        prepare(model, images, "kels", **SETTINGS)


# ---- DSD, FC, Rescale -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [MLP, SCNN])
@pytest.mark.parametrize("scope", ["layer", "global"])
def test_dsd_redraws_exactly_the_smallest(scope: str, model: str, images: Data) -> None:
    run = Run(f"dsd:fraction=0.3,scope={scope}", images, model)
    names = list(matrices(run.ctx.model))
    assert not changed(run.before[0], run.after[0])
    for before, after in run.edges:
        assert changed(before, after) == set(names)
        for group in [[name] for name in names] if scope == "layer" else [names]:
            values = torch.cat([before[name].abs().flatten() for name in group])
            moved = torch.cat([(before[name] != after[name]).flatten() for name in group])
            assert moved.sum() == round(0.3 * len(values))
            assert values[moved].max() <= values[~moved].min()
            if scope == "global":  # the layers lose unequal shares
                assert len({round(float((before[n] != after[n]).float().mean()), 2) for n in names}) > 1


@pytest.mark.parametrize(
    ("spec", "model", "names"),
    [
        ("fc", SCNN, {"head.weight", "head.bias", "dense.linear.weight"}),
        ("fc:layers=head", SCNN, {"head.weight", "head.bias"}),
        ("fc:layers=head", MLP, {"head.weight", "head.bias"}),
        ("fc", "resnet18:width=2", {"head.weight", "head.bias"}),
    ],
)
def test_fc_redraws_the_head_or_all_connected_layers(spec: str, model: str, names: set[str], images: Data) -> None:
    run = Run(spec, images, model)
    assert not changed(run.before[0], run.after[0])
    for before, after in run.edges:
        assert changed(before, after) == names
        assert all((before[name] != after[name]).all() for name in names)
        assert after["head.bias"].eq(0).all()


def test_fc_keeps_the_first_layer_of_a_network_that_has_no_others(images: Data) -> None:
    run = Run("fc", images, MLP)
    for before, after in run.edges:
        names = {name for name, _ in run.ctx.model.named_parameters()} - {
            "hidden1.linear.weight",
            "hidden1.linear.bias",
        }
        assert changed(before, after) == names - {n for n in names if before[n].eq(0).all() and after[n].eq(0).all()}


def test_fc_forgets_the_momentum_of_what_it_redraws(images: Data) -> None:
    def momentum(ctx: Context) -> list[float]:
        layers = (ctx.model.head, ctx.model.hidden1.linear)
        return [
            float(ctx.optimizer.state.get(m.weight, {}).get("momentum_buffer", torch.zeros(1)).norm()) for m in layers
        ]

    for head, other in Run("fc:layers=head", images, look=momentum).seen[1:]:
        assert head == 0
        assert other > 0


@pytest.mark.parametrize("model", [MLP, SCNN, sequential])
def test_rescale_brings_every_layer_back_and_redraws_nothing(model: Any, images: Data) -> None:
    run = Run("rescale", images, model() if callable(model) else model, lr=0.2)
    names = set(matrices(run.ctx.model))
    assert not changed(run.before[0], run.after[0])
    for before, after in run.edges:
        assert changed(before, after) <= names
        for name in names:
            size = run.start[name].double().norm()
            expected = before[name].double() * (size / before[name].double().norm())
            torch.testing.assert_close(after[name].double(), expected, rtol=1e-6, atol=1e-8)
        moved = [before[name].norm() / run.start[name].norm() - 1 for name in names]
        assert max(abs(share) for share in moved) > 1e-3  # there was something to bring back


# ---- IMP ------------------------------------------------------------------------------------------------------


def test_imp_leaves_frozen_layers_whole(images: Data) -> None:
    net = models.build("mlp:hidden=8,8", shape=images.shape, classes=3)
    frozen = next(layer for name, layer in net.named_modules() if name == "hidden2.linear")
    frozen.requires_grad_(False)
    before = frozen.weight.detach().clone()
    fallow.fit(net, images, "imp:fraction=0.5", generations=2, epochs=1)
    assert torch.equal(frozen.weight, before)


def removed_of(ctx: Context) -> dict[str, Tensor]:
    return {name: mask.clone() for name, mask in ctx.method.removed.items()}


@pytest.mark.parametrize("model", [MLP, SCNN])
@pytest.mark.parametrize("scope", ["layer", "global"])
def test_imp_removes_the_smallest_for_good_and_rewinds_the_rest(
    scope: str, model: str, images: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[dict[str, Any]] = []
    monkeypatch.setattr(
        "fallow.core.record.RunFolder.save_checkpoint", lambda _, state: kept.append(copy.deepcopy(state))
    )
    monkeypatch.setattr(loop, "LIVE", 0.0)
    monkeypatch.setattr(loop, "save", lambda ctx, due=False: ctx.folder.save_checkpoint(ctx.state()))  # at every step
    run = Run(
        f"imp:fraction=0.3,scope={scope}", images, model, removed_of, generations=4, epochs=2, out=tmp_path / "run"
    )
    names = list(matrices(run.ctx.model))
    total = sum(run.start[name].numel() for name in names)
    for g, (before, after) in enumerate(run.edges, start=1):
        removed, earlier = run.seen[g], run.seen[g - 1]
        assert removed.keys() == set(names)
        for group in [[name] for name in names] if scope == "layer" else [names]:
            magnitude = torch.cat([before[name].abs().flatten() for name in group])
            gone = torch.cat([removed[name].flatten() for name in group])
            assert gone.sum() == round((1 - 0.7**g) * len(gone))
            assert magnitude[gone].max() <= magnitude[~gone].min()
        for name, value in after.items():
            if name in removed:
                assert (removed[name] | ~earlier[name]).all()  # what is gone stays gone
                assert value[removed[name]].eq(0).all()
                assert torch.equal(value[~removed[name]], run.start[name][~removed[name]]), name
            else:
                assert torch.equal(value, run.start[name]), name  # biases, norms and their statistics
    left = total - sum(int(mask.sum()) for mask in run.seen[-1].values())
    assert left / total == pytest.approx(0.7**3, abs=len(names) / total)
    assert len(kept) > 4 * 2 * 3
    for saved in [*kept, {"model": run.end, "method": {"removed": run.seen[-1]}}]:
        for name, mask in saved["method"]["removed"].items():
            assert saved["model"][name][mask].eq(0).all(), name
    for name, mask in run.seen[-1].items():
        assert run.end[name][~mask].ne(run.start[name][~mask]).any()  # the rest has trained
    best = run.ctx.best
    assert best is not None
    assert all(best["weights"][name][mask].eq(0).all() for name, mask in run.seen[best["generation"] - 1].items())


def test_imp_never_brings_a_removed_weight_back(images: Data) -> None:
    """Not even when remaining weights that come before it have become exactly 0."""
    ctx = prepare(MLP, images, "imp:fraction=0.2", **SETTINGS)
    method: Any = ctx.method
    last = list(matrices(ctx.model))[-1]
    ctx.clock.generation = 1
    total = sum(p.numel() for p in method.weights.values())
    assert method.weights[last].numel() < round(0.2 * total)
    method.removed[last].fill_(True)
    with torch.no_grad():
        for weight in method.weights.values():
            weight.zero_()
    method.begin_generation(ctx)
    assert method.removed[last].all()
    assert sum(int(mask.sum()) for mask in method.removed.values()) == round(0.2 * total)


@pytest.mark.parametrize(
    ("spec", "generations", "message"),
    [
        ("imp:fraction=0.9", 5, "removing 0.9 4 times leaves no weight: take a smaller fraction"),
        ("imp:fraction=0.9,scope=layer", 3, r"leaves no weight of head\.weight"),
        ("imp:scope=globl", 2, "unknown scope 'globl': did you mean 'global'"),
        ("dsd:scope=layers", 2, "unknown scope 'layers': did you mean 'layer'"),
        ("fc:layers=haed", 2, "unknown layers 'haed': did you mean 'head'"),
    ],
)
def test_what_cannot_be_is_refused_before_training(spec: str, generations: int, message: str, images: Data) -> None:
    with pytest.raises(fallow.RequestError, match=message) as caught:
        prepare("mlp:hidden=8,8", images, spec, **(SETTINGS | {"generations": generations}))
    assert "\n" not in str(caught.value)


# ---- all of them ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["wels", "welsr", "kels", "dsd", "imp"])
@pytest.mark.parametrize("fraction", [0, 1, 1.5, -0.1])
def test_bad_fractions_are_refused_in_one_line(name: str, fraction: float) -> None:
    with pytest.raises(fallow.RequestError, match=f"fraction is {fraction}: it must be above 0 and below 1") as caught:
        build(f"{name}:fraction={fraction}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "what"),
    [("wels", "masks"), ("welsr", "masks"), ("kels", "masks"), ("imp", "removed"), ("imp", "initial"),
     ("lw", "sizes"), ("rescale", "sizes")],
)  # fmt: skip
def test_what_a_method_keeps_survives_a_checkpoint(spec: str, what: str, images: Data, tmp_path: Path) -> None:
    run = Run(spec, images)
    kept = getattr(run.method, what)
    checkpoint.save(tmp_path / "state", {"method": run.method.state_dict()})
    other: Any = prepare(MLP, images, spec, **(SETTINGS | {"seed": 5})).method
    if spec != "kels":  # whose masks follow from the architecture
        assert any(not torch.equal(getattr(other, what)[name], kept[name]) for name in kept)
    other.load_state_dict(checkpoint.load(tmp_path / "state")["method"])
    assert getattr(other, what).keys() == kept.keys()
    assert all(torch.equal(getattr(other, what)[name], kept[name]) for name in kept)


def test_norms_over_several_dimensions_are_left_alone(images: Data) -> None:
    """Their scale and shift are no weight matrices, although they have as many dimensions."""
    for spec in ("wels", "dsd", "rescale", "lw"):
        torch.manual_seed(0)
        net = nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.LayerNorm((4, 6, 6)), nn.ReLU(), nn.Flatten(), nn.Linear(144, 6), nn.ReLU(),
            nn.Linear(6, 3),
        )  # fmt: skip
        run = Run(spec, images, net, generations=2)
        assert is_norm(net[1])
        for before, after in run.edges:
            assert torch.equal(before["1.weight"], after["1.weight"])
            assert torch.equal(before["1.bias"], after["1.bias"])
            assert not torch.equal(before["1.bias"], run.start["1.bias"])
