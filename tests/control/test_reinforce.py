"""Policies are meta-trained by the one loop: they learn, stop and resume to the bit, and are drawn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import fallow
from fallow.base.errors import RequestError
from fallow.cli.main import main
from fallow.core import loop
from fallow.training.control import ControlResult, reinforce
from tests.control.small import FEW, navigation

SPECS = ["maml", "maml:order=1,steps=2", "l2f", "meta-sgd", "anil", "maml-ppo+l2f:gamma=constant"]


class Killed(BaseException):
    pass


def train(out: Path | None, spec: str, resume: bool = False) -> ControlResult:
    return reinforce("mlp:hidden=6", navigation(), spec, out=out, resume=resume, checkpoint_every=0, seed=1, **FEW)


@pytest.mark.parametrize("spec", SPECS)
def test_resumes_to_the_bit(spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = train(tmp_path / "whole", spec)
    assert len(whole.returns()) == 3
    monkeypatch.setattr(loop, "LIVE", 0.0)
    look, seen = loop.look, 0

    def stopping(ctx: fallow.core.context.Context) -> float:
        nonlocal seen
        seen += 1
        wake = look(ctx)
        if seen == 3:
            raise Killed
        return wake

    monkeypatch.setattr(loop, "look", stopping)
    with pytest.raises(Killed):
        train(tmp_path / "stopped", spec)
    monkeypatch.setattr(loop, "look", look)
    again = train(tmp_path / "stopped", spec, resume=True)
    assert again.tested == whole.tested
    for name in ("last.safetensors", "best.safetensors"):
        one, two = load_file(tmp_path / "whole" / name), load_file(tmp_path / "stopped" / name)
        assert all(torch.equal(one[key], two[key]) for key in one)
    strip = [[{k: v for k, v in row.items() if k != "seconds"} for row in each.history] for each in (whole, again)]
    assert strip[0] == strip[1]
    assert train(tmp_path / "stopped", spec, resume=True).tested == whole.tested  # a finished run is only read


def test_a_policy_learns_to_learn_where_the_goal_is() -> None:
    place = navigation(shots=10, horizon=20, val_tasks=10, test_tasks=10)
    result = reinforce("mlp:hidden=16", place, "maml", iterations=16, every=4, meta_batch=10, test_steps=1)
    assert result.history[-1]["train_return"] > 0.8 * result.history[0]["train_return"]  # both are below 0
    assert all(0 < row["kl"] <= 0.01 for row in result.history)
    before, after = result.returns()
    assert after.mean > before.mean


def test_methods_meet_the_same_tasks_and_chances() -> None:
    first, second = (train(None, spec).history[0]["train_return_before"] for spec in ("maml", "maml:max_kl=0.02"))
    one, two = (reinforce("mlp:hidden=6", navigation(), spec, **(FEW | {"iterations": 1, "every": 1}))
                .history[0]["train_return_before"] for spec in ("maml", "maml-ppo"))  # fmt: skip
    assert first != second  # after the first iteration they are elsewhere
    assert one == two


def test_bad_requests_say_what_would_be_right() -> None:
    def asked(method: str | fallow.Method, **options: object) -> None:
        reinforce("mlp:hidden=4", navigation(), method, **(FEW | options))

    with pytest.raises(RequestError, match="maml does not learn to act: take maml-trpo or maml-ppo"):
        asked(fallow.MAML())
    with pytest.raises(RequestError, match="do not go together: both decide which steps' losses count"):
        asked("multi-step-loss")
    with pytest.raises(RequestError, match="iterations is 0"):
        asked("maml", iterations=0)
    with pytest.raises(RequestError, match="max_kl is 0"):
        asked("maml:max_kl=0")
    with pytest.raises(RequestError, match=r"no finite density after 1 inner steps: lower its rate \(1e\+06\)"):
        asked("maml:rate=1e6")
    with pytest.raises(RequestError, match="maml-trpo learns to act: it needs an environment"):
        fallow.fewshot(None, fallow.Sinusoid(), "maml-trpo")
    with pytest.raises(RequestError, match=r"cannot take observations of shape \(2,\)"):
        reinforce(torch.nn.Linear(3, 2), navigation(), "maml", **FEW)
    with pytest.raises(RequestError, match=r"cannot take observations of shape \(2,\)"):
        reinforce(torch.nn.Linear(2, 2).double(), navigation(), "maml", **FEW)


def typed(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["fallow", "fewshot", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code  # type: ignore[return-value]


def test_the_command_trains_judges_in_four_places_and_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    few = ["--iterations", "2", "--every", "1", "--shots", "2", "--meta-batch", "2", "--val-tasks", "2"]
    asked = ["navigation:horizon=5", "--method", "l2f", "--rate", "0.05", "--episodes", "3", *few, "--out", str(out)]
    assert typed(monkeypatch, *asked) == 0
    said = capsys.readouterr().out
    assert (
        "navigation: 2 trajectories of 5 steps a task; mlp:hidden=100,100,init=xavier, maml-trpo:rate=0.05+l2f" in said
    )
    assert "far goals and starts" in said
    assert "95 % interval over 3 test tasks" in said
    page = (out / "fewshot.html").read_text("utf-8")
    for words in ("gets a return of", "Before and after", "other starts", "--method l2f"):
        assert words in page
    for name in ("steps", "training", "trajectories"):
        assert (out / f"{name}.svg").read_text().startswith("<?xml")
    assert typed(monkeypatch, *asked, "--resume", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["test"]["places"]["as in training"]) == 5


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["navigation", "--ways", "3"], "navigation is an environment and has no ways"),
        (["navigation:clp=3"], "did you mean 'clip'"),
        (["navigation", "--method", "seal"], "seal does not learn to act"),
        (["navigation", "--resume"], "--resume needs --out"),
        (["navigation", "--episodes", "0"], "episodes is 0"),
    ],
)
def test_a_wrong_request_is_one_line_and_exit_2(
    arguments: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    assert typed(monkeypatch, *arguments) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
