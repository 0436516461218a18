"""The baseline, the data and the figures of a study."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from fallow.base.errors import RequestError
from fallow.data import FOREIGN, UNKNOWN, Data, Examples
from fallow.methods import FixMatch
from fallow.report.charts import Line, lines
from fallow.semi import StudyPlan, Supervised, Trained, gather
from fallow.semi.figures import histogram
from fallow.semi.look import picked
from fallow.semi.study import command
from fallow.training.fit import fit

PLAN = StudyPlan("digits", labels=20, val=30, model="mlp:hidden=8", epochs=2, steps=4, batch_size=10)


def test_the_baseline_is_fixmatch_without_its_second_term() -> None:
    data = gather(PLAN)
    made = [
        fit(PLAN.model, data, method, **PLAN.settings())
        for method in (Supervised(steps=4), FixMatch(steps=4, weight=0.0))
    ]
    for ours, theirs in zip(*(result.network.parameters() for result in made), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)
    assert made[0].passes == 8  # a forward and backward for each of eight steps
    assert made[1].passes == 8 * 15


def test_the_data_of_a_study() -> None:
    data = gather(StudyPlan("digits", labels=16, val=30, ood_classes="8, 9", ood_share=0.25))
    assert data.classes == [str(i) for i in range(8)]
    assert data.train.y.bincount().tolist() == [2] * 8
    foreign = (data.unlabelled.y == FOREIGN).double().mean()
    assert abs(float(foreign) - 0.25) < 0.01


def test_more_validation_labels_than_there_are_means_all() -> None:
    data = gather(StudyPlan("digits", labels=20, val=9999))
    assert len(data.val) == 288


def test_groups_stay_together_and_arrays_can_be_said_to_be_images(tmp_path: Path) -> None:
    """40 recordings of 8 noisy images each: none of the unlabelled ones is of a recording that judges."""
    draw = np.random.default_rng(0)
    recording = np.arange(320) // 8
    x = draw.integers(0, 256, (320, 64)).astype(np.uint8)
    x[:, 0] = recording  # told by the first pixel
    np.savez(tmp_path / "few.npz", x=x, y=recording % 2, recording=recording)
    plan = StudyPlan(str(tmp_path / "few.npz"), labels=8, val=16, as_="images", groups="recording")
    data = gather(plan)
    assert data.shape == (1, 8, 8)
    sides = [set(part.x[:, 0, 0, 0].tolist()) for part in (data.unlabelled, data.val, data.test)]
    assert sum(map(len, sides)) == len(set.union(*sides)) == 40
    assert command(plan, controls=False).endswith("--val 16 --as images --groups recording")


def test_the_command_of_a_plan_is_what_to_type() -> None:
    plan = StudyPlan("my data.npz", "confidence:ratio=3", labels=40, ood="o.npz", ood_share=0.3, batch_size=10)
    assert command(plan, controls=True) == (
        "fallow semi 'my data.npz' --method confidence:ratio=3 --labels 40 --ood o.npz --ood-share 0.3 "
        "--batch-size 10 --controls"
    )


def test_a_plan_refuses_what_it_cannot_do() -> None:
    with pytest.raises(RequestError, match="unknown method 'sam'"):
        StudyPlan("digits", "sam", labels=20)


def test_highest_median_and_lowest_of_each_class() -> None:
    x = torch.arange(7, dtype=torch.uint8).view(7, 1, 1, 1).expand(7, 1, 4, 4).contiguous()
    y = torch.tensor([0, 0, 0, UNKNOWN, 1, FOREIGN, FOREIGN])
    data = Data("d", Examples(x, y.clamp(min=0)), None, None, ["a", "b"], (1, 4, 4), unlabelled=Examples(x, y))
    weights = np.array([0.5, 1.5, 1.0, 0.7, 1.2, 0.1, 0.2])
    outcome = Trained("confidence", 0.5, 0.5, [], 1.0, 1.0, weights=weights, predicted=np.array([1, 1, 1, 1, 1, 0, 0]))
    found = {row.name: [pick.weight for pick in row.picks] for row in picked(data, outcome)}
    assert found == {"a": [1.5, 1.0, 0.5], "b": [1.2, 0.7, 0.7], "foreign images": [0.2, 0.1, 0.1]}


def test_figures_say_what_they_show() -> None:
    drawn = lines("Accuracy", [Line("ours", [(1, 10.0), (2, 30.0)]), Line("<x>", [(1, 5.0), (2, 9.0)], "quiet")])
    assert drawn.says == "Accuracy: ours from 10 to 30, <x> from 5 to 9, over 2 epochs"
    assert "&lt;x&gt;" in drawn.inline()
    assert "<x>" not in drawn.inline()
    assert lines("nothing", [Line("ours", [])]) is None


@pytest.mark.parametrize("own", [np.array([1.0, 1.0]), np.linspace(0, 2, 50)])
@pytest.mark.parametrize("foreign", [np.array([]), np.array([0.5, 1.0])])
def test_a_histogram_of_any_weights(own: np.ndarray, foreign: np.ndarray) -> None:
    drawn = str(histogram(own, foreign).inline())
    assert "nan" not in drawn
    assert ("foreign" in drawn) == (len(foreign) > 0)
