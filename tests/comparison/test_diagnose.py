from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fallow
from fallow.base.errors import RequestError
from fallow.comparison import Plan, execute


def test_the_report_says_why_if_asked(tmp_path: Path) -> None:
    plan = Plan(
        data=("digits",), methods=("ema",), models=("mlp:hidden=4,4",), seeds=1, train=60,
        settings={"generations": 2, "epochs": 1},
    )  # fmt: skip
    plain = execute(plan, tmp_path, workers=1)
    assert 'id="why"' not in (tmp_path / "report.html").read_text()
    heard: list[str] = []
    execute(plan, tmp_path, workers=1, diagnose=True, diagnosing=lambda now, done: heard.append(now))
    page = (tmp_path / "report.html").read_text()
    assert 'id="why"' in page
    assert "mean prediction depth" in page
    assert page.count("<svg") > 7
    assert {name.rpartition(" ")[2] for name in heard} == set(plain.plan.methods)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"diagnose": True}, "holds texts, and diagnose measures networks of numbers and pictures: leave diagnose out"),
        ({"transfer_to": "digits"}, "holds texts, whose features are not transferred: leave transfer_to out"),
    ],
)
def test_what_texts_have_not_is_refused_before_anything_is_trained(asked, says, tmp_path: Path) -> None:
    texts = np.array([f"is this number {i} or not" for i in range(40)])
    with pytest.raises(RequestError, match=says):
        fallow.compare((texts, np.arange(40) % 2), "ema", seeds=1, workers=1, out=tmp_path, **asked)
    assert not list(tmp_path.glob("runs/*"))
    with pytest.raises(RequestError, match="has tasks to learn, and diagnose measures"):
        execute(Plan(data=("sinusoid",), methods=("maml",), seeds=1), tmp_path / "tasks", workers=1, diagnose=True)
