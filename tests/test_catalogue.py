"""Catalogue, public names, README and pages say the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import fallow
from fallow.methods import REGISTRY

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
TABLE = dict(re.findall(r"^\| (`.*?) \|.*\| \[.*\]\((.*)\) \|$", README, re.MULTILINE))  # names → page
PAGES = {name: page for names, page in TABLE.items() for name in re.findall(r"`([^`]+)`", names)}


@pytest.mark.parametrize("name", REGISTRY)
def test_a_method_is_everywhere(name: str) -> None:
    kind = REGISTRY[name]
    assert getattr(fallow, kind.__name__) is kind
    assert kind.__name__ in fallow.__all__
    assert kind.summary
    assert kind.__doc__
    page = ROOT / PAGES[name]
    assert name in page.stem or name in page.read_text("utf-8").lower()


def test_no_row_is_of_another_method() -> None:
    assert set(PAGES) == set(REGISTRY)


def test_the_readmes_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^):#]+)", README)
    assert "docs/compare.md" in links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_every_public_name_is_there() -> None:
    assert len(fallow.__all__) == len(set(fallow.__all__))
    for name in fallow.__all__:
        assert getattr(fallow, name) is not None
    assert set(fallow.__all__) <= set(dir(fallow))


@pytest.mark.parametrize("page", sorted({page for page in PAGES.values() if page.startswith("docs/methods/")}))
def test_a_card_has_its_headings(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    missing = [
        each for each in ("What", "When", "When not", "Settings", "Cost", "Evidence") if f"**{each}.**" not in text
    ]
    assert not missing
    assert re.search(r"\*\*Papers?\.\*\*", text)
    assert f"\n{Path(page).stem}\n" in (ROOT / "docs/methods/index.md").read_text("utf-8")
