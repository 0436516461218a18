from __future__ import annotations

import json
import math
import os
import re
from pathlib import Path

import pytest
import shellingham

from fallow.cli import wrapper
from fallow.cli.main import app
from fallow.cli.wrapper import answer
from fallow.data import BUNDLED
from fallow.methods import REGISTRY
from fallow.models import MODELS
from tests.cli.conftest import Run

VERBS = {command.name for command in app.registered_commands}
KNOWN = {"methods": REGISTRY, "models": MODELS, "data": BUNDLED}


@pytest.mark.parametrize("what", KNOWN)
def test_lists_the_catalogue(what: str, run: Run) -> None:
    words = run("list", what).done()
    starts = [line.split("  ")[0] for line in words.splitlines() if not line.startswith(" ")]
    assert starts == list(KNOWN[what])
    found = json.loads(run("list", what, "--json").done())
    assert list(found) == [what]
    assert list(found[what]) == list(KNOWN[what])
    assert all(entry["summary"] for entry in found[what].values())


def test_methods_show_their_settings(run: Run) -> None:
    assert "settings: probability=0.1, scale=1.0" in run("list", "methods").done()


def test_help(run: Run) -> None:
    words = run("--help").done()
    assert "train" in words
    assert "list" in words
    assert run().done() == words
    assert "--checkpoint-every" in run("train", "--help").done()


COMPLETE = {  # what a shell gives and asks for when someone presses Tab
    "bash": {"COMP_WORDS": "fallow {}", "COMP_CWORD": "1"},
    "zsh": {"_TYPER_COMPLETE_ARGS": "fallow {}"},
    "fish": {"_TYPER_COMPLETE_ARGS": "fallow {}", "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
}


@pytest.mark.parametrize("shell", COMPLETE)
def test_completion(shell: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script asks fallow itself, which answers with the verbs that begin so."""
    monkeypatch.setattr(shellingham, "detect_shell", lambda: (shell, f"/bin/{shell}"))
    script = run("--show-completion", "--quiet").done()
    assert f"_FALLOW_COMPLETE=complete_{shell}" in script
    monkeypatch.setenv("HOME", os.getcwd())
    kept = Path(run("--install-completion").done().splitlines()[0].partition("installed in ")[2])
    assert kept.read_text().strip() == script.strip()

    def completed(begun: str) -> set[str]:
        for key, value in COMPLETE[shell].items():
            monkeypatch.setenv(key, value.format(begun))
        return VERBS & set(re.findall(r"^(?:_arguments .*\(\()?\"?(\w+)", run().done(), re.MULTILINE))

    monkeypatch.setenv("_FALLOW_COMPLETE", f"complete_{shell}")
    assert completed("") == VERBS
    assert completed("tr") == {"train", "transfer"}


def test_json_is_what_every_reader_takes(capsys: pytest.CaptureFixture[str]) -> None:
    answer({"loss": math.inf, "name": "é"}, True, lambda: None)
    assert capsys.readouterr().out == '{"loss": null, "name": "é"}\n'
    verbs = Path(wrapper.__file__).parent.glob("*.py")
    assert not [path.name for path in verbs if "json.dumps" in path.read_text()]  # all verbs print it by `answer`
