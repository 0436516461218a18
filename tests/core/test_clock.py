"""The clock and the hooks: what runs, in which order, and what a resumed run still has to do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import fallow
from fallow.core import loop
from fallow.core.clock import Clock
from fallow.core.method import Method
from tests.core.small import TINY, Net, equal, points, weights


def test_positions() -> None:
    clock = Clock(generations=2, epochs=3, steps=4)
    seen = []
    for generation in clock.generations_left():
        for epoch in clock.epochs_left():
            for clock.step in range(4):
                seen.append((generation, epoch, clock.step))
                assert clock.step_index == len(seen) - 1
                assert clock.epoch_index == (len(seen) - 1) // 4
                assert clock.progress == pytest.approx((len(seen) - 1) % 12 / 12)
                assert clock.overall == pytest.approx((len(seen) - 1) / 24)
    assert len(seen) == 24
    assert clock.position() == {"generation": 2, "epoch": 0, "step": 0}
    assert clock.overall == 1


def test_goes_on_from_any_position() -> None:
    whole = [(g, e) for g in range(2) for e in range(3)]
    for start, (generation, epoch) in enumerate(whole):
        clock = Clock(2, 3, 4)
        clock.move_to({"generation": generation, "epoch": epoch, "step": 2})
        assert str(clock) == f"generation {generation + 1}, epoch {epoch + 1}, step 3"
        assert [(g, e) for g in clock.generations_left() for e in clock.epochs_left()] == whole[start:]


def test_a_generation_that_ends_early_is_complete() -> None:
    clock = Clock(2, 5, 4)
    seen = []
    for generation in clock.generations_left():
        for epoch in clock.epochs_left():
            seen.append((generation, epoch))
            if epoch == 1:
                clock.finish_generation()
        assert clock.epoch == 5
        assert clock.progress == 1
    assert seen == [(0, 0), (0, 1), (1, 0), (1, 1)]


class Interrupted(BaseException):
    pass


HOOKS = (
    "begin_generation", "begin_epoch", "stream", "update", "loss", "forward", "penalty", "before_step", "end_step",
    "end_epoch", "evaluated", "end_generation", "end",
)  # fmt: skip


class Recorder(Method):
    """Logs every hook and where the clock stood, and may stop the training at one of them."""

    name = "recorder"
    generational = True

    def __init__(self, stop: int | None = None) -> None:
        self.log: list[tuple] = []
        self.stop = stop

    def note(self, ctx, hook: str) -> None:
        clock = ctx.clock
        entry = (hook, clock.generation, clock.epoch, clock.step)
        if hook != "evaluated" or self.log[-1:] != [entry]:  # how often the loop looks at a model is its own affair
            self.log.append(entry)
        if self.stop is not None and len(self.log) > self.stop:
            raise Interrupted

    def begin(self, ctx) -> None:
        assert not self.log


def _noting(hook: str):
    def noted(self, ctx, *arguments):
        self.note(ctx, hook)
        return getattr(Method, hook)(self, ctx, *arguments)

    return noted


for _hook in HOOKS:
    setattr(Recorder, _hook, _noting(_hook))


def drawn(generations: int, epochs: int, steps: int) -> Iterator[tuple]:
    """The loop as its docstring draws it."""
    for g in range(generations):
        yield ("begin_generation", g, 0, 0)
        for e in range(epochs):
            yield ("begin_epoch", g, e, 0)
            yield ("stream", g, e, 0)
            for s in range(steps):
                for hook in ("update", "loss", "forward", "penalty", "before_step", "end_step"):
                    yield (hook, g, e, s)
            yield ("end_epoch", g, e, steps)
            yield ("evaluated", g, e, steps)
        yield ("end_generation", g, epochs, 0)
        yield ("evaluated", g, epochs, 0)
    yield ("end", generations, 0, 0)
    yield ("evaluated", generations, 0, 0)


def train(out: Path | None, recorder: Recorder, resume: bool = False) -> fallow.Result:
    return fallow.fit(Net(), points(), recorder, out=out, resume=resume, checkpoint_every=0, **TINY)


def test_hooks_run_as_the_loop_is_drawn() -> None:
    recorder = Recorder()
    train(None, recorder)
    assert recorder.log == list(drawn(2, 2, 2))
    order = re.findall(r"method\.(\w+)", loop.__doc__)
    order.insert(order.index("loss"), order.pop(order.index("update")))  # drawn where it is called, after gradients()
    assert order == ["begin", *HOOKS]


@pytest.mark.parametrize("live", [0.0, 60.0], ids=["checkpoint every step", "checkpoint every epoch"])
def test_a_run_stopped_in_any_hook_does_the_rest_and_nothing_twice(
    live: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "LIVE", live)
    whole = list(drawn(2, 2, 2))
    wanted = weights(train(None, Recorder()).network)
    for stop in range(0, len(whole), 1 if live == 0.0 else 5):
        out = tmp_path / str(stop)
        with pytest.raises(Interrupted):
            train(out, Recorder(stop))
        again = Recorder()
        result = train(out, again, resume=True)
        rest = again.log
        hook, generation, epoch, step = rest[0]
        if hook == "stream" and step:  # in the middle of an epoch
            at = whole.index(("update", generation, epoch, step))
            rest = rest[1:]
        else:
            at = whole.index(rest[0])
        assert rest == whole[at:]
        assert at <= stop  # nothing is left out
        if live == 0.0:
            assert stop - at <= 9  # and little is done again: a step, and the end of an epoch
        assert equal(weights(result.network), wanted)
        assert [(row["generation"], row["epoch"]) for row in result.history] == [(1, 1), (1, 2), (2, 1), (2, 2)]
