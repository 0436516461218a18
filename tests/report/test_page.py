"""The base page: everything is escaped, nothing is fetched, and it is small."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from fallow.evaluate.metrics import CLASSES, NUMBERS
from fallow.report import pieces
from fallow.report.charts import Axis, Line, lines
from fallow.report.intervals import Bar, forest
from fallow.report.page import Page, Section, environment
from fallow.report.pictures import picture
from fallow.report.shown import PLAIN, Shown
from fallow.report.style import series
from fallow.report.svg import Scale, beside
from fallow.report.tags import tag
from tests.report.looks import EVIL, Elements, opens

NAMES = [EVIL, "\x00\x1b\udcff", "x" * 90, '"]]>&amp;', "Staffordshire bull terrier", "=1+1", "ρ", "b" * 30]


def drawings() -> list[Any]:
    curves = [
        Line(name, [(j, 0.1 * i + j) for j in range(5)], series(i), [(j - 1, j + 1) for j in range(5)])
        for i, name in enumerate(NAMES)
    ]
    bars = [Bar(name, 0.5 * i, 0.4 * i, 0.7 * i, [0.5 * i], "better", EVIL, 0.3) for i, name in enumerate(NAMES)]
    named = lines(EVIL, curves, Axis(EVIL, names=NAMES[:5]), Axis(EVIL))
    logarithmic = lines("", [Line("a", [(1, 1e-7), (10, 3e5)])], Axis("x", "log"), Axis("y", "log"))
    assert named is not None
    assert logarithmic is not None
    row = forest(bars, EVIL, EVIL, EVIL, shown=PLAIN)
    return [named, logarithmic, row, beside([named, logarithmic], 2, EVIL, EVIL, [(name, "plain") for name in NAMES])]


def everything() -> Page:
    """Every piece, with names that no one should have."""
    image = picture(np.zeros((1, 8, 8), np.uint8))
    assert image is not None
    body = [
        EVIL,
        pieces.paragraph(*NAMES, kind="note"),
        pieces.heading(3, EVIL, "evil"),
        pieces.table(EVIL, [EVIL, (EVIL, "reason"), ("image", "pick")], [[n, n, image.inline(n)] for n in NAMES]),
        pieces.table("nothing", ["a", "b"], []),
        pieces.box(EVIL, EVIL),
        pieces.code(EVIL, EVIL),
        pieces.bullets(NAMES),
        pieces.said("better", EVIL),
        pieces.figures(drawings()[:2]),
        *map(pieces.figure, drawings()),
    ]
    values = dict.fromkeys(NAMES, NAMES)
    sections = [Section(EVIL, body), Section("b" * 200, [])]
    files = dict.fromkeys(NAMES, EVIL)
    return Page(EVIL, EVIL, EVIL * 20, sections, NAMES, "\n".join(NAMES), NAMES, values, values, files)


def test_text_is_harmless() -> None:
    text = everything().render().decode()
    assert "<script" not in text
    assert "\x00" not in text
    assert "&lt;script&gt;" in text
    elements = Elements(text)
    assert not elements.named("script", "iframe", "object", "form")
    assert not [key for _, attributes, _ in elements.all for key in attributes if key.startswith("on")]


def test_plain_text_never_becomes_markup() -> None:
    for made in (tag("p", EVIL), tag("p", title=EVIL), pieces.box(EVIL, EVIL), pieces.box("a", caller=lambda: EVIL)):
        assert "<script" not in made


def test_nothing_is_fetched_and_nothing_runs() -> None:
    text = everything().render().decode()
    elements = Elements(text)
    policies = [meta["content"] for meta in elements.named("meta") if "http-equiv" in meta]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'; img-src data:"]
    links = [value or "" for _, a, _ in elements.all for key, value in a.items() if key in ("src", "href")]
    assert links
    assert all(link.startswith(("#", "data:")) for link in links)
    assert "url(" not in text
    assert "@import" not in text


def test_structure_for_screen_readers() -> None:
    elements = Elements(everything().render().decode())
    assert elements.named("html") == [{"lang": "en"}]
    levels = [int(name[1]) for name, _, _ in elements.all if re.fullmatch(r"h\d", name)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    assert len(elements.named("caption")) == len(elements.named("table")) == 2
    assert all(th.get("scope") in ("col", "row") for th in elements.named("th"))
    ids = [attributes["id"] for _, attributes, _ in elements.all if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {a["href"] for a in elements.named("a")} <= {f"#{name}" for name in ids}


def test_an_empty_page_is_small_and_the_same_twice() -> None:
    page = Page("a", "fallow b", "c.", [])
    assert len(page.render()) < 20_000
    assert page.render() == page.render()
    assert len(everything().render()) < 200_000


def test_a_template_may_not_miss_anything(tmp_path: Path) -> None:
    (tmp_path / "a.j2").write_text("{{ there }}{{ missing }}")
    with pytest.raises(Exception, match="missing"):
        environment(tmp_path).get_template("a.j2").render(there=1)
    (tmp_path / "b.j2").write_text("{{ there }}")
    made = environment(tmp_path).get_template("b.j2").render(there=EVIL + "\x00")
    assert made == "&lt;script&gt;alert(1)&lt;/script&gt;�"


def test_figures_are_files_of_their_own() -> None:
    for drawing in drawings():
        root = ElementTree.fromstring(drawing.file())
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert "var(--" not in drawing.file().decode()


# ---- charts


@pytest.mark.parametrize("kind", ["linear", "log", "symlog"])
def test_scales_keep_the_order_and_meet_the_ends(kind: str) -> None:
    scale = Scale(0.002, 37.0, 10.0, 300.0, kind)
    values = np.geomspace(0.002, 37.0, 50).tolist()
    places = [scale(value) for value in values]
    assert places == sorted(places)
    assert places[0] == pytest.approx(10)
    assert places[-1] == pytest.approx(300)
    assert all(scale.low <= t <= scale.high for t in scale.ticks() if kind != "symlog")


@pytest.mark.parametrize("kind", ["linear", "log", "symlog"])
@pytest.mark.parametrize("values", [[1.0], [1.0, 1.0], [1e-9, 2e-9], [0.55, 0.9], [-3.0, 0.0, 1e5], [3e-12, 7e11]])
def test_any_finite_curve_can_be_drawn(kind: str, values: list[float]) -> None:
    points = [*enumerate(values), (7, float("nan")), (8, float("inf"))]
    band = [(value - 1, float("inf")) for _, value in points]
    drawn = lines("a", [Line("a", points, band=band)], y=Axis(kind=kind))
    if drawn is None:
        assert kind == "log"
        return
    assert not re.search(r"\b(nan|inf)\b", str(drawn.inline()))


def test_nothing_to_draw() -> None:
    assert lines("a", [Line("a", []), Line("b", [(1, float("nan"))])]) is None


def test_a_metric_has_its_own_words_unit_and_direction() -> None:
    loss = Shown("loss", "log-loss", share=False, higher=False)
    assert loss.full(0.25) == "0.25"
    assert loss.difference(-0.125) == "−0.125"
    assert loss.points == "test log-loss"
    assert [words for _, words in loss.marks(Scale(-0.1, 0.2, 0, 1), 3, differences=True)] == [
        "−0.1",
        "0",
        "+0.1",
        "+0.2",
    ]
    assert Shown.of(CLASSES["accuracy"]) == Shown()
    assert Shown.of(NUMBERS["rmse"]) == Shown("rmse", NUMBERS["rmse"].words, share=False, higher=False)


# ---- in a browser


@pytest.mark.xdist_group("browser")
def test_every_piece_opens_in_a_browser(browser: Any, tmp_path: Path) -> None:
    opens(browser, everything().write(tmp_path / "page.html"))
