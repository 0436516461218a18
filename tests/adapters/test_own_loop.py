"""docs/own-loop.md: every block runs, is short, and where nothing is random does what fallow's own loop does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.adapters import small
from tests.adapters.small import EPOCHS, GENERATIONS, assert_close, own_loop, sgd

PAGE = (Path(__file__).parents[2] / "docs" / "own-loop.md").read_text("utf-8")
BLOCKS = dict(re.findall(r"^```python ?([\w-]*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
EXACT = {  # the blocks, and what fallow calls them; EMA's has no buffers to average
    "any": "lw+fam", "seal": "seal:scale=0.5", "sam": "sam", "fam": "fam:strength=0.01", "imp": "imp",
    "rescale": "rescale", "ema": "ema:decay=0.9",
}  # fmt: skip


def run(name: str, **given: Any) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(BLOCKS[""], names)
    names |= given
    exec(BLOCKS[name], names)
    return names


@pytest.mark.parametrize("name", [name for name in BLOCKS if name])
def test_a_block_is_short_and_trains(name: str) -> None:
    assert len([line for line in BLOCKS[name].splitlines() if line.strip()]) <= 15
    torch.manual_seed(0)
    trained = run(name)["model"]
    assert all(p.isfinite().all() for p in trained.parameters())


@pytest.mark.parametrize("name", EXACT)
def test_a_block_does_what_the_own_loop_does(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "ema":
        plain = small.Net.__init__

        def without_norm(self: small.Net) -> None:
            plain(self)
            self.one[1] = nn.Identity()

        monkeypatch.setattr(small.Net, "__init__", without_norm)
    net = small.network()
    given = {"loader": small.batches(), "generations": GENERATIONS, "epochs": EPOCHS}
    names = run(name, model=net, optimizer=sgd(net.parameters()), **given)
    found = names["average"] if name == "ema" else net
    assert_close(found.state_dict(), own_loop(EXACT[name]))
