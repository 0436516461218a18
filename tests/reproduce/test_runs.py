"""The runs of a table: kept, found again, missing; and the data that they are of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fallow.base.errors import RequestError, WorkError
from fallow.base.lock import locked
from fallow.reproduce import iml_weight, lw_table1, seal_tables, stored
from fallow.reproduce.runs import constants, named, reproduce
from fallow.reproduce.table import Table, cell
from tests.cli.conftest import Run, run
from tests.kill import ended, failing, killed

__all__ = ["run"]  # the fixture


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lw_table1, "ALPHAS", (0.5, 2.0))
    monkeypatch.setattr(lw_table1.train, "__defaults__", (2, 2))
    monkeypatch.setattr(seal_tables, "EPOCHS", 1)
    monkeypatch.setattr(seal_tables, "GENERATIONS", 3)
    monkeypatch.setattr(seal_tables, "LATE", {"Gen=3": 3})
    monkeypatch.setattr(seal_tables, "ROWS", {"seal-table2": {"LLF": ("llf", {"Gen=3": 4.96})}})


def table1(folder: Path, seeds: int = 2) -> str:
    return str(reproduce("lw-table1", folder, seeds=seeds, workers=1))


def test_a_killed_table_goes_on(tmp_path: Path) -> None:
    whole = table1(tmp_path / "whole")
    killed(lambda: table1(tmp_path / "out"), lw_table1, "stack_of", call=3)
    before = ended(tmp_path / "out")
    assert set(before) == {"0.5-0", "0.5-1"}
    assert table1(tmp_path / "out") == whole
    after = ended(tmp_path / "out")
    assert set(after) == {"0.5-0", "0.5-1", "2.0-0", "2.0-1"}
    assert before.items() <= after.items()
    assert table1(tmp_path / "out") == whole
    assert ended(tmp_path / "out") == after


def test_a_second_process_is_refused(run: Run) -> None:
    run("reproduce", "lw-table1", "--seeds", 1, "--workers", 1).done()
    with locked(Path("reproduced/lw-table1/lock"), wait=False):
        words = run("reproduce", "lw-table1", "--seeds", 1, "--workers", 1).refused()
    assert words == "another process is at work in reproduced/lw-table1: wait for it, or choose another --out"


def test_a_failed_run_costs_its_seed_and_says_why(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ("reproduce", "seal-table2", "--seeds", 3, "--workers", 1)
    with monkeypatch.context() as patch:
        diverged = failing(seal_tables.fit, WorkError("the loss became nan"), lambda *_, seed, **__: seed == 1)
        patch.setattr(seal_tables, "fit", diverged)
        found = run(*command)
    assert found.code == 1
    assert "failed, llf-3-1: the loss became nan" in found.out
    assert found.err == "fallow: 2 of the runs failed; their seeds are left out: repeat the command\n"
    before = ended(tmp_path / "reproduced/seal-table2")
    rest = found.out.partition("\n\n")[0]
    whole = run(*command).done()
    assert "failed" not in whole
    assert whole.partition("\n\n")[0] != rest
    after = ended(tmp_path / "reproduced/seal-table2")
    assert {name for name in after if after[name] != before.get(name)} == {"llf-3-1", "long-3-1"}


def test_no_whole_seed_is_no_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lw_table1, "stack_of", failing(lw_table1.stack_of, WorkError("no room"), lambda *_: True))
    with pytest.raises(WorkError, match=r"^4 of 4 runs failed, too many for a table, 0\.5-0: no room$"):
        table1(tmp_path / "out")


def test_more_seeds_run_what_is_missing(tmp_path: Path) -> None:
    reproduce("seal-table2", tmp_path / "out", seeds=1, workers=1)
    before = ended(tmp_path / "out")
    reproduce("seal-table2", tmp_path / "out", seeds=2, workers=1)
    after = ended(tmp_path / "out")
    assert before.items() <= after.items()
    assert len(after) == 2 * len(before)


def test_seeds_of_two_folders_are_pooled_as_one_folder_has_them(tmp_path: Path) -> None:
    parts = [reproduce("seal-table2", tmp_path / f"{seed}", seeds=1, seed=seed, workers=1) for seed in (0, 1)]
    whole = reproduce("seal-table2", tmp_path / "0", seeds=2, workers=1)
    parts = [replace(part, remarks=["300 digits"]) for part in parts]
    found = stored.pooled(*parts)
    for ours, theirs in zip(found.cells, whole.cells, strict=True):
        assert (ours.row, ours.column, ours.paper, ours.seeds) == (theirs.row, theirs.column, theirs.paper, 2)
        assert ours.ours == pytest.approx(theirs.ours, abs=1e-3)
        assert ours.spread == pytest.approx(theirs.spread, abs=2e-3)
    with pytest.raises(RequestError, match="other cells"):
        stored.pooled(parts[0], replace(parts[1], cells=parts[1].cells[1:]))
    with pytest.raises(RequestError, match="remarks on single seeds: run all of them in one folder"):
        stored.pooled(parts[0], replace(parts[1], remarks=["seed 1: 72.0 %"]))
    with pytest.raises(RequestError, match="run all of them in one folder"):
        stored.pooled(*[replace(part, tests=[{"claim": "LLF", "p": 0.5, "p_holm": 1.0}]) for part in parts])


@pytest.mark.parametrize("counts", [(1, 1), (3, 1), (2, 4)])
def test_pooled_deviation(counts: tuple[int, int]) -> None:
    values = np.random.default_rng(0).normal(size=sum(counts)).tolist()
    a, b, whole = (
        Table("t", "A, table 1", [cell("a", "b", None, each, 0)])
        for each in (values[: counts[0]], values[counts[0] :], values)
    )
    (found,), (exact,) = stored.pooled(a, b).cells, whole.cells
    assert (found.ours, found.spread) == pytest.approx((exact.ours, exact.spread), abs=2e-4)


def test_another_size_is_another_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table1(tmp_path / "out", seeds=1)
    monkeypatch.setattr(lw_table1, "RATE", 0.1)
    with pytest.raises(RequestError, match=r"holds another table: its RATE is 0\.05, not 0\.1; choose another --out"):
        table1(tmp_path / "out", seeds=1)
    with pytest.raises(RequestError, match="holds another table: its table is 'lw-table1', not 'seal-table2'"):
        reproduce("seal-table2", tmp_path / "out", seeds=1, workers=1)
    assert constants(iml_weight)["SIDES"] == {"mnist": 14, "cifar10_sub": 8}
    assert "ROWS" not in constants(iml_weight)  # solvers are no plain values


def test_changed_data_are_noticed_and_a_new_place_is_none_of_our_business(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iml_weight, "ROWS", {"no decay": None})
    monkeypatch.setattr(iml_weight, "UPDATES", 2)
    monkeypatch.setattr(iml_weight, "INNER", 2)

    def images(folder: Path, seed: int) -> Path:
        folder.mkdir(exist_ok=True)
        draw = np.random.default_rng(seed)
        x, y = draw.integers(0, 256, (200, 14, 14), dtype=np.uint8), np.arange(200) % 10
        np.savez(folder / "mnist.npz", x_train=x, y_train=y, x_test=x, y_test=y)
        return folder

    def table(place: Path) -> str:
        return str(reproduce("iml-table4.1", tmp_path / "out", seeds=1, data_dir=place, workers=1))

    with pytest.raises(RequestError, match=r"mnist.npz is not there: --data-dir is a folder with mnist.npz in it"):
        table(tmp_path)
    first = table(images(tmp_path / "a", 0))
    before = ended(tmp_path / "out")
    assert table(images(tmp_path / "b", 0)) == first
    assert ended(tmp_path / "out") == before
    with pytest.raises(RequestError, match=r"its mnist\.npz's digest is"):
        table(images(tmp_path / "a", 1))
    with pytest.raises(RequestError, match=r"its mnist\.npz's digest is"):
        reproduce("iml-table4.1", tmp_path / "out", seeds=1, workers=1)


def test_names_of_runs() -> None:
    assert named(("Neumann (50), α = 1/λmax", 0)) == "Neumann-50-α-1-λmax-0"
