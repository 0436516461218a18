"""Whoever is named with a year is in docs/references.md, and every method says where it comes from."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fallow.core.method import Method
from fallow.methods import METHODS

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "references.md").read_text("utf-8")
NAMED = re.compile(
    r"([A-Z][\w-]+)(?: et al\.|,? (?:and|&) [A-Z][\w-]+|(?:, [A-Z][\w-]+)+,? and [A-Z][\w-]+)?,? \(?((?:19|20)\d\d)\b"
)
NO_NAMES = {"Copyright", "Python", "ICML", "CVPR", "ICLR", "NeurIPS", "ICPR", "JMLR"}


def entries() -> list[str]:
    return [line for line in PAGE.splitlines() if line.startswith(("- ", "| "))]


def texts() -> list[Path]:
    pages = [path for path in (ROOT / "docs").rglob("*.md") if path.name != "references.md"]
    return [*(ROOT / "src").rglob("*.py"), *pages, ROOT / "README.md"]


def test_whoever_is_named_is_listed() -> None:
    missing = {
        f"{name} {year} ({path.name})"
        for path in texts()
        for name, year in NAMED.findall(path.read_text("utf-8"))
        if name not in NO_NAMES and not any(name in entry and year in entry for entry in entries())
    }
    assert not missing


def test_every_entry_has_a_title_a_year_and_a_number_that_can_be_one() -> None:
    for entry in entries():
        if entry.startswith(("| here", "|---")):
            continue
        assert re.search(r"\*.+\*", entry), entry
        assert re.search(r"\b(19|20)\d\d\b", entry), entry
    numbers = re.findall(r"arXiv:(\S+)", PAGE)
    assert len(numbers) == len(set(numbers))
    assert all(re.fullmatch(r"\d{4}\.\d{4,5}\.?", number) for number in numbers)


SOURCE = r"[A-Z][\w-]+( et al\.| & \w+)?,? (19|20)\d\d|\b(LW|SEAL)\b"
PLACE = r"\b(equations?|algorithm|section|appendix|table) [\dA-F]"


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_every_method_says_where_it_comes_from(method: type[Method]) -> None:
    """Who, and where to look it up: what help(fallow.SAM) shows."""
    said = " ".join((method.__doc__ or "").split())
    assert re.search(SOURCE, said), said
    assert re.search(PLACE, said), said
