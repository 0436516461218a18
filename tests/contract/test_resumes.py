from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import fallow
from fallow.adaptation.execution import Execution
from fallow.core import loop
from fallow.data import Data
from fallow.data.tasks import Episodes
from tests.conftest import small_images
from tests.contract.catalogue import ADVICE, MODEL, SETTINGS, SPECS, TASK_SETTINGS, TASK_SPECS, needs, task_needs

pytestmark = ADVICE


class Killed(BaseException):
    pass


def train(out: Path, spec: str, images: Data, resume: bool = False) -> fallow.Result:
    model = MODEL.replace("scnn:", "scnn:dropout=0.2,norm=batch,")  # buffers and a random generator to restore
    how = SETTINGS | needs(spec)
    return fallow.fit(model, images, spec, out=out, resume=resume, checkpoint_every=0, augment="crop", **how)


def same(a: Path, b: Path) -> bool:
    pairs = [(load_file(a / name), load_file(b / name)) for name in ("last.safetensors", "best.safetensors")]
    weights = all(torch.equal(one[key], two[key]) for one, two in pairs for key in one)
    strip = [{k: v for k, v in row.items() if k != "seconds"} for row in rows(a)]
    return weights and strip == [{k: v for k, v in row.items() if k != "seconds"} for row in rows(b)]


def rows(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("spec", SPECS)
def test_stops_between_any_two_steps_and_resumes_to_the_bit(
    spec: str, images: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stop after several steps of every phase (a checkpoint after each step), go on, compare every bit."""
    steps = train(tmp_path / "whole", spec, images).steps
    monkeypatch.setattr(loop, "LIVE", 0.0)  # look, and so save, after every step
    look = loop.look
    for stop in {
        1,
        max(1, 3 * steps // 8),
        max(1, 3 * steps // 4 - 2),
    }:  # of 72 steps in 3 generations, two are in an ascent
        seen = 0

        def stopping(ctx, stop: int = stop) -> float:
            nonlocal seen
            seen += 1
            wake = look(ctx)
            if seen == stop:
                raise Killed
            return wake

        monkeypatch.setattr(loop, "look", stopping)
        out = tmp_path / f"stopped {stop}"
        with pytest.raises(Killed):
            train(out, spec, images)
        monkeypatch.setattr(loop, "look", look)
        train(out, spec, images, resume=True)
        assert same(tmp_path / "whole", out), stop


@pytest.mark.parametrize("spec", TASK_SPECS)
def test_a_meta_training_resumes_to_the_bit(
    spec: str, tasks: Episodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meta_train(out: Path, resume: bool = False) -> fallow.FewShotResult:
        model = "scnn:width=4,dense=16,norm=batch,dropout=0.1"  # buffers and a random generator to restore
        how = TASK_SETTINGS | task_needs(spec, model)
        return fallow.fewshot(model, tasks, spec, out=out, resume=resume, checkpoint_every=0, **how)

    monkeypatch.setattr(Execution, "choose", lambda *_: "vmap")  # a measurement: on a busy machine it may differ
    whole = meta_train(tmp_path / "whole")
    monkeypatch.setattr(loop, "LIVE", 0.0)
    look = loop.look
    for stop in (1, 13):
        seen = 0

        def stopping(ctx, stop: int = stop) -> float:
            nonlocal seen
            seen += 1
            wake = look(ctx)
            if seen == stop:
                raise Killed
            return wake

        monkeypatch.setattr(loop, "look", stopping)
        out = tmp_path / f"stopped {stop}"
        with pytest.raises(Killed):
            meta_train(out)
        monkeypatch.setattr(loop, "look", look)
        again = meta_train(out, resume=True)
        assert same(tmp_path / "whole", out), stop
        assert again.tested == whole.tested
        assert meta_train(out, resume=True).tested == whole.tested  # a finished run is only read


@pytest.mark.parametrize("spec", SPECS)
def test_survives_a_real_sigkill(spec: str, tmp_path: Path) -> None:
    """A child is killed at random moments, checkpoints being written all the time, until one finishes."""
    images = small_images()
    started = time.monotonic()
    train(tmp_path / "whole", spec, images)
    length = time.monotonic() - started
    out, moment, killed = tmp_path / "killed", random.Random(spec), 0
    for attempt in range(3):
        child = os.fork()
        if child == 0:
            try:
                loop.LIVE = 0.0
                train(out, spec, images, resume=out.exists())
            finally:
                os._exit(0)
        if attempt < 2:
            time.sleep(moment.uniform(0.05, 0.6) * length)
            os.kill(child, signal.SIGKILL)
        killed += os.WIFSIGNALED(os.waitpid(child, 0)[1])
    assert killed > 0
    assert same(tmp_path / "whole", out)
