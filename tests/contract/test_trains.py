from __future__ import annotations

import pytest
import torch

import fallow
from fallow import models
from fallow.core.method import Method
from fallow.data import Data
from fallow.data.tasks import Episodes
from fallow.methods import build
from tests.contract.catalogue import (
    ADVICE,
    MODEL,
    SETTINGS,
    SPECS,
    TASK_MODEL,
    TASK_SETTINGS,
    TASK_SPECS,
    needs,
    ordinary_start,
    task_needs,
)

pytestmark = ADVICE


@pytest.mark.parametrize("spec", SPECS)
def test_trains_and_returns_a_trained_model(spec: str, images: Data) -> None:
    result = fallow.fit(MODEL, images, spec, **SETTINGS, **needs(spec))
    first, last = result.history[0], result.history[-1]
    assert last["train_loss"] < first["train_loss"] or len(result.history) == 1  # probe is there at once
    assert result.last["test_accuracy"] > 0.6  # chance is a third
    # never a freshly reset network: what is returned does better than right after the last forgetting
    record = result.generations[-1]
    if "forgot_to" in record:
        assert result.last["test_accuracy"] > record["forgot_to"] or record["forgot_to"] > 0.9
    generations, epochs = build(spec).plan(SETTINGS["generations"], SETTINGS["epochs"])
    assert len(result.history) == generations * epochs
    assert len(result.generations) == generations


@pytest.mark.parametrize("spec", TASK_SPECS)
def test_meta_trains_and_returns_a_learner(spec: str, tasks: Episodes) -> None:
    result = fallow.fewshot(TASK_MODEL, tasks, spec, **(TASK_SETTINGS | {"iterations": 48}), **task_needs(spec))
    assert result.history[-1]["train_loss"] < result.history[0]["train_loss"]
    assert result.accuracy is not None
    assert result.accuracy.low > 0.38  # chance is a third
    assert result.test.accuracies.shape[1] == 60


@pytest.mark.parametrize("spec", SPECS)
def test_the_first_generation_is_ordinary(spec: str, images: Data) -> None:
    """Nothing differs from ordinary training before the first forgetting (SA-GD disturbs every step)."""
    method = build(spec)
    if not (method.generational and ordinary_start(spec)):
        pytest.skip("no generations, or none that is ordinary")
    settings = SETTINGS | {"generations": 1}
    mine = fallow.fit(MODEL, images, method, **settings).network
    ordinary = fallow.fit(MODEL, images, "normal", **settings).network
    for (name, a), b in zip(mine.named_parameters(), ordinary.parameters(), strict=True):
        assert torch.equal(a, b), name


class Spy(Method):
    """Looks at the weights around every forgetting."""

    name = "spy"

    def __init__(self) -> None:
        self.before: list[dict[str, torch.Tensor]] = []
        self.after: list[dict[str, torch.Tensor]] = []
        self.phases: list[tuple[str, dict[str, torch.Tensor], float]] = []

    def begin(self, ctx) -> None:
        self.partition = ctx.partition
        inner = ctx.method.methods[0]
        original = inner.begin_generation

        def watched(ctx) -> None:
            self.before.append(snapshot(ctx.model))
            original(ctx)
            self.after.append(snapshot(ctx.model))

        inner.begin_generation = watched

    def end_epoch(self, ctx) -> None:
        self.phases.append(("ascent" if ctx.disturbed else "descent", snapshot(ctx.model), ctx.check()))


def snapshot(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def watch(spec: str, images: Data, **changes) -> tuple[Spy, Method, fallow.Result]:
    method, spy = build(spec), Spy()
    return spy, method, fallow.fit(MODEL, images, method + spy, **(SETTINGS | changes), **needs(spec))


BOTH = {"early", "late"}


@pytest.mark.parametrize("spec", [spec for spec in SPECS if build(spec).forgets < BOTH and not build(spec).alone])
def test_what_is_not_forgotten_is_untouched(spec: str, images: Data) -> None:
    """Only the parts that a method declares change at the edge of a generation, to the bit."""
    spy, method, _ = watch(spec, images)
    for before, after in zip(spy.before, spy.after, strict=True):
        for part in BOTH - method.forgets:
            for name in getattr(spy.partition, part).names:
                assert torch.equal(before[name], after[name]), name


@pytest.mark.parametrize("spec", [spec for spec in SPECS if build(spec).forgets])
def test_what_is_forgotten_changes(spec: str, images: Data) -> None:
    """Each declared part is disturbed: at the edge of a generation, or by an ascent in its first epoch."""
    spy, method, result = watch(spec, images)
    edges = list(zip(spy.before[1:], spy.after[1:], strict=True))
    climbed = any(row.get("phase") == "ascent" or "ascent_steps" in row for row in result.history)
    for part in method.forgets:
        names = getattr(spy.partition, part).names
        moved = any(not torch.equal(before[name], after[name]) for before, after in edges for name in names)
        assert moved or climbed, part


@pytest.mark.parametrize("spec", ["llf", "born-again", "seal:late=redraw"])
def test_redrawn_weights_have_the_initial_distribution(spec: str, images: Data) -> None:
    spy, method, _ = watch(spec, images)
    torch.manual_seed(0)
    fresh = models.build(MODEL, shape=images.shape, classes=3)
    parts = {"llf": ["late"], "born-again": ["early", "late"], "seal": ["late"]}[method.name]
    for before, after in zip(spy.before[1:], spy.after[1:], strict=True):
        for part in parts:
            for name in getattr(spy.partition, part).names:
                tensor, model = after[name], dict(fresh.named_parameters())[name].detach()
                if tensor.ndim > 1:
                    assert not torch.equal(tensor, before[name])
                    assert tensor.std() == pytest.approx(model.std().item(), rel=0.35)
                else:
                    assert torch.equal(tensor, model), name  # norms and biases start from constants


@pytest.mark.parametrize("spec", [spec for spec in SPECS if spec.startswith("seal")])
def test_an_ascent_raises_the_loss(spec: str, images: Data) -> None:
    spy, _, _ = watch(spec, images, generations=2, epochs=24)
    phases = [phase for phase, _, _ in spy.phases]
    losses = [loss for _, _, loss in spy.phases]
    ascents = [i for i, phase in enumerate(phases) if phase == "ascent"]
    if "adaptive" in spec and not ascents:
        ascents = [24]  # it forgot within its first epoch and was already descending at its end
    assert ascents[0] == 24
    assert max(losses[i] for i in ascents) > losses[23]
    assert losses[-1] < max(losses[i] for i in ascents)


def test_frozen_layers_do_not_move_during_the_ascent(images: Data) -> None:
    spy, _, _ = watch("seal:scale=0.5,late=freeze", images, epochs=8)
    start = spy.after[1]
    during = next(weights for phase, weights, _ in spy.phases if phase == "ascent")
    assert all(torch.equal(start[name], during[name]) for name in spy.partition.late.names)
    assert not all(torch.equal(start[name], during[name]) for name in spy.partition.early.names)
