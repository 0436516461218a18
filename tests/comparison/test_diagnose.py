from __future__ import annotations

from pathlib import Path

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
