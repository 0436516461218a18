"""The page of evidence is what its script makes of the stored results, and every claim has a command that exists."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer

from fallow.atlas import rows
from fallow.atlas.findings import Atlas
from fallow.base.errors import RequestError
from fallow.cli.main import app
from fallow.comparison.plan import split_names
from fallow.methods import build as method
from fallow.reproduce import TABLES, stored
from fallow.reproduce.page import write
from fallow.reproduce.table import Cell, Table
from tests.atlas.test_findings import world

ROOT = Path(__file__).parents[1]
VERBS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("evidence_build", ROOT / "docs" / "evidence" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


build = load()
FOUND = build.claims()
CLAIMS = FOUND["claim"]


def commands() -> list[str]:
    inside = [text for claim in CLAIMS for text in re.findall(r"(?:^|: )(fallow [^;]*)", claim["why"])]
    spoken = [text for text in inside if " of fallow " not in text and not text.startswith("fallow train with")]
    return [*dict.fromkeys([claim["command"] for claim in CLAIMS] + spoken)]


def test_the_committed_page_is_what_the_script_writes() -> None:
    assert (ROOT / "docs" / "evidence.md").read_text("utf-8") == build.page(), "python docs/evidence/build.py"
    assert (ROOT / "README.md").read_text("utf-8") == build.readme(), "python docs/evidence/build.py"
    assert build.PICTURE.read_text("utf-8") == build.picture(), "python docs/evidence/build.py"


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: f"{claim['paper']}-{claim['claim'][:30]}")
def test_a_claim_is_whole(claim: dict[str, Any]) -> None:
    assert set(claim) >= build.KEYS
    assert set(claim) <= {*build.KEYS, "table", "cells", "comparison", "rows", "atlas"}
    assert claim["verdict"] in build.VERDICTS
    assert claim["verdict"] == "could not be tried" or build.ours(claim) != "–"  # from stored results, never typed
    assert ("table" in claim) == ("cells" in claim)
    assert ("comparison" in claim) == ("rows" in claim)


@pytest.mark.parametrize("command", commands())
def test_a_command_exists(command: str) -> None:
    fallow, verb, *words = shlex.split(command)
    assert fallow == "fallow"
    options = {name for each in VERBS[verb].params for name in each.opts if name.startswith("--")}
    given = [word.partition("=")[0] for word in words if word.startswith("--")]
    assert set(given) <= options
    if verb == "reproduce":
        assert words[0] in TABLES
    for option in {"--methods", "--method"} & set(given):
        for name in split_names(words[words.index(option) + 1]):
            method(name)


def test_no_table_and_no_figure_is_left_out() -> None:
    for paper, everything in FOUND["papers"].items():
        named = {where for claim in CLAIMS if claim["paper"] == paper for where in claim["where"]}
        named |= {where.partition(", ")[2] for where in FOUND["without"] if where.startswith(f"{paper}, ")}
        assert set(everything) <= named, paper


@pytest.mark.parametrize("path", sorted(build.TABLES.glob("*.csv")), ids=lambda path: path.stem)
def test_a_stored_table_says_what_it_is(path: Path) -> None:
    found = stored.read(path)
    assert found.name == path.stem
    assert found.cells
    assert found.measured
    assert shlex.split(found.command)[2] in TABLES
    assert stored.text(found) == path.read_text("utf-8")


def test_a_folder_is_added_by_one_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "tables"
    kept.mkdir()
    monkeypatch.setattr(build, "TABLES", kept)
    cells = [Cell("LW", "α = 1", 72.3, 71.0, 2.0, 3, True), Cell("BL", "α = 1", None, 50.0, 1.0, 3, None)]
    made = Table("lw-table1", "LW, table 1", cells, remarks=["a: b"], tests=[{"claim": "LW", "p": 0.1, "p_holm": 0.2}])
    made.measured, made.seconds = "fallow 0", 90.0
    write(tmp_path / "reproduced", made, "fallow reproduce lw-table1 --data-dir /somebody/else --out x --seeds 3")
    (written,) = build.add(tmp_path / "reproduced")
    found = stored.read(written)
    assert found.cells == cells
    assert str(found) == str(made)
    assert found.command == "fallow reproduce lw-table1 --data-dir DIR --seeds 3"
    (tmp_path / "reproduced" / "lw-table1.csv").unlink()  # what an earlier version left
    assert stored.read(build.add(tmp_path / "reproduced")[0]).cells == cells
    assert "its runs took 2 minutes" in build._table("lw-table1")
    with pytest.raises(RequestError, match="holds no table"):
        build.add(kept / "nothing")


def test_later_seeds_are_pooled_with_those_that_are_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "tables"
    kept.mkdir()
    monkeypatch.setattr(build, "TABLES", kept)

    def add(value: float, command: str) -> Table:
        made = Table("seal-table2", "SEAL, table 2", [Cell("LLF", "last", 7.65, value, 0.0, 1, None)], seconds=60.0)
        write(tmp_path / "reproduced", made, f"fallow reproduce seal-table2{command} --data-dir x")
        return stored.read(build.add(tmp_path / "reproduced", "commit 1")[0])

    add(2.0, " --seeds 1")
    found = add(4.0, " --seed 1 --seeds 1")
    assert found.cells == [Cell("LLF", "last", 7.65, 3.0, 1.4142, 2, None)]
    assert (found.command, found.seconds) == ("fallow reproduce seal-table2 --data-dir DIR --seeds 2", 120.0)
    with pytest.raises(RequestError, match="begins with seed 1, and 0 to 1 are stored: add 2"):  # not twice
        add(4.0, " --seed 1 --seeds 1")


def test_a_table_may_begin_with_a_later_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "TABLES", tmp_path)
    for seed, value in ((2, 1.0), (3, 3.0)):
        made = Table("seal-table2", "SEAL, table 2", [Cell("LLF", "last", 7.65, value, 0.0, 1, None)])
        write(tmp_path / "reproduced", made, f"fallow reproduce seal-table2 --seed {seed} --seeds 1")
        (written,) = build.add(tmp_path / "reproduced", "commit 1")
    found = stored.read(written)
    assert found.cells[0].ours == 2.0
    assert found.command == "fallow reproduce seal-table2 --seed 2 --seeds 2"


@pytest.mark.parametrize("path", sorted(build.COMPARISONS.glob("*.csv")), ids=lambda path: path.stem)
def test_a_stored_comparison_says_how_to_repeat_it(path: Path) -> None:
    first, second, *_ = path.read_text("utf-8").splitlines()
    test_a_command_exists(first.removeprefix("# command: "))
    assert re.match(r"# measured: \S", second)


NUMBERS = {"none": 0, "one": 1, "two": 2, "three": 3}


def test_what_the_cards_count_in_the_atlas_is_in_it() -> None:
    atlas = Atlas(rows.read(build.ROWS))
    told = 0
    for card in sorted((ROOT / "docs" / "methods").glob("*.md")):
        for better, of in re.findall(
            r"tuned\s+atlas[^.]*?\*better\*\s+in\s+(\w+)\s+of\s+(\d+)\s+settings", card.read_text()
        ):
            counted = NUMBERS[better] if better in NUMBERS else int(better)
            assert (counted, int(of)) == (len(atlas.judged(card.stem, "better")), len(atlas.judged(card.stem))), (
                card.stem
            )
            told += 1
    assert told >= 9


def test_a_comparison_is_added_by_one_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "COMPARISONS", tmp_path / "kept")
    made = tmp_path / "mine"
    made.mkdir()
    (made / "plan.toml").write_text('data = ["/x/a.npz"]\nmethods = ["long", "llf"]\nseeds = 5\n')
    names = build.compared.COLUMNS
    row = dict.fromkeys(names, "") | {"data": "a", "model": "mlp", "method": "llf", "verdict": "better", "seeds": "5"}
    row |= {"mean": "0.81234567", "control_to": "long", "control_difference": "0.02", "control_low": "0.01"}
    row |= {"control_high": "0.03", "control_p_holm": "0.012"}
    (made / "summary.csv").write_text("\n".join([",".join(names), ",".join(row[name] for name in names)]))
    (written,) = build.add(made, "commit 1")
    assert written.name == "mine.csv"
    shown = build._comparison("mine")
    assert "`fallow compare a.npz --methods llf --seeds 5`, measured with commit 1" in shown
    assert "| llf | 5 | 81.2 |  |  | +2.0 (+1.0 to +3.0) long | 0.012 | better |  |" in shown


def test_an_atlas_comes_into_the_page_and_into_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "ROWS", tmp_path / "kept" / "atlas.csv")
    monkeypatch.setattr(build, "PICTURE", tmp_path / "kept" / "atlas.svg")
    assert "has not been run" in build._atlas()
    assert build.readme().partition(build.START)[2].startswith(f"\n{build.END}")
    (tmp_path / "kept").mkdir()
    (tmp_path / "atlas").mkdir()
    rows.write(tmp_path / "atlas" / "atlas.csv", world())
    build.add(tmp_path / "atlas")
    assert "| mixup |" in build._atlas()
    shown = build.readme().partition(build.START)[2].partition(build.END)[0]
    assert "docs/evidence/atlas.svg" in shown
    assert "try these first" in shown
    assert "mixup" in build.picture()
