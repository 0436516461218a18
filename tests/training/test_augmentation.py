"""Shifts and mirroring are taken only where short trials on validation favour them."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import fallow
from fallow.base.errors import RequestError
from fallow.core.settings import Settings
from fallow.data import load
from fallow.problems import as_problem
from fallow.training import augmentation


def sides(n: int = 240) -> tuple[np.ndarray, np.ndarray]:
    """Colour images that are bright on the left, or on the right: mirrored, the classes are swapped."""
    draw = np.random.default_rng(0)
    y = np.arange(n) % 2
    x = draw.integers(0, 200, (n, 16, 16, 3), np.uint8)
    x[y == 0, :, :8] += 55
    x[y == 1, :, 8:] += 55
    return x, y


def test_no_image_is_mirrored_unless_asked() -> None:
    x, y = sides()
    data = load((x, y))
    assert data.policy("auto") == "crop"
    settings = {"generations": 1, "epochs": 6, "lr": 0.03, "label_smoothing": 0.0}
    auto, flipped = (
        fallow.fit("scnn:width=4,dense=16", data, augment=policy, **settings).last["test_accuracy"]
        for policy in ("auto", "flip+crop")
    )
    assert auto > 0.9
    assert flipped < 0.75


def test_trials_do_not_take_what_hurts() -> None:
    problem = as_problem(sides())
    settings = Settings.of(epochs=8, lr=0.03)
    state = torch.get_rng_state()
    best, said = augmentation.tried(problem, "scnn:width=4,dense=16", settings, "cpu")
    assert torch.equal(torch.get_rng_state(), state)
    assert best in ("none", "crop")
    assert said.startswith("Short trials (loss on validation: none ")


@pytest.mark.parametrize(
    ("crop", "flip", "both", "best"),
    [
        ([0.4, 0.5, 0.4], None, [0.3, 0.4, 0.5], "crop"),  # mirroring gains no more than chance
        ([0.4, 0.5, 0.4], None, [0.3, 0.4, 0.3], "flip+crop"),
        ([0.5, 0.6, 0.4], [0.4, 0.4, 0.4], None, "flip"),
        ([0.5, 0.5, 0.5], [0.5, 0.5, 0.5], None, "none"),  # the tie goes to the simpler
    ],
)
def test_a_candidate_must_win_by_more_than_chance(
    crop: list[float], flip: list[float] | None, both: list[float] | None, best: str
) -> None:
    losses = {"none": [0.5, 0.6, 0.5], "crop": crop, "flip": flip, "flip+crop": both}
    assert augmentation.choose((3, 16, 16), lambda policies: {p: losses[p] for p in policies})[0] == best


def test_losses_of_parts_are_those_of_validation() -> None:
    problem = as_problem(sides(100))
    parts = augmentation.trial(problem.data, "mlp:hidden=4", Settings.of(generations=4, epochs=2), "cpu")
    shown = fallow.fit("mlp:hidden=4", problem.data, "normal", generations=1, epochs=2, augment="auto")  # a quarter
    assert len(parts) == len(problem.data.val) == 16
    assert np.mean(parts) == pytest.approx(shown.last["val_loss"], rel=1e-5)


def test_try_is_an_augmentation_of_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    losses = {"none": [0.5], "crop": [0.1], "flip+crop": [0.5]}
    monkeypatch.setattr(augmentation, "trial", lambda data, model, settings, device: losses[settings.augment])
    how = {"model": "mlp:hidden=4", "data": sides(40), "augment": "try", "epochs": 1, "generations": 1}
    fallow.fit(out=tmp_path / "run", **how)
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["settings"]["augment"] == "crop"
    assert record["understood"].endswith("augmented by shifts")
    assert any(note.startswith("Short trials") for note in record["notes"])
    losses["none"] = [0.0]
    fallow.fit(out=tmp_path / "run", resume=True, **how)  # what was tried before holds
    table = torch.randn(40, 3), torch.arange(40) % 2
    fallow.fit("mlp:hidden=4", table, augment="try", epochs=1, generations=1)  # nothing to shift: none
    with pytest.raises(RequestError, match="chooses on validation: give val above 0"):
        fallow.fit("mlp:hidden=4", sides(40), augment="try", val=0.0)
