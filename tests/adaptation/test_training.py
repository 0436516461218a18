from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

import fallow
from fallow import Episodes, Learner, RequestError, Sinusoid
from fallow.adaptation.execution import Execution
from fallow.adaptation.objective import normalised
from fallow.cli.fewshot import with_inner
from fallow.evaluate.episodes import Evaluation
from fallow.evaluate.statistics import interval
from fallow.methods import build
from fallow.methods.fewshot.baseline import fit_head
from fallow.methods.fewshot.prototypes import nearness, prototypes
from fallow.problems.fewshot import FewShot
from fallow.training import meta

CURVES = Sinusoid(shots=5, val_tasks=8, test_tasks=12)
FEW = {"iterations": 6, "every": 3}


def test_maml_learns_to_fit_curves() -> None:
    result = fallow.fewshot(None, CURVES, "maml:execution=vmap", iterations=90, every=30, meta_batch=10, lr=5e-3)
    assert result.history[-1]["train_loss"] < 0.95 * result.history[0]["train_loss"]
    before, after = result.test.losses[0].mean(), result.test.losses[-1].mean()
    assert after < 0.97 * before  # adaptation is what it learned


def test_tasks_are_paired_across_methods() -> None:
    first = fallow.fewshot(None, CURVES, "maml:steps=1", **FEW)
    second = fallow.fewshot(None, CURVES, "maml:steps=1,rate=1e-9", **FEW)
    fresh = {}
    for name, result in (("first", first), ("second", second)):
        torch.manual_seed(0)
        learner = result.network
        with torch.no_grad():
            for p in learner.model.parameters():
                p.fill_(0.1)
        fresh[name] = learner.judge(CURVES.draw("test", 0, 12)).losses[0]
    assert torch.equal(fresh["first"], fresh["second"])


def test_the_result_and_its_interval(tmp_path: Path) -> None:
    result = fallow.fewshot(None, CURVES, "l2f", out=tmp_path / "run", **FEW)
    each = result.test.losses[-1].tolist()
    assert result.loss == interval(each)
    assert len(each) == 12
    written = json.loads((tmp_path / "run" / "result.json").read_text())
    assert written["test"]["loss"]["mean"] == pytest.approx(sum(each) / 12)
    kept = load_file(tmp_path / "run" / "best.safetensors")
    assert any(key.startswith("attenuator.") for key in kept)  # φ is kept with θ
    for key, value in result.network.state_dict().items():
        assert torch.equal(kept[key], value)


def test_meta_parameters_of_the_pieces_are_trained() -> None:
    result = fallow.fewshot(None, CURVES, "l2f+learned-rates:start=0.02", **FEW)
    rates = result.network.learned_rates.rate
    assert rates.shape == (5, 3)
    assert (rates != 0.02).all()
    torch.manual_seed(1)
    assert any(p.grad is not None for p in result.network.attenuator.parameters())


def test_l2f_starts_gamma_where_it_is_told() -> None:
    from fallow import L2F

    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(1, 8), nn.ReLU(), nn.Linear(8, 1))
    for start, low, high in ((None, 0.3, 0.7), (0.95, 0.9, 0.98)):
        attenuator = Learner(net, functional.mse_loss, pieces=[L2F(start=start)]).attenuator
        gamma = attenuator(0.01 * torch.randn(20, 2))
        assert low < gamma.min()
        assert gamma.max() < high


def normed() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


@pytest.mark.parametrize("execution", ["vmap", "loop"])
@pytest.mark.parametrize("behaviour", ["batch", "per-step", "frozen"])
def test_running_statistics_are_never_changed(behaviour: str, execution: str, tasks: Episodes) -> None:
    model = normed()
    before = {name: b.clone() for name, b in model.named_buffers()}
    result = fallow.fewshot(model, tasks, f"maml:batch_norm={behaviour},execution={execution}", **FEW)
    for name, buffer in model.named_buffers():
        assert torch.equal(buffer, before[name]), name
    if behaviour == "per-step":
        mean = getattr(result.network.statistics, "2/running_mean")
        assert mean.shape == (6, 8)
        assert all(not torch.equal(mean[i], mean[j]) for i in range(6) for j in range(i))


def test_per_step_statistics_are_the_mean_over_tasks(tasks: Episodes) -> None:
    batch = tasks.draw("train", 0, 4)
    found = []
    for execution in ("vmap", "loop"):
        learner = Learner(normed(), functional.cross_entropy, steps=2, batch_norm="per-step")
        with normalised(learner.model, "per-step", training=True):
            Execution(learner, execution)(batch)
        learner.statistics.settle()
        found.append(getattr(learner.statistics, "2/running_mean"))
    torch.testing.assert_close(found[0], found[1])
    hidden = learner.model[1](batch[0].flatten(2))  # at step 0 all tasks have the shared weights
    torch.testing.assert_close(found[0][0], 0.1 * hidden.mean((0, 1)).detach())


@pytest.mark.parametrize("behaviour", ["per-step", "frozen"])
def test_a_prediction_does_not_depend_on_other_queries(behaviour: str, tasks: Episodes) -> None:
    learner = Learner(normed(), functional.cross_entropy, steps=2, batch_norm=behaviour).eval()
    x, y, query_x, _ = tasks.draw("test", 0, 3)
    predict = learner.adapt(x, y)
    torch.testing.assert_close(predict(query_x)[:, :1], predict(query_x[:, :1]))


def test_what_adapt_predicts_is_what_judge_judges(tasks: Episodes) -> None:
    learner = Learner(normed(), functional.cross_entropy, steps=3, rate=0.1).eval()
    x, y, query_x, query_y = tasks.draw("test", 0, 5)
    for steps in (0, 3):
        right = (learner.adapt(x, y, steps=steps)(query_x).argmax(-1) == query_y).float().mean(-1)
        assert torch.equal(learner.judge((x, y, query_x, query_y)).accuracies[steps], right)
        looped = learner.judge((x, y, query_x, query_y), batched=False)
        torch.testing.assert_close(looped.losses[steps], learner.judge((x, y, query_x, query_y)).losses[steps])


def test_a_trained_model_adapts_as_the_test_tasks_were_judged(tasks: Episodes) -> None:
    """To examples as the tasks hold them, in as many steps, and the iterations are hardly more than asked for."""
    result = fallow.fewshot(normed(), tasks, "l2f+maml:steps=1,evaluate_steps=3", iterations=7, every=5, meta_batch=2)
    assert result.steps == 7
    x, y, query_x, query_y = tasks.draw("test", 0, tasks.describe()["sizes"]["test"])
    raw, queries = (each * tasks.std.view(-1, 1, 1) + tasks.mean.view(-1, 1, 1) for each in (x, query_x))
    right = (result.model.adapt(raw, y)(queries).argmax(-1) == query_y).float().mean()
    assert float(right) == pytest.approx(result.accuracy.mean, abs=0.01)


def test_a_query_on_its_own_is_normalised_as_the_support_is(tasks: Episodes) -> None:
    batch = tasks.draw("test", 0, 4)
    x, y, query_x, query_y = batch
    learner = Learner(normed(), functional.cross_entropy, steps=2, rate=0.1)
    before = {name: value.clone() for name, value in learner.state_dict().items()}
    found = learner.judge(batch, alone=True).alone
    torch.testing.assert_close(learner.judge(batch, batched=False, alone=True).alone, found)
    assert all(torch.equal(value, before[name]) for name, value in learner.state_dict().items())
    with normalised(learner.model, "batch", training=False):
        *_, (params, _) = learner.path(learner.meta(), x, y, order=1, batched=True)
    for task in range(4):
        mine = {name: p[task].detach() for name, p in params.items()}
        hidden, queries = (
            functional.linear(z[task].flatten(1), mine["1.weight"], mine["1.bias"]) for z in (x, query_x)
        )
        scaled = (queries - hidden.mean(0)) / (hidden.var(0) + 1e-5).sqrt() * mine["2.weight"] + mine["2.bias"]
        output = functional.linear(scaled.relu(), mine["4.weight"], mine["4.bias"])
        assert found[task] == (output.argmax(-1) == query_y[task]).float().mean()
    assert Learner(normed(), functional.cross_entropy, batch_norm="frozen").judge(batch, alone=True).alone is None


def test_minutes_give_the_iterations_that_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meta, "timed", lambda ctx: [9.0, 0.5, 0.5])
    monkeypatch.setattr(meta, "time", SimpleNamespace(monotonic=lambda: 0.0))
    result = fallow.fewshot(None, CURVES, "maml:steps=1", minutes=0.2, out=tmp_path / "run")
    assert result.steps == 20  # of 12 s at 0.5 s each, 5 % spared, in ten looks alike
    assert len(result.history) == 10
    monkeypatch.setattr(meta, "timed", lambda ctx: [0.001])
    again = fallow.fewshot(None, CURVES, "maml:steps=1", minutes=0.2, out=tmp_path / "run", resume=True)
    assert again.tested == result.tested  # resumed with its own iterations, not with those that would fit now
    with pytest.raises(RequestError, match="give one of them"):
        fallow.fewshot(None, CURVES, "maml", minutes=1, iterations=3)


def test_what_nobody_says_follows_from_the_tasks(tasks: Episodes) -> None:
    assert str(FewShot(CURVES).accept(build("l2f"))) == "maml:steps=5,rate=0.01+l2f"
    images = Episodes(x=torch.zeros(60, 1, 28, 28), y=torch.arange(60) // 6, ways=2, shots=1, queries=2)
    assert str(FewShot(images).accept(build("maml"))) == "maml:steps=1,rate=0.4,evaluate_steps=3"
    assert str(FewShot(images).accept(build("maml:steps=2"))) == "maml:steps=2,rate=0.4"
    coloured = Episodes(x=torch.zeros(60, 3, 32, 32), y=torch.arange(60) // 6, ways=2, shots=1, queries=2)
    assert str(FewShot(coloured).accept(build("maml"))) == "maml:steps=1,rate=0.1,evaluate_steps=3"
    assert images.model == "conv4:width=32"


def test_looped_tasks_keep_no_graph() -> None:
    """The tensors that a meta-loss holds on to do not grow with the number of tasks."""

    def held(count: int) -> int:
        learner = Learner(nn.Linear(1, 1), functional.mse_loss, steps=2)
        loss, _ = Execution(learner, "loop")(CURVES.draw("train", 0, count))
        seen, todo = set(), [loss.grad_fn]
        while todo:
            node = todo.pop()
            if node is not None and node not in seen:
                seen.add(node)
                todo += [edge for edge, _ in node.next_functions]
        return len(seen)

    assert held(2) == held(16)


class Curious(nn.Module):
    """Looks at its numbers, which vmap does not let it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(1, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) if float(x.sum()) < 1e9 else x


class Stubborn(nn.Module):
    """Computes with a tensor that nobody can replace."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.kept = [self.weight]

    def forward(self, x: Tensor) -> Tensor:
        self.weight.add_(1.0)  # in place, on what may be another's parameter
        return self.kept[0] * x


def test_a_model_that_vmap_cannot_run_is_looped() -> None:
    result = fallow.fewshot(Curious(), CURVES, "maml:steps=1", **FEW)
    assert result.history[-1]["execution"] == "loop"
    with pytest.raises(RequestError, match="cannot be called functionally"):
        fallow.fewshot(Curious(), CURVES, "maml:execution=vmap", **FEW)


def test_bad_requests_say_what_would_be_right(tasks: Episodes) -> None:
    with pytest.raises(RequestError, match=r"cannot be called functionally|cannot take inputs"):
        fallow.fewshot(Stubborn(), CURVES, "maml", **FEW)
    with pytest.raises(RequestError, match=r"cannot take inputs of shape \(1,\)"):
        fallow.fewshot(nn.Linear(3, 1), CURVES, "maml", **FEW)
    with pytest.raises(RequestError, match="seal learns from labelled examples, not from tasks"):
        fallow.fewshot(None, CURVES, "seal", **FEW)
    with pytest.raises(RequestError, match="maml learns from tasks"):
        fallow.fit("mlp", "digits", "maml")
    with pytest.raises(RequestError, match="l2f learns from tasks"):  # a piece alone has no step of its own
        fallow.fit("mlp", "digits", "l2f")
    with pytest.raises(RequestError, match="protonet classifies"):
        fallow.fewshot(None, CURVES, "protonet", **FEW)
    with pytest.raises(RequestError, match="both decide the rates of the inner loop"):
        fallow.fewshot(None, CURVES, "meta-sgd+learned-rates", **FEW)
    with pytest.raises(RequestError, match="l2f learns from tasks, sam from labelled examples"):
        fallow.fewshot(None, CURVES, "l2f+sam", **FEW)
    with pytest.raises(RequestError, match="l2f and protonet do not go together: both decide where a task starts from"):
        fallow.fewshot(None, tasks, "l2f+protonet", **FEW)
    with pytest.raises(RequestError, match="protonet has no inner loop: leave steps out"):
        with_inner("protonet", steps=3)
    with pytest.raises(RequestError, match="iterations is 0"):
        fallow.fewshot(None, CURVES, "maml", iterations=0)
    with pytest.raises(RequestError, match=r"maml adapts a head with 3 outputs, .* train_ways cannot be 4"):
        fallow.fewshot(None, tasks.changed(train_ways=4), "maml", **FEW)


@pytest.mark.parametrize("execution", ["vmap", "loop"])
def test_an_inner_loop_that_diverges_is_named(execution: str) -> None:
    words = r"the inner loop diverged: the support loss at inner step \d is (inf|nan) \(the step before: .*\); lower"
    with pytest.raises(RequestError, match=words):
        fallow.fewshot(None, CURVES, f"maml:rate=1e4,execution={execution}", **FEW)
    words = r"the support loss at inner step 2 is (inf|nan)"  # L2F's own look at the support set is no step
    with pytest.raises(RequestError, match=words):
        fallow.fewshot(None, CURVES, f"maml:rate=1e30,steps=2,execution={execution}+l2f", **FEW)


def test_annealing_starts_with_the_first_order(monkeypatch: pytest.MonkeyPatch) -> None:
    orders = []
    meta_loss = Learner.meta_loss

    def watched(self, *arguments, order: int, **options):
        orders.append(order)
        return meta_loss(self, *arguments, order=order, **options)

    monkeypatch.setattr(Learner, "meta_loss", watched)
    fallow.fewshot(None, CURVES, "maml:anneal=0.5,execution=vmap", **FEW)
    assert orders == [1, 1, 1, 2, 2, 2]


def test_prototypes_and_nearness() -> None:
    support = torch.randn(2, 4, 3)
    y = torch.tensor([[0, 1, 0, 1], [1, 1, 0, 0]])
    centres = prototypes(support, y, 2)
    torch.testing.assert_close(centres[1, 0], support[1, 2:].mean(0))
    query = torch.randn(2, 5, 3)
    expected = -(query[0, 3] - centres[0, 1]).square().sum()
    torch.testing.assert_close(nearness(query, centres)[0, 3, 1], expected, atol=1e-4, rtol=1e-4)


def test_nearness_is_exact_where_features_are_far_from_zero() -> None:
    draw = torch.Generator().manual_seed(0)
    query, centres = (300 + torch.randn(1, n, 8, generator=draw) for n in (30, 5))  # many: by a matrix product
    expected = -(query.double()[:, :, None] - centres.double()[:, None]).square().sum(-1)
    torch.testing.assert_close(nearness(query, centres).double(), expected, rtol=1e-5, atol=1e-5)


def test_a_head_is_fitted_by_gradient_descent() -> None:
    torch.manual_seed(0)
    features, y = torch.randn(2, 6, 4).double(), torch.tensor([[0, 1, 2, 0, 1, 2]]).repeat(2, 1)
    weight, bias = fit_head(features, y, 3, steps=7, rate=0.3, decay=0.01)
    for task in range(2):
        w = torch.zeros(4, 3, dtype=torch.float64, requires_grad=True)
        b = torch.zeros(3, dtype=torch.float64, requires_grad=True)
        for _ in range(7):
            loss = functional.cross_entropy(features[task] @ w + b, y[task]) + 0.005 * w.square().sum()
            gw, gb = torch.autograd.grad(loss, (w, b))
            w, b = (w - 0.3 * gw).detach().requires_grad_(), (b - 0.3 * gb).detach().requires_grad_()
        torch.testing.assert_close(weight[task], w.detach())
        torch.testing.assert_close(bias[task, 0], b.detach())


def test_evaluation_counts_every_task_once() -> None:
    found = Evaluation(torch.tensor([[1.0, 3.0]]), torch.tensor([[0.5, 1.0]]))
    assert found.describe()["accuracy"]["mean"] == 0.75
    assert found.describe()["tasks"] == 2
