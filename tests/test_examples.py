"""Every example of the gallery runs, and says what it promises."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
SAYS = {
    "any_network": r"llf 0\.9\d+, restart 0\.9",
    "own_loop": r"right after forgetting: 0\.[0-4]\d of the training examples[\s\S]*relearned: training 1\.00",
    "looking_often": r"at every look: +1\d\.\d% false alarms[\s\S]*sequential p-value: +[3-5]\.\d% false alarms",
    "learned_decay": r"largest difference \d\.\de-(0[89]|1\d)",
    "in_scikit_learn": r"llf +weight decay 0\.01 +0\.[89]\d+\n[\s\S]*16 epochs",
    "in_lightning": r"with the callback 0\.[6-9]\d+\nfallow/forgot_to: 0\.[0-5]",
    "in_transformers": r"test accuracy: 0\.[5-9]",
}
NEEDS = {"in_lightning": "lightning", "in_transformers": "transformers"}


@pytest.mark.filterwarnings("ignore::FutureWarning:lightning", "ignore:The '.*_dataloader' does not have many workers")
@pytest.mark.parametrize("name", SAYS)
def test_an_example(name: str, capsys: pytest.CaptureFixture) -> None:
    pytest.importorskip(NEEDS.get(name, "fallow"))
    runpy.run_path(str(EXAMPLES / f"{name}.py"))
    assert re.search(SAYS[name], capsys.readouterr().out)
