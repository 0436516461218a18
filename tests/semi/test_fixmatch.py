"""FixMatch against a plain loop over images, and what a user sees of it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch.nn import functional

import fallow
from fallow import models
from fallow.core.schedule import Schedule
from fallow.data import UNKNOWN, Data, Examples
from fallow.methods.semi.fixmatch import FixMatch
from tests.conftest import small_images
from tests.semi.small import MODEL, doubled, standing


def by_hand(ctx, batch, threshold: float, weight: float) -> tuple[float, list[int], list[bool]]:
    """Image after image: the labelled loss, then a cross-entropy for every image that is sure."""
    x, y, weak, strong, _ = batch
    with torch.no_grad():
        labelled = sum(-ctx.model(a[None]).log_softmax(1)[0, b] for a, b in zip(x, y, strict=True)) / len(x)
        total, labels, sure = 0.0, [], []
        for u, hard in zip(weak.flatten(0, 1), strong.flatten(0, 1), strict=True):
            q = ctx.model(u[None]).softmax(1)[0]
            labels.append(int(q.argmax()))
            sure.append(bool(q.max() >= threshold))
            if sure[-1]:
                total += float(-ctx.model(hard[None]).log_softmax(1)[0, labels[-1]])
    return float(labelled + weight * total / len(labels)), labels, sure


@pytest.mark.parametrize("norm", ["layer", "batch"])
def test_the_loss_and_the_pseudo_labels_are_those_of_a_plain_loop(norm: str) -> None:
    ctx = standing("fixmatch:threshold=0.5,weight=0.7,ratio=3")
    if norm == "batch":  # the other path: all images in one pass
        ctx.method.together = True
    batch = doubled(ctx)
    assert [tuple(t.shape[:2]) for t in batch[2:]] == [(12, 3)] * 3
    expected, labels, sure = by_hand(ctx, batch, 0.5, 0.7)
    assert 0 < sum(sure) < len(sure)
    found = []
    ctx.method.count = lambda label, sure, which: found.append((label.tolist(), sure.bool().tolist()))
    assert float(ctx.method.loss(ctx, batch).detach()) == pytest.approx(expected, abs=1e-12)
    assert found == [(labels, sure)]


def test_no_gradient_flows_through_the_pseudo_labels() -> None:
    ctx = standing("fixmatch:threshold=0.0")
    batch = doubled(ctx)
    ctx.method.loss(ctx, batch).backward()
    mine = [p.grad.clone() for p in ctx.model.parameters()]
    x, y, weak, strong = batch[0], batch[1], batch[2].flatten(0, 1), batch[3].flatten(0, 1)
    label = ctx.model(weak).argmax(1).detach()
    loss = functional.cross_entropy(ctx.model(x), y) + functional.cross_entropy(ctx.model(strong), label)
    for a, b in zip(mine, torch.autograd.grad(loss, list(ctx.model.parameters())), strict=True):
        torch.testing.assert_close(a, b)


def test_batch_norms_see_all_three_kinds_together() -> None:
    ctx = standing("fixmatch")
    norm = models.build("scnn:width=4,dense=16,norm=batch", shape=(1, 8, 8), classes=3)
    ctx.model = ctx.wrapped = norm
    ctx.method.together = True
    batch = next(iter(ctx.method.stream(ctx)))
    before = norm.conv1.norm.num_batches_tracked.clone()
    seen = []
    norm.register_forward_hook(lambda _, inputs, __: seen.append(len(inputs[0])))
    ctx.method.loss(ctx, batch)
    assert seen == [12 + 2 * 7 * 12]
    assert norm.conv1.norm.num_batches_tracked == before + 1


def test_an_epoch_shows_each_unlabelled_image_once_and_again_when_all_were_shown() -> None:
    data = small_images(n=24)  # 60 unlabelled
    shown = []
    for steps, images in ((0, 60), (10, 360)):
        ctx = standing(f"fixmatch:ratio=3,steps={steps}")
        which = torch.cat([batch[4].flatten() for batch in ctx.method.stream(ctx)])
        assert len(which) == (ctx.clock.steps * 12 * 3)
        counts = which.bincount(minlength=60)
        assert counts.max() - counts.min() <= 1
        assert len(which) == images or len(which) == 72
        shown.append(which)
    assert len(data.unlabelled) == 60
    ctx = standing("fixmatch:ratio=3")
    again = torch.cat([batch[4].flatten() for batch in ctx.method.stream(ctx)])
    assert torch.equal(again, shown[0])


def test_weak_and_strong_views_are_of_the_same_image_and_differ() -> None:
    ctx = standing("fixmatch:ratio=2", augment="none")
    _, _, weak, strong, which = next(iter(ctx.method.stream(ctx)))
    images = ctx.data.unlabelled.x[which.flatten()].float().view_as(weak)
    torch.testing.assert_close(weak * 60 + 127.5, images)
    assert (strong != weak).flatten(2).any(2).float().mean() > 0.9


def test_biases_and_norms_do_not_decay_and_the_momentum_is_nesterovs() -> None:
    ctx = standing("fixmatch", weight_decay=0.01)
    for group in ctx.optimizer.param_groups:
        assert group["nesterov"]
        assert all((p.ndim <= 1) == (group["weight_decay"] == 0) for p in group["params"])
    assert {id(p) for group in ctx.optimizer.param_groups for p in group["params"]} == {
        id(p) for p in ctx.model.parameters()
    }


def test_the_rate_follows_the_slow_cosine() -> None:
    ctx = standing("fixmatch:steps=16")
    ctx.clock.step = 8
    ctx.set_rate()
    assert ctx.optimizer.param_groups[0]["lr"] == pytest.approx(0.05 * math.cos(7 * math.pi / 16 * 8 / 32))
    assert Schedule("cosine-7/16")(ctx.clock) == pytest.approx(math.cos(7 * math.pi / 64))
    assert standing("fixmatch", schedule="constant").schedule.kind == "constant"


def test_what_is_evaluated_is_the_average_of_the_weights() -> None:
    ctx = standing("fixmatch:decay=0.5,steps=3")
    means, t = [p.detach().clone() for p in ctx.model.parameters()], 0
    for batch in ctx.method.stream(ctx):
        ctx.method.update(ctx, lambda batch=batch: ctx.backward(batch))
        ctx.method.end_step(ctx)
        ctx.clock.step += 1
        d = min(0.5, t / (t + 9))
        means, t = [d * m + (1 - d) * p.detach() for m, p in zip(means, ctx.model.parameters(), strict=True)], t + 1
    for mine, expected in zip(ctx.method.evaluated(ctx).parameters(), means, strict=True):
        torch.testing.assert_close(mine, expected)


def test_the_record_says_how_many_are_sure_and_right() -> None:
    data = small_images(n=24)
    result = fallow.fit(MODEL, data, "fixmatch:threshold=0.6", generations=1, epochs=15, batch_size=16, lr=0.05)
    row = result.history[-1]
    assert 0 < row["confident"] < 1
    assert row["confident_right"] > 0.5
    assert row["confident_foreign"] == 0
    assert result.passes == 15 * result.steps
    unknown = replace(data, unlabelled=Examples(data.unlabelled.x, torch.full((60,), UNKNOWN)))
    row = fallow.fit(MODEL, unknown, "fixmatch", generations=1, epochs=1, batch_size=16).history[-1]
    assert "confident_right" not in row


def test_labels_of_unlabelled_images_change_nothing() -> None:
    data = small_images(n=24)
    hidden = replace(data, unlabelled=Examples(data.unlabelled.x, torch.full((60,), UNKNOWN)))
    settings = {"generations": 1, "epochs": 2, "batch_size": 16}
    first, second = (fallow.fit(MODEL, d, "fixmatch:threshold=0.5", **settings).network for d in (data, hidden))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


def test_refusals() -> None:
    data = small_images(n=24)
    with pytest.raises(fallow.RequestError, match="fixmatch learns from unlabelled images, and this data has none"):
        fallow.fit(MODEL, replace(data, unlabelled=None), "fixmatch")
    vectors = Data("v", Examples(torch.randn(9, 4), torch.arange(9) % 3), None, None, list("abc"), (4,))
    with pytest.raises(fallow.RequestError, match="augments images"):
        fallow.fit("mlp", replace(vectors, unlabelled=vectors.train), "fixmatch")
    for settings, line in (
        ({"threshold": 1.5}, "threshold is 1.5: it must be from 0 to 1"),
        ({"weight": -1}, "weight is -1"),
        ({"ratio": 0}, "ratio is 0: it must be a whole number from 1"),
        ({"steps": -1}, "steps is -1"),
        ({"decay": 1.0}, "decay is 1.0"),
    ):
        with pytest.raises(fallow.RequestError, match=line):
            FixMatch(**settings)
