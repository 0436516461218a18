from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from fallow.cli import comparing
from fallow.comparison.policy import policy
from fallow.comparison.run import begun
from fallow.data import Data
from fallow.training import pace
from tests.comparison.small import arrays, plan


def test_a_pass_is_timed_and_leaves_no_trace(images: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of 1, 5, 5, 9, 5 and 5 seconds: the first does not count, and the middle one of the others does."""
    moments = iter([0, 1, 6, 11, 20, 25, 30])
    monkeypatch.setattr(pace, "time", SimpleNamespace(monotonic=lambda: next(moments)))
    monkeypatch.setattr(pace, "SECONDS", 100)
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    found = pace.seconds_per_pass("mlp:hidden=4", images, batch_size=16, threads=1, augment="try")
    assert found == pytest.approx(5 * (1 + 30 / 96 / 3))  # and looks at 30 validation examples in an epoch of 96
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == threads


def test_slow_steps_end_the_trial(images: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([0, 7])
    monkeypatch.setattr(pace, "time", SimpleNamespace(monotonic=lambda: next(moments)))
    assert pace.seconds_per_pass("mlp:hidden=4", images, batch_size=16) == pytest.approx(7 * (1 + 30 / 96 / 3))


ALL = "about 1.7 hours if all 8 seeds are needed"
SHORTER = "--minutes 30 makes it fit, --quick is a first look"


@pytest.mark.parametrize(
    ("seeds", "minutes", "says"),
    [
        (2, None, "about 25 minutes on 2 workers"),
        (4, None, f"about 50 minutes on 2 workers; {SHORTER}"),
        (8, None, f"about 50 minutes on 2 workers for the first 4 seeds, {ALL}; {SHORTER}"),
        (8, 30, "about 30 minutes on 2 workers, as asked; all 8 seeds would take about 1.7 hours"),
    ],
)
def test_the_time_of_a_comparison(
    seeds: int, minutes: float | None, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """38 training examples in batches of 16, two epochs for ema and long, one for normal: 15 steps a seed."""
    monkeypatch.setattr(pace, "seconds_per_pass", lambda *_, **__: 100.0)
    asked = plan(arrays(tmp_path / "few.npz"), "ema", seeds=seeds, minutes=minutes)
    with begun(asked, tmp_path / "out") as (comparison, experiment):
        wanted = policy(comparison.plan, comparison.loaded, experiment.store.read("data"), comparison.metric)
        comparison.state.runs = {run.name: run for run in wanted({})}
        assert comparing.estimate(comparison, 2) == says
