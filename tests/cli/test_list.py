from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from fallow.cli import wrapper
from fallow.cli.wrapper import answer
from fallow.data import BUNDLED
from fallow.methods import REGISTRY
from fallow.models import MODELS
from tests.cli.conftest import Run

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


def test_json_is_what_every_reader_takes(capsys: pytest.CaptureFixture[str]) -> None:
    answer({"loss": math.inf, "name": "é"}, True, lambda: None)
    assert capsys.readouterr().out == '{"loss": null, "name": "é"}\n'
    verbs = Path(wrapper.__file__).parent.glob("*.py")
    assert not [path.name for path in verbs if "json.dumps" in path.read_text()]  # all verbs print it by `answer`
