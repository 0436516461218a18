"""One step: micro-batches, clipping, and what happens when the loss is no number any more."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch.nn import functional

import fallow
from fallow.base.errors import RequestError, WorkError
from fallow.core import checkpoint, loop
from fallow.core.method import Method
from tests.core.small import OWN, TINY, Net, equal, points, weights


class Gradients(Method):
    """Keeps the gradients of every step, as the optimiser will see them."""

    name = "gradients"

    def begin(self, ctx) -> None:
        self.seen: list[torch.Tensor] = []
        self.sizes: list[int] = []

    def loss(self, ctx, batch):
        self.sizes.append(len(batch[0]))
        return super().loss(ctx, batch)

    def penalty(self, ctx, batch):
        return 0.1 * ctx.model.first.weight.square().sum()  # counts once in a batch, however it is cut

    def before_step(self, ctx) -> None:
        self.seen.append(torch.cat([p.grad.flatten() for p in ctx.model.parameters()]).clone())


def gradients(n: int = 22, batch_size: int = 11, **settings) -> tuple[Gradients, fallow.Result]:
    method = Gradients()
    # every step starts from the same weights, so that the gradients can be compared to the last digit
    return method, fallow.fit(Net(), points(n), method, epochs=1, generations=1, batch_size=batch_size, **settings)


@pytest.mark.parametrize("count", [2, 3, 11])
def test_accumulation_gives_the_gradient_of_the_whole_batch(count: int) -> None:
    whole, one = gradients(lr=1e-30)
    parts, many = gradients(lr=1e-30, accumulate=count)
    assert len(parts.seen) == len(whole.seen) == 2
    assert len(parts.sizes) == 2 * count
    for a, b in zip(whole.seen, parts.seen, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-6)
    assert one.history[0]["train_loss"] == pytest.approx(many.history[0]["train_loss"], abs=1e-6)


def test_accumulation_of_more_parts_than_a_batch_has_examples() -> None:
    """Ten examples in batches of at most eight are five and five: eight parts of them would be empty ones."""
    whole, _ = gradients(n=10, batch_size=8, lr=1e-30)
    parts, result = gradients(n=10, batch_size=8, lr=1e-30, accumulate=8)
    assert parts.sizes == [1] * 10
    assert math.isfinite(result.last["train_loss"])
    torch.testing.assert_close(whole.seen[1], parts.seen[1], rtol=0, atol=1e-6)


def test_clipping_scales_the_whole_gradient() -> None:
    bare, _ = gradients(lr=1e-30)
    clipped, _ = gradients(lr=1e-30, clip=0.01)
    loose, _ = gradients(lr=1e-30, clip=1e6)
    for a, b, c in zip(bare.seen, clipped.seen, loose.seen, strict=True):
        assert b.norm() == pytest.approx(0.01, rel=1e-3)
        torch.testing.assert_close(b, a * 0.01 / a.norm(), rtol=1e-3, atol=1e-8)
        assert torch.equal(a, c)


def test_clipping_looks_only_at_what_is_trained() -> None:
    """Whatever the optimiser does not hold is never zeroed: its gradient grows, and is nobody's business."""
    net = Net()
    optimizer = torch.optim.SGD(net.second.parameters(), lr=1e-30)
    method = Gradients()
    fallow.fit(net, points(64), method, optimizer=optimizer, epochs=8, generations=1, batch_size=8, clip=0.01)
    for gradient in method.seen:
        assert gradient[-12:].norm() == pytest.approx(0.01, rel=1e-3)  # the second layer's 10 weights, 2 biases


class Loss:
    """Cross-entropy that is ``bad`` at one step."""

    def __init__(self, step: int | None, bad: float = math.nan) -> None:
        self.calls, self.step, self.bad = 0, step, bad

    def __call__(self, output, y):
        if torch.is_grad_enabled():
            self.calls += 1
            if self.calls == self.step:
                return functional.cross_entropy(output, y) * self.bad
        return functional.cross_entropy(output, y)

    def __repr__(self) -> str:
        return "Loss"


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("step", [1, 6, 8])
def test_a_loss_that_is_not_finite_stops_and_keeps_the_last_good_checkpoint(
    bad: float, step: int, tmp_path: Path
) -> None:
    settings = TINY | {"epochs": 4}
    whole = fallow.fit(Net(), points(), loss=Loss(None), **settings)
    with pytest.raises(WorkError) as caught:
        fallow.fit(Net(), points(), loss=Loss(step, bad), out=tmp_path, checkpoint_every=0, **settings)
    words = str(caught.value)
    epoch, place = divmod(step - 1, 2)
    assert f"the loss became {bad} at generation 1, epoch {epoch + 1}, step {place + 1}" in words
    assert ("(the step before: " in words) == (place > 0)
    why = "look for non-finite inputs or weights" if step == 1 else "likely the learning rate (0.05) is too high"
    assert why in words
    assert f"the last good checkpoint is kept in {tmp_path}" in words
    assert "\n" not in words
    kept = checkpoint.load(tmp_path / "checkpoint")
    assert kept["clock"]["epoch"] == epoch
    assert all(torch.isfinite(value).all() for value in kept["model"].values())
    with pytest.raises(RequestError, match=r"its settings.lr is 0\.05, not 0\.01"):
        fallow.fit(Net(), points(), loss=Loss(None), out=tmp_path, resume=True, **(settings | {"lr": 0.01}))
    result = fallow.fit(Net(), points(), loss=Loss(None), out=tmp_path, resume=True, **settings)
    assert equal(weights(result.network), weights(whole.network))


def test_the_learning_rate_in_the_message_is_the_optimisers() -> None:
    def make(parameters):
        return torch.optim.SGD(parameters, lr=1e25)

    with pytest.raises(WorkError, match=r"learning rate \(1e\+25\) is too high") as caught:
        fallow.fit("mlp:hidden=8,8", points(), optimizer=make, **(OWN | {"epochs": 4}))
    assert "checkpoint" not in str(caught.value)  # there is no folder


def test_weights_that_are_not_finite_are_never_kept(tmp_path: Path) -> None:
    class Spoiler(Method):
        name = "spoiler"

        def end_epoch(self, ctx) -> None:
            if ctx.clock.epoch == 1:
                ctx.model.first.weight.data[0, 0] = math.inf

    with pytest.raises(WorkError, match="weights became non-finite before generation 1, epoch 3, step 1"):
        fallow.fit(Net(), points(), Spoiler(), out=tmp_path, checkpoint_every=0, **TINY)
    assert checkpoint.load(tmp_path / "checkpoint")["clock"]["epoch"] == 1


@pytest.mark.parametrize("live", [0.0, 60.0])
def test_an_ascent_that_diverges_says_so(live: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "LIVE", live)
    with pytest.raises(RequestError) as caught:  # its own settings are to blame
        fallow.fit("mlp:hidden=8,8", points(64), "seal:scale=1e30,share=0.5", **(TINY | {"epochs": 4}))
    words = str(caught.value)
    assert "at generation 2, epoch 1, step" in words
    assert "the ascent diverged: give it a smaller scale or a smaller share, or ascent=adaptive" in words
