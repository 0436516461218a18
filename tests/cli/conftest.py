from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from fallow.cli.main import main

UNDERSTOOD = re.compile(
    r"(.+; (scaled inside the model|not scaled); .*augmented.*|this takes .+|.+ epochs? in batches of .+"
    r"|Short trials .+)\n"
)


class Outcome(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def troubles(self) -> str:
        """Standard error without what was understood, what will be done, and how long it takes."""
        return UNDERSTOOD.sub("", self.err)

    def refused(self, code: int = 2) -> str:
        """The one line of an error: nothing else on either stream, and no traceback."""
        assert self.code == code, self
        assert self.out == ""
        err = self.troubles
        assert err.startswith("fallow: ")
        assert err.endswith("\n")
        assert err.count("\n") == 1, err
        return err.removeprefix("fallow: ").rstrip()

    def done(self) -> str:
        """What a verb printed; standard error is quiet where it is no terminal."""
        assert self.code == 0, self
        assert self.troubles == ""
        return self.out


Run = Callable[..., Outcome]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture, tmp_path: Path) -> Run:
    """The command line in this process: importing torch anew would take longer than the tests."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))  # a user's factory is found in the current directory

    def fallow(*words: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["fallow", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capfd.readouterr()
        return Outcome(int(end.value.code or 0), out, err)

    return fallow


SMALL = (
    "synthetic:n_test=16", "--train", 32, "--model", "mlp:hidden=4,4", "--epochs", 2, "--generations", 2,
    "--batch-size", 16,
)  # fmt: skip


@pytest.fixture
def train(run: Run) -> Run:
    """``fallow train`` on very little."""
    return lambda *words: run("train", *SMALL, *words)


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """A folder of two classes with eight images each."""
    from PIL import Image

    draw = np.random.default_rng(0)
    for label in ("cat", "dog"):
        (tmp_path / "images" / label).mkdir(parents=True)
        for i in range(8):
            pixels = draw.integers(0, 256, (8, 8), np.uint8)
            Image.fromarray(pixels).save(tmp_path / "images" / label / f"{i}.png")
    return tmp_path / "images"
