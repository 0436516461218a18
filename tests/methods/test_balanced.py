"""Uneven classes: weights and sampling against brute force, the metric that judges, and what is said."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight
from torch.nn import functional

import fallow
from fallow.base.errors import RequestError
from fallow.data import load
from fallow.methods.baselines.balanced import class_weights
from fallow.problems import as_problem
from fallow.training.prepare import prepare


def uneven(n: int = 240, share: float = 0.9, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Two overlapping clouds in the plane, one with nine times as many points."""
    draw = torch.Generator().manual_seed(seed)
    y = (torch.arange(n) >= share * n).long()
    return torch.randn(n, 2, generator=draw) + 1.0 * y[:, None], y


def test_weights_are_scikit_learns() -> None:
    y = torch.tensor([0, 0, 0, 0, 1, 2, 2])
    wanted = compute_class_weight("balanced", classes=np.arange(3), y=y.numpy())
    torch.testing.assert_close(class_weights(y, 4), torch.tensor([*wanted, 0.0]).float())
    assert class_weights(y, 4)[y].mean().item() == pytest.approx(1)


def test_the_loss_weighs_each_example() -> None:
    ctx = prepare("mlp:hidden=4", uneven(), "balanced", label_smoothing=0.1)
    y = torch.tensor([0, 1, 0])
    output = torch.randn(3, 2, generator=torch.Generator().manual_seed(1))
    weight = class_weights(ctx.data.train.y, 2)
    loss = functional.cross_entropy
    each = [weight[y[i]] * loss(output[i : i + 1], y[i : i + 1], label_smoothing=0.1) for i in range(3)]
    torch.testing.assert_close(ctx.criterion(output, y), torch.stack(each).mean())
    assert ctx.plain_loss(output, y) == pytest.approx(functional.cross_entropy(output, y).item())  # judged as ever


def test_sampling_shows_every_class_as_often() -> None:
    ctx = prepare("mlp:hidden=4", uneven(1000), "balanced:by=sampling")
    seen = torch.cat([y for epoch in range(5) for _, y in ctx.train.epoch(epoch)])
    assert len(seen) == 5 * len(ctx.data.train)
    assert seen.double().mean().item() == pytest.approx(0.5, abs=0.03)
    again = torch.cat([y for epoch in range(5) for _, y in ctx.train.epoch(epoch)])
    assert torch.equal(seen, again)
    held = torch.cat([y for _, y in ctx.train.ordered()])
    assert torch.equal(held, ctx.data.train.y)  # evaluation is not weighed


@pytest.mark.parametrize("spec", ["balanced", "balanced:by=sampling", "balanced+mixup", "balanced:by=sampling+sam"])
def test_rare_classes_are_found(spec: str) -> None:
    settings = {"generations": 1, "epochs": 30, "lr": 0.05, "seed": 1, "label_smoothing": 0.0}
    even, plain = (fallow.fit("mlp:hidden=8", uneven(600), method, **settings).last for method in (spec, "normal"))
    assert even["test_balanced_accuracy"] > plain["test_balanced_accuracy"] + 0.05
    assert even["test_accuracy"] < plain["test_accuracy"]  # what it costs


def test_uneven_classes_are_judged_by_balanced_accuracy_and_it_is_said() -> None:
    problem = as_problem(uneven())
    assert problem.metric.name == "balanced-accuracy"
    (note,) = [note for note in problem.data.notes if "uneven" in note]
    said = "The classes are uneven: '0' has 90.3 % of the training examples, '1' 9.7 %; "
    assert note == f"{said}balanced accuracy judges."
    assert as_problem(problem.data).data.notes == problem.data.notes  # once
    asked = as_problem(uneven(), metric="accuracy")
    assert asked.metric.name == "accuracy"
    assert asked.data.notes[-1] == f"{said}look at balanced accuracy too."
    assert as_problem(uneven(share=0.6)).metric.name == "accuracy"
    data = load(uneven())
    as_problem(data)
    assert not any("uneven" in note for note in data.notes)  # the data of others stay as they are


def test_labels_weigh_their_presence() -> None:
    x, y = uneven()
    both = torch.stack([y, 1 - y], 1).to(torch.uint8)
    ctx = prepare("mlp:hidden=4", load((x, both), target="labels"), "balanced")
    held = ctx.data.train.y.double().sum(0)
    output = torch.randn(5, 2, generator=torch.Generator().manual_seed(1))
    wanted = functional.binary_cross_entropy_with_logits(
        output, both[:5].float(), pos_weight=((len(ctx.data.train) - held) / held).float()
    )
    torch.testing.assert_close(ctx.criterion(output, both[:5]), wanted)


def test_refusals() -> None:
    x, y = uneven()
    with pytest.raises(RequestError, match="evens out classes, and these are numbers"):
        fallow.fit("mlp:hidden=4", load((x, x[:, 0]), target="numbers"), "balanced", epochs=1)
    with pytest.raises(RequestError, match="leave loss out"):
        fallow.fit("mlp:hidden=4", (x, y), "balanced", epochs=1, loss=functional.cross_entropy)
    with pytest.raises(RequestError, match="unknown value for by 'sizes'"):
        fallow.fit("mlp:hidden=4", (x, y), "balanced:by=sizes", epochs=1)
    masks = (torch.randn(12, 1, 8, 8), torch.randint(2, (12, 8, 8)))
    with pytest.raises(RequestError, match="balanced weighs cross-entropy, and the loss is dice"):
        fallow.fit("unet:width=4", masks, "balanced", epochs=1, loss="dice", target="dense")
