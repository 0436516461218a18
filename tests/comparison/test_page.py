from __future__ import annotations

import csv
import dataclasses
import itertools
import json
import math
import random
import re
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from fallow.comparison.best import Best, Mistake
from fallow.comparison.cost import spread
from fallow.comparison.curves import read
from fallow.comparison.findings import Findings
from fallow.comparison.findings import find as judge
from fallow.comparison.page import About, write
from fallow.comparison.race import ACCURACY, Rules, Runner
from fallow.evaluate.race import looks_until
from fallow.report.shown import Shown
from fallow.report.style import DARK, LIGHT
from tests.report.looks import EVIL, Elements, opens, plain

METHODS = {  # mean accuracy, generations, epochs, passes a step
    "normal": (0.945, 1, 16, 1), "long": (0.953, 1, 64, 1), "restart": (0.956, 4, 16, 1), "llf": (0.975, 4, 16, 1),
    "lw": (0.962, 4, 16, 1), "seal": (0.957, 4, 16, 1), "sam": (0.955, 1, 32, 2), "mixup": (0.958, 1, 64, 1),
    "dropout": (0.930, 1, 64, 1),
}  # fmt: skip
DIGITS = {
    "sizes": {"train": 1257, "val": 180, "test": 360},
    "classes": list("0123456789"),
    "target": {"kind": "classes", "names": list("0123456789")},
    "shape": [1, 8, 8],
}
ABOUT = About(
    "Which method helps on digits?", "fallow compare digits --seeds 5", {"epochs": 16, "weights": None},
    {"torch": "2.13.0"}, ["2 images could not be read."], "passes", 203.4,
)  # fmt: skip


def find(found: list[Runner], described: Any, overlaps: Any, budget: str = "passes") -> Findings:
    """Judged by the looks of as many seeds as there are."""
    seeds = len({o.seed for o in found})
    return judge(found, described, overlaps, budget, ACCURACY, Rules(looks_until(max(2, seeds)), max(1, seeds)))


def outcomes(
    folder: Path, data: str = "digits", model: str = "scnn", seeds: int = 5, shift: float = 0.0
) -> list[Runner]:
    """Made-up runs with their curves on disk; one of them failed."""
    draw = random.Random(f"{data} {model}")
    found = []
    for method, (mean, generations, epochs, each) in METHODS.items():
        for seed in range(seeds):
            place = f"runs/{model}-{len(found)}"
            if (method, seed) == ("seal", 3):
                found.append(Runner(data, model, method, seed, place, reason="the loss became NaN in epoch 3"))
                continue
            accuracy = mean - shift + random.Random(seed).gauss(0, 0.006) + draw.gauss(0, 0.002)
            curve(folder / place, generations, epochs, accuracy)
            steps = generations * epochs * 45
            done = Runner(data, model, method, seed, place, None, accuracy, accuracy + 0.001, steps / 500, steps)
            fitted = (1.0,) * generations if method != "llf" else (1.0, 0.5, 0.9, 0.75 + seed / 100)
            found.append(dataclasses.replace(done, passes=float(steps * each), training=fitted))
    return found


def curve(folder: Path, generations: int, epochs: int, end: float) -> None:
    folder.mkdir(parents=True)
    rows = [
        {"generation": g, "epoch": e, "phase": "descent", "val_accuracy": end - 0.8 * math.exp(-e / 2)}
        for g in range(1, generations + 1)
        for e in range(1, epochs + 1)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def best(findings: Findings, classes: list[str], shape: tuple[int, ...] = (1, 8, 8)) -> Best:
    n, draw = len(classes), np.random.default_rng(0)
    confusion = np.where(draw.random((n, n)) < 0.1, 3, 0)
    np.fill_diagonal(confusion, 30)
    images = draw.integers(0, 256, (24, *shape), dtype=np.uint8)
    mistakes = [Mistake(image, classes[i % n], classes[(i + 1) % n], 0.9) for i, image in enumerate(images)]
    assert findings.winner is not None
    return Best(
        findings.winner,
        Path("out dir/best/best.safetensors"),
        "a = 1\nb = 2\nc = 3",
        classes,
        confusion.tolist(),
        mistakes,
    )


def report(folder: Path, found: list[Runner], described: dict[str, Any] | None = None, overlap: float = 0.25) -> str:
    names = {o.data for o in found}
    findings = find(found, dict.fromkeys(names, described or DIGITS), dict.fromkeys(names, overlap))
    winner = best(findings, (described or DIGITS)["classes"]) if findings.winner else None
    return write(folder, findings, found, winner, ABOUT).read_text("utf-8")


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The default comparison: 9 methods × 5 seeds × 64 epochs on digits."""
    folder = tmp_path_factory.mktemp("usual")
    report(folder, outcomes(folder))
    return folder


@pytest.fixture(scope="module")
def evil(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Several settings, and names that no one should have: markup, formulas, control characters, no spaces."""
    folder = tmp_path_factory.mktemp("evil")
    first = outcomes(folder, data=EVIL, seeds=4)
    renamed = {"lw": f"{EVIL}{EVIL}", "mixup": "my.module:a_method_with_a_very_long_name=0.3", "sam": "=1+1"}
    first = [dataclasses.replace(o, method=renamed.get(o.method, o.method)) for o in first]
    second = [dataclasses.replace(o, data="x" * 90, model='a"b', test=(o.test or 0) - 0.1) for o in first]
    classes = [EVIL, "=HYPERLINK()", "\x00\x1b\udcff", "y" * 80, "]]>&amp;", "Staffordshire bull terrier"]
    report(folder, first + second, DIGITS | {"classes": classes}, overlap=0.0)
    return folder


# ---- the page as text


@pytest.mark.parametrize("which", ["usual", "evil"])
def test_structure_for_screen_readers(which: str, request: pytest.FixtureRequest) -> None:
    elements = Elements((request.getfixturevalue(which) / "report.html").read_text("utf-8"))
    assert elements.named("html") == [{"lang": "en"}]
    levels = [int(tag[1]) for tag, _, _ in elements.all if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    assert len(elements.named("caption")) == len(elements.named("table")) > 4
    assert all(th.get("scope") in ("col", "row") for th in elements.named("th"))
    outer = [attributes for tag, attributes, inside in elements.all if tag == "svg" and "svg" not in inside]
    assert all(svg.get("aria-hidden") == "true" or (svg["role"] == "img" and svg["aria-label"]) for svg in outer)
    assert sum(svg.get("role") == "img" for svg in outer) >= 12  # curves, cost, confusion
    images = elements.named("img")
    assert len(images) == 24
    assert all(re.match(r"true .+, predicted .+", image["alt"] or "", re.DOTALL) for image in images)
    ids = [attributes["id"] for _, attributes, _ in elements.all if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {a["href"] for a in elements.named("a")} <= {f"#{name}" for name in ids}


def test_text_from_the_data_is_harmless(evil: Path) -> None:
    page = (evil / "report.html").read_text("utf-8")
    assert "<script" not in page
    assert "\x00" not in page
    assert "&lt;script&gt;" in page
    assert not Elements(page).named("script")
    for figure in (evil / "figures").iterdir():
        assert not list(ElementTree.parse(figure).iter("{http://www.w3.org/2000/svg}script"))
    cells = [cell for line in csv.reader((evil / "results.csv").read_text("utf-8").splitlines()) for cell in line]
    assert "'=1+1" in cells
    assert not [cell for cell in cells if cell.startswith(("=", "+", "@"))]


def test_nothing_is_fetched(usual: Path) -> None:
    elements = Elements((usual / "report.html").read_text("utf-8"))
    links = [value or "" for _, a, _ in elements.all for key, value in a.items() if key in ("src", "href")]
    assert all(link.startswith(("#", "data:")) for link in links)
    assert "url(" not in (usual / "report.html").read_text("utf-8")


def test_size_and_time_of_the_default(tmp_path: Path) -> None:
    found = outcomes(tmp_path)
    findings = find(found, {"digits": DIGITS}, {"digits": 0.25})
    winner = best(findings, [f"class {i}" for i in range(20)], shape=(3, 224, 224))  # larger than digits
    start = time.process_time()  # other work on the machine is not its fault
    path = write(tmp_path, findings, found, winner, ABOUT)
    assert time.process_time() - start < 3
    assert path == tmp_path / "report.html"
    assert path.stat().st_size <= 2_000_000


def test_says_what_was_found(usual: Path) -> None:
    page = plain((usual / "report.html").read_text("utf-8"))
    assert "llf (+" in page
    assert "▲ better" in page
    assert "▼ worse" in page
    assert "● undecided" in page
    assert "beats long and restart at equal compute" in page
    assert "44 of 45 runs done 1 failed" in page
    assert "seal 3 the loss became NaN in epoch 3" in page
    assert "llf did not relearn in 5 of 5 runs: generation 2 ended at 50.0 % on training examples" in page
    assert "corrected resampled t-test" in page
    assert "test to training pool here: 0.25" in page
    assert "restart is the best control: it was chosen on validation accuracy" in page
    assert "normal is ordinary training and spends only one generation’s compute" in page
    assert "fallow predict 'out dir' image.png" in page.replace("&#39;", "'")
    assert "a = 1 b = 2 c = 3" in page
    assert "2 images could not be read." in page
    assert "fallow compare digits --seeds 5" in page
    assert "weights none" in page


def test_numbers_of_the_page_are_those_of_the_findings(usual: Path, tmp_path: Path) -> None:
    setting = find(outcomes(tmp_path), {"digits": DIGITS}, {"digits": 0.25}).settings[0]
    page = plain((usual / "report.html").read_text("utf-8"))
    row = setting.row("llf")
    assert row.estimate is not None
    assert row.to_control is not None
    assert row.estimate.low is not None
    assert row.estimate.high is not None
    mean, low, high = (f"{100 * v:.1f}" for v in (row.estimate.mean, row.estimate.low, row.estimate.high))
    assert f"llf ▲ better {mean} {low} – {high}" in page
    d = row.to_control.difference
    assert f"llf ▲ better {100 * d.mean:+.1f} {100 * d.low:+.1f} to {100 * d.high:+.1f}" in page
    assert f"{100 * d.smallest:.1f}" in page


# ---- several settings, and comparisons that are not complete


def test_several_settings(evil: Path) -> None:
    page = plain((evil / "report.html").read_text("utf-8"))
    assert "With fewer than 5 settings the exact binomial test cannot reach 5 %" in page
    assert "p = 0.25" in page
    assert "column outperforms" in page
    assert "is best in" not in page  # no tree on two settings
    assert "paired t-test, two-sided, over seeds on one test split" in page
    names = sorted(path.name for path in (evil / "figures").iterdir())
    assert len(names) == 2 * 6 + 1
    assert all(re.fullmatch(r"[A-Za-z0-9.-]+", name) for name in names)


def test_marks_of_the_matrix(tmp_path: Path) -> None:
    found = [o for i in range(12) for o in outcomes(tmp_path / str(i), model=f"m{i}", seeds=2, shift=0.01 * i)]
    page = plain(report(tmp_path, found))
    assert "cannot reach" not in page
    row = re.search(r"dropout ((?:[★○–] )+)", page[page.index("Row / column") :])
    assert row is not None
    assert "○" in row[1]  # llf wins all twelve


@pytest.mark.parametrize("seeds", [1, 2])
def test_few_seeds(seeds: int, tmp_path: Path) -> None:
    page = plain(report(tmp_path, outcomes(tmp_path, seeds=seeds)))
    assert ("There is nothing to test yet" in page) == (seeds == 1)
    assert ("not tested" in page) == (seeds == 1)
    assert ("One seed has no interval" in page) == (seeds == 1)


def test_equal_steps_are_not_called_equal_compute(tmp_path: Path) -> None:
    found = outcomes(tmp_path)
    findings = find(found, {"digits": DIGITS}, {"digits": 0.25}, "steps")
    about = dataclasses.replace(ABOUT, budget="steps")
    page = plain(write(tmp_path, findings, found, None, about).read_text("utf-8"))
    assert "Against restart, at equal steps" in page
    assert "equal compute" not in page
    assert "The best model" not in page


def test_no_control(tmp_path: Path) -> None:
    page = plain(report(tmp_path, [o for o in outcomes(tmp_path) if o.method not in ("long", "restart")]))
    assert "There is no control of equal compute to compare with yet" in page
    assert "Points vs. normal" in page


def test_runs_missing_and_failed(tmp_path: Path) -> None:
    found = [o for o in outcomes(tmp_path) if (o.method, o.seed) != ("lw", 4) and o.method != "seal"]
    found += [Runner("digits", "scnn", "seal", seed, "x", reason=f"it broke: {EVIL}") for seed in range(5)]
    page = plain(report(tmp_path, found))
    assert "39 of 44 runs done" in page
    assert "4 of 5" in page
    assert "seal × failed – –" in page
    assert "seal 0, 1, 2, 3, 4 it broke: &lt;script&gt;" in page


def test_nothing_done(tmp_path: Path) -> None:
    failed = [Runner("digits", "scnn", method, 0, "x", reason="it broke") for method in ("normal", "long", "llf")]
    assert "0 of 3 runs done" in plain(report(tmp_path, failed))
    (tmp_path / "empty").mkdir()
    assert "Nothing has been compared yet." in report(tmp_path / "empty", [])


def test_no_curves_and_many_classes(tmp_path: Path) -> None:
    found = [dataclasses.replace(o, folder="nowhere") for o in outcomes(tmp_path)]
    page = report(tmp_path, found, DIGITS | {"classes": [f"class {i}" for i in range(21)], "shape": [64]})
    assert "Learning curves" not in page
    assert "Confusion of" not in page
    assert "Most frequent confusions" in page
    assert "fallow predict" not in page  # no images
    assert not list((tmp_path / "figures").glob("c[uo][rn]*.svg"))


def test_another_metric_is_named_everywhere(tmp_path: Path) -> None:
    rmse = Shown("rmse", "RMSE", share=False, higher=False)
    found = outcomes(tmp_path)
    for o in found:
        if o.reason is None:
            path = tmp_path / o.folder / "metrics.jsonl"
            path.write_text(path.read_text().replace("val_accuracy", "val_rmse"))
    findings = find(found, {"digits": DIGITS}, {"digits": 0.25})
    whole = write(tmp_path, findings, found, best(findings, DIGITS["classes"]), ABOUT, shown=rmse).read_text("utf-8")
    page = plain(whole)
    assert "accuracy" not in whole.lower()
    assert "left of 0 the method is ahead" in page
    assert "chosen on validation RMSE" in page
    assert "RMSE against cost" in page
    assert "Learning curves" in page
    row = findings.settings[0].row("llf")
    assert row.estimate is not None
    assert f"llf ▲ better {row.estimate.mean:.4g}" in page


# ---- files


def test_results_keep_every_digit_in_a_stable_order(usual: Path, tmp_path: Path) -> None:
    found = outcomes(tmp_path)
    random.Random(0).shuffle(found)
    report(tmp_path, found)
    with (tmp_path / "results.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0])[-1] == "seconds"
    known = {(o.method, o.seed): o for o in found}
    assert [(r["method"], int(r["seed"])) for r in rows] == sorted(known)
    for row in rows:
        o = known[row["method"], int(row["seed"])]
        assert row["status"] == ("failed" if o.reason else "done")
        assert row["reason"] == (o.reason or "")
        for key in ("test_accuracy", "val_accuracy", "passes", "seconds"):
            assert (float(row[key]) if row[key] else None) == getattr(o, key.removesuffix("_accuracy"))
        assert int(row["steps"]) == o.steps
        assert row["train_accuracy"] == (repr(o.training[-1]) if o.training else "")
    numbers = [{k: v for k, v in row.items() if k != "folder"} for row in rows]
    with (usual / "results.csv").open(encoding="utf-8", newline="") as file:
        assert [{k: v for k, v in row.items() if k != "folder"} for row in csv.DictReader(file)] == numbers


def test_summary_keeps_every_digit(usual: Path, tmp_path: Path) -> None:
    setting = find(outcomes(tmp_path), {"digits": DIGITS}, {"digits": 0.25}).settings[0]
    with (usual / "summary.csv").open(encoding="utf-8", newline="") as file:
        rows = {row["method"]: row for row in csv.DictReader(file)}
    assert list(rows) == [row.method for row in setting.rows]
    for row in setting.rows:
        assert row.estimate is not None
        assert float(rows[row.method]["mean"]) == row.estimate.mean
        assert rows[row.method]["verdict"] == row.verdict
        if row.to_control is None:
            assert rows[row.method]["control_p"] == ""
        else:
            holm = rows[row.method]["control_p_holm"]
            assert (float(holm) if holm else None) == row.to_control.corrected
            assert float(rows[row.method]["control_smallest"]) == row.to_control.difference.smallest


@pytest.mark.parametrize("which", ["usual", "evil"])
def test_figures_are_valid(which: str, request: pytest.FixtureRequest) -> None:
    figures = list((request.getfixturevalue(which) / "figures").iterdir())
    assert {"confusion.svg"} < {path.name for path in figures}
    for path in figures:
        root = ElementTree.parse(path).getroot()
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert root.findtext("{http://www.w3.org/2000/svg}title")
        assert "var(--" not in path.read_text("utf-8")  # many programs know no custom properties


def test_the_same_bytes_twice(tmp_path: Path) -> None:
    found = outcomes(tmp_path)
    seen = []
    for order in (found, found[::-1]):
        findings = find(found, {"digits": DIGITS}, {"digits": 0.25})
        write(tmp_path, findings, order, best(findings, DIGITS["classes"]), ABOUT)  # type: ignore[arg-type]
        files = [tmp_path / "report.html", tmp_path / "results.csv", tmp_path / "summary.csv"]
        seen.append([path.read_bytes() for path in (*files, *sorted((tmp_path / "figures").iterdir()))])
    assert seen[0] == seen[1]


def test_old_figures_go_and_others_stay(tmp_path: Path) -> None:
    (tmp_path / "figures").mkdir()
    for name in ("3-digits-mlp-ranking.svg", "mine.svg"):
        (tmp_path / "figures" / name).write_text("old")
    report(tmp_path, outcomes(tmp_path))
    assert not (tmp_path / "figures" / "3-digits-mlp-ranking.svg").exists()
    assert (tmp_path / "figures" / "mine.svg").read_text() == "old"


# ---- the pieces


def test_curves_align_generations_that_end_early(tmp_path: Path) -> None:
    rows = {"a": [(1, 1, 0.5), (1, 2, 0.7), (2, 1, 0.6)], "b": [(1, 1, 0.7), (2, 1, 0.8)]}
    for name, epochs in rows.items():
        (tmp_path / name).mkdir()
        lines = [json.dumps({"generation": g, "epoch": e, "val_accuracy": v}) for g, e, v in epochs]
        (tmp_path / name / "metrics.jsonl").write_text("\n".join([*lines, '{"generation": 2, "epo']))
    runs = [Runner("d", "m", "x", seed, name) for seed, name in enumerate("abc")]
    found = read(tmp_path, runs)
    assert found is not None
    assert found.edges == [2, 3]
    assert [point.epoch for point in found.points] == [1, 2, 3]
    assert [point.mean for point in found.points] == pytest.approx([0.6, 0.7, 0.7])
    assert found.points[2][2:] == (0.6, 0.8)
    assert found.seeds == 2
    assert read(tmp_path, [Runner("d", "m", "x", 0, "a", reason="failed")]) is None


def test_long_curves_are_thinned_but_keep_their_edges(tmp_path: Path) -> None:
    curve(tmp_path / "run", 3, 1001, 0.9)
    found = read(tmp_path, [Runner("d", "m", "x", 0, "run")])
    assert found is not None
    assert len(found.points) < 260
    assert {1, 1001, 1002, 2002, 2003, 3003} <= {point.epoch for point in found.points}


def test_labels_do_not_touch() -> None:
    wanted = sorted(random.Random(0).uniform(0, 100) for _ in range(9))
    placed = spread(wanted, 11.0, 0.0, 100.0)
    assert all(b - a >= 11.0 - 1e-9 for a, b in itertools.pairwise(placed))
    assert placed[0] >= 0
    assert placed[-1] <= 100
    assert spread([10.0, 50.0], 11.0, 0.0, 100.0) == [10.0, 50.0]


# ---- in a browser


@pytest.mark.xdist_group("browser")  # one start serves all
@pytest.mark.parametrize("which", ["usual", "evil"])
def test_opens_in_a_browser(which: str, browser: Any, request: pytest.FixtureRequest) -> None:
    opens(browser, request.getfixturevalue(which) / "report.html")


@pytest.mark.xdist_group("browser")
@pytest.mark.parametrize(("scheme", "palette"), [("light", LIGHT), ("dark", DARK)])
def test_figures_open_in_a_browser(scheme: str, palette: dict[str, str], usual: Path, browser: Any) -> None:
    page = browser.new_page(color_scheme=scheme)
    page.goto((usual / "figures" / "ranking.svg").as_uri())
    ink = page.evaluate("getComputedStyle(document.querySelector('text')).fill")
    ground = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    page.close()
    for found, wanted in ((ink, palette["ink"]), (ground, palette["paper"])):
        assert found == f"rgb({', '.join(str(int(wanted[i : i + 2], 16)) for i in (1, 3, 5))})"


def test_numbers_to_predict_are_no_classes(tmp_path: Path) -> None:
    numbers = {"classes": ["kilos", "girth"], "target": {"kind": "numbers", "names": ["kilos", "girth"]}, "shape": [3]}
    page = report(tmp_path, outcomes(tmp_path), DIGITS | numbers)
    assert "2 numbers to predict, 3." in " ".join(plain(page).split())
