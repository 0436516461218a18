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
}


@pytest.mark.parametrize("name", SAYS)
def test_an_example(name: str, capsys: pytest.CaptureFixture) -> None:
    runpy.run_path(str(EXAMPLES / f"{name}.py"))
    assert re.search(SAYS[name], capsys.readouterr().out)
