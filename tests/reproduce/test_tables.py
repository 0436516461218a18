"""The tables' machinery at a fraction of their size; the numbers themselves take minutes (`fallow reproduce`)."""

from __future__ import annotations

import html
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from fallow.cli.main import main
from fallow.data import load
from fallow.reproduce import (
    TABLES,
    fam_cost,
    fam_rte,
    fam_shapes,
    fam_table1,
    fewshot_images,
    iml_ablation,
    iml_cost,
    iml_exact,
    iml_figure5,
    iml_grid,
    iml_layer,
    iml_table51,
    iml_weight,
    l2f_control,
    l2f_figures,
    l2f_regression,
    l2f_sinusoid,
    lw_ablation,
    lw_budget,
    lw_diagnosed,
    lw_table1,
    lw_table5,
    lw_tables,
    recipes,
    seal_ascent,
    seal_diagnosed,
    seal_large,
    seal_tables,
    semi_labels,
    semi_ood,
)
from fallow.reproduce.page import sentence
from fallow.reproduce.runs import reproduce
from fallow.reproduce.table import Cell, Table, cell
from fallow.training.fit import fit
from fallow.training.yardsticks import yardsticks
from tests.report.looks import plain
from tests.reproduce.test_fewshot import small_images
from tests.reproduce.test_transfer import small_transfer


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lw_table1, "STEPS", 2)
    monkeypatch.setattr(lw_table1.train, "__defaults__", (9, 2))
    monkeypatch.setattr(lw_table5, "T", 10)
    monkeypatch.setattr(lw_tables, "GENERATIONS", 2)
    monkeypatch.setattr(lw_tables, "DATA", {"digits": ("digits", 30, 1, "crop")})
    monkeypatch.setattr(lw_tables, "METHODS", {"BL": "long", "FC": "fc", "LW": "lw"})
    monkeypatch.setattr(lw_tables, "MODELS", {"scnn": "scnn:width=2,dense=4"})
    monkeypatch.setattr(lw_tables, "PAPER", {("none", "scnn"): (0.3, 1.1)})
    monkeypatch.setattr(lw_budget, "BUDGETS", (1, 2))
    monkeypatch.setattr(lw_budget, "EPOCHS", 1)
    monkeypatch.setattr(lw_budget, "ROUNDS", 2)
    monkeypatch.setattr(lw_budget, "MODEL", "mlp:hidden=4,4")
    monkeypatch.setattr(lw_budget, "METHODS", {"BL": "long", "LW": "lw"})
    monkeypatch.setattr(lw_budget, "PROGRESS", 0.0)
    few = {"rate": (0.03,), "decay": (1e-5,), "dropout": (0.0,), "start": ("he",)}
    monkeypatch.setattr(lw_budget, "GRID", lw_budget.GRID | few)
    monkeypatch.setattr(seal_tables, "EPOCHS", 2)
    for name, value in {"MODEL": "mlp:hidden=4,4", "SPLIT": "auto", "TRAIN": 24, "EPOCHS": 2}.items():
        monkeypatch.setattr(seal_large, name, value)
    fewer = {name: {row: rows[row] for row in list(rows)[1:3]} for name, rows in seal_large.ROWS.items()}
    monkeypatch.setattr(seal_large, "ROWS", fewer)
    monkeypatch.setattr(seal_ascent, "EPOCHS", 4)
    monkeypatch.setattr(seal_ascent, "GENERATIONS", 2)
    monkeypatch.setattr(seal_ascent, "MODEL", "mlp:hidden=4,4")
    monkeypatch.setattr(seal_diagnosed, "EPOCHS", 4)
    monkeypatch.setattr(seal_diagnosed, "GENERATIONS", 2)
    monkeypatch.setattr(seal_diagnosed, "MODEL", "mlp:hidden=4,4")
    monkeypatch.setattr(seal_diagnosed, "EVOLUTION", (1, 2))
    monkeypatch.setattr(seal_diagnosed, "PROBES", 2)
    monkeypatch.setattr(seal_diagnosed, "STEPS", 10)
    monkeypatch.setattr(seal_diagnosed, "METHODS", {"Normal (long)": "long", "SEAL": "seal"})
    monkeypatch.setattr(lw_diagnosed, "METHODS", {"BL": "long", "LW": "lw"})
    monkeypatch.setattr(lw_diagnosed, "TRAIN", 60)
    monkeypatch.setattr(lw_diagnosed, "DRAWS", 2)
    monkeypatch.setattr(fam_cost, "INPUTS", (4, 8))
    monkeypatch.setattr(fam_cost, "OUTPUTS", 8)
    monkeypatch.setattr(fam_table1, "EPOCHS", {"digits": 1})
    monkeypatch.setattr(fam_table1, "SHORT", 1)
    monkeypatch.setattr(fam_table1, "MODELS", {"digits": "mlp:hidden=8"})
    monkeypatch.setattr(fam_table1, "SMALL", "mlp:hidden=8")
    monkeypatch.setattr(fam_shapes, "SIZES", {"fam-shapes": (8, "autoencoder3d:width=2,depth=2", 1)})
    monkeypatch.setattr(fam_shapes, "COUNT", 4)
    monkeypatch.setattr(fam_rte, "EPOCHS", 1)
    monkeypatch.setattr(fam_rte, "HIDDEN", 8)
    monkeypatch.setattr(fam_rte, "LAYERS", 1)
    monkeypatch.setattr(iml_weight, "UPDATES", 3)
    monkeypatch.setattr(iml_weight, "INNER", 5)
    monkeypatch.setattr(iml_exact, "SIDE", 4)
    monkeypatch.setattr(iml_exact, "HIDDEN", 6)
    monkeypatch.setattr(iml_exact, "CHECKPOINTS", (1, 2))
    monkeypatch.setattr(iml_cost, "INPUTS", {"MNIST": 8, "CIFAR-10": 12})
    for module in (iml_layer, iml_grid, iml_ablation):
        monkeypatch.setattr(module, "WARMUP", 10)
        monkeypatch.setattr(module, "UPDATES", 2)
        monkeypatch.setattr(module, "INNER", (2, 4) if module is iml_ablation else 10)
    short = {"epochs": 1, "generations": 1, "augment": "none"}
    monkeypatch.setattr(recipes, "fit", lambda model, data, method, **how: fit("mlp:hidden=4", data, **how, **short))
    acting = {"l2f-navigation": "navigation:horizon=5", "l2f-cheetah": "halfcheetah-direction:horizon=5"}
    plans = {name: l2f_control.Practice(environment, 2, 2, 2) for name, environment in acting.items()}
    monkeypatch.setattr(l2f_control, "PLANS", plans)
    monkeypatch.setattr(l2f_control, "TEST_TASKS", 2)
    monkeypatch.setattr(l2f_regression, "ITERATIONS", 1)
    monkeypatch.setattr(l2f_regression, "CURVES", 5)
    monkeypatch.setattr(l2f_regression, "COMPILE", False)
    monkeypatch.setattr(l2f_regression, "PLACES", {"mixture, 5": ("mixture", 5)})
    monkeypatch.setattr(l2f_sinusoid, "ITERATIONS", 2)
    monkeypatch.setattr(l2f_sinusoid, "CURVES", 4)
    monkeypatch.setattr(l2f_sinusoid, "COMPILE", False)
    monkeypatch.setattr(l2f_figures, "ITERATIONS", 2)
    monkeypatch.setattr(l2f_figures, "EVERY", 1)
    monkeypatch.setattr(l2f_figures, "TASKS", 4)
    monkeypatch.setattr(lw_ablation, "ON_IMAGES", ("mlp:hidden=8,8", 2, 2))
    monkeypatch.setattr(lw_ablation, "IMAGES", dict.fromkeys(lw_ablation.IMAGES, 60))
    monkeypatch.setattr(lw_ablation, "DATA", {"synthetic": ("synthetic:alpha=2.0", 64, "mlp:hidden=8,8", 2, 2)})
    for module in (iml_table51, iml_figure5, semi_labels, semi_ood):
        monkeypatch.setattr(module, "EPOCHS", 2)
        monkeypatch.setattr(module, "STEPS", 3)
        monkeypatch.setattr(module, "MODEL", "mlp:hidden=8")
    ours = "confidence:ratio=1,warmup=2,every=1,threshold=0,network=mlp"
    for module in (iml_table51, iml_figure5):
        monkeypatch.setattr(module, "METHOD", f"{ours},form=plain")
        monkeypatch.setattr(module, "OURS", ours)
    forms = {"semi-ood": ours, "semi-ood-plain": f"{ours},form=plain"}
    monkeypatch.setattr(semi_ood, "METHODS", forms)


def ask(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    # in this process, where the sizes are small
    monkeypatch.setattr(sys, "argv", ["fallow", "reproduce", *words, *(["--workers", "1"] if words else [])])
    with pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0), *capsys.readouterr()


ALIKE = (
    "semi-ood-centred",
    "seal-table1-small",
    "seal-table4-small",
    "seal-table5-small",
    "fam-shapes-small",
    "l2f-fc100",
    "l2f-cifarfs",
    "seal-table7-large",
    "seal-scale-large",
)  # as those without, or as one that runs elsewhere


def small_shapes_and_pairs(folder: Path) -> Path:
    """Balls of 16³ voxels, and sentences of which every other one follows."""
    grid = np.stack(np.meshgrid(*[np.arange(16)] * 3, indexing="ij"))
    balls = np.stack([np.square(grid - 6.0 - i % 3).sum(0) < 20 for i in range(5)])
    parts = ("train", "val", "test")
    np.savez(folder / "adrenalmnist3d_64.npz", **{f"x_{part}": balls.astype(np.uint8) * 255 for part in parts})
    first = np.array([f"it rains in town {i}".encode() for i in range(40)])
    second = np.array([b"it rains" if i % 2 else b"it snows" for i in range(40)])
    both = {f"{key}_{part}": array for part in ("train", "dev") for key, array in (("s1", first), ("s2", second))}
    np.savez(folder / "rte.npz", y_train=np.arange(40) % 2, y_dev=np.arange(40) % 2, **both)
    return folder


@pytest.mark.filterwarnings(r"ignore:seal's ascent of \d+ steps will move")  # epochs as few as these hardly climb
@pytest.mark.parametrize("name", [name for name in TABLES if name not in ALIKE])
def test_each_table_runs_and_says_what_agrees(name, tmp_path: Path, monkeypatch, capsys) -> None:
    pictured = name in (*fewshot_images.PLANS, "l2f-leo")
    data = ["--data-dir", str(small_images(tmp_path, monkeypatch))] if pictured else []
    if TABLES[name].module in ("seal_transfer", "seal_table3") or name == "seal-kept-large":
        data = ["--data-dir", str(small_transfer(tmp_path, monkeypatch))]
    elif TABLES[name].module == "seal_large":
        x = np.random.default_rng(0).integers(0, 255, (60, 8, 8, 3)).astype(np.uint8)
        np.savez(
            tmp_path / "cifar100_sub.npz", x_train=x, y_train=np.arange(60) % 3, x_test=x, y_test=np.arange(60) % 3
        )
        data = ["--data-dir", str(tmp_path)]
    if name == "fam-rte":
        pytest.importorskip("transformers")
    if name in ("fam-shapes", "fam-rte"):
        data = ["--data-dir", str(small_shapes_and_pairs(tmp_path))]
    if name in ("lw-figure6", "lw-ablation-images"):
        x, y = np.random.default_rng(0).integers(0, 255, (90, 8, 8)).astype(np.uint8), np.arange(90) % 3
        for key in lw_ablation.IMAGES:
            np.savez(tmp_path / f"{key}.npz", x_train=x, y_train=y, x_test=x, y_test=y)
        data = ["--data-dir", str(tmp_path)]
    code, out, _ = ask(monkeypatch, capsys, name, "--seeds", "2", "--json", "--out", str(tmp_path / "out"), *data)
    assert code == 0
    table = json.loads(out)
    for found in table["cells"]:
        assert set(found) >= {"row", "column", "paper", "ours", "spread", "seeds", "agrees"}
        assert found["seeds"] >= 2
    assert json.loads((tmp_path / "out" / f"{name}.json").read_text())["cells"] == table["cells"]
    assert "<svg" in (tmp_path / "out" / f"{name}.svg").read_text()
    page = html.unescape(plain((tmp_path / "out" / f"{name}.html").read_text("utf-8")))
    assert all(found["row"] in page for found in table["cells"])
    assert f"fallow reproduce {name}" in page
    assert not re.search(r"\b(nan|inf)\b", page)
    assert not any(str(tmp_path) in said for said in table["remarks"])  # a file is known by its name


def test_rte_tunes_the_network_that_is_given(tmp_path: Path, monkeypatch, capsys) -> None:
    """A folder of Hugging Face's in the data's; other weights in it are another table."""
    library = pytest.importorskip("transformers")
    data = small_shapes_and_pairs(tmp_path)
    bert = fam_rte.untrained(data / "bert", ["it rains in town", "it snows"], hidden=8, layers=1)
    torch.manual_seed(0)
    network = library.AutoModelForSequenceClassification.from_config(library.AutoConfig.from_pretrained(bert))
    network.save_pretrained(bert)
    capsys.readouterr()
    monkeypatch.setattr(fam_rte, "TUNED_EPOCHS", 1)
    asked = ["fam-rte", "--seeds", "2", "--json", "--out", str(tmp_path / "out"), "--data-dir", str(data)]
    code, out, _ = ask(monkeypatch, capsys, *asked)
    assert code == 0
    assert json.loads(out)["remarks"][0].startswith("BERT of bert;")
    with torch.no_grad():
        network.classifier.bias.add_(1)
    network.save_pretrained(bert)
    capsys.readouterr()
    code, _, said = ask(monkeypatch, capsys, *asked)
    assert code == 2
    assert "bert" in said


def test_the_list_and_a_mistyped_name(monkeypatch, capsys) -> None:
    code, out, _ = ask(monkeypatch, capsys)
    assert code == 0
    assert all(name in out for name in TABLES)
    assert "min on 2 cores" in out
    code, out, err = ask(monkeypatch, capsys, "lw-tabel1")
    assert (code, out) == (2, "")
    assert "did you mean 'lw-table1'" in err
    assert ask(monkeypatch, capsys, "lw-table1", "--seeds", "0")[0] == 2


def test_agreement_is_the_tolerance_or_two_standard_errors() -> None:
    assert cell("a", "b", 50.0, [52.9, 52.9], 3.0).agrees
    assert not cell("a", "b", 50.0, [53.1, 53.1], 3.0).agrees
    assert cell("a", "b", 50.0, [48.0, 60.0], 3.0).agrees  # 54 ± 6
    assert cell("a", "b", None, [1.0], 3.0).agrees is None


def test_a_table_prints_every_number() -> None:
    text = str(Table("x", "Paper, table 9", [Cell("LW", "α", 72.3, 71.0, 2.0, 3, True)]))
    assert "71.0 ± 2.0 (72.3) =" in text
    assert "1 of 1 cells agree" in text
    shown = str(Table("x", "Paper, table 9", [Cell("LW", "ms", 72.3, 71.0, 2.0, 3, None)]))
    assert "71.0 ± 2.0 (72.3)" in shown
    assert "agree" not in shown  # of what cannot be judged


def test_paired_differences_need_the_papers_sign_beyond_two_errors() -> None:
    assert seal_tables.direction("r", "c", 5.0, [1.0, 1.1, 0.9]).agrees
    assert not seal_tables.direction("r", "c", 5.0, [-1.0, -1.1, -0.9]).agrees
    assert not seal_tables.direction("r", "c", 5.0, [1.0, -0.9, 0.3]).agrees


def test_learned_weights_stand_beside_every_control(tmp_path: Path) -> None:
    table = reproduce("semi-ood", tmp_path / "out", seeds=1, workers=1)
    at = {(found.row, found.column): found for found in table.cells}
    for row in ("confidence network", "constant signal", "shuffled signal"):
        assert {column for r, column in at if r == row} == {"joint", "frozen", "AUROC, kept", "AUROC, last"}
    assert ("zero after warm-up", "joint") in at
    assert {("untrained network", "frozen"), ("oracle", "frozen")} <= set(at)
    for row in ("none: FixMatch", "none: supervised"):
        assert {(row, "joint"), (row, "frozen"), (row, "AUROC, kept")} <= set(at)
    verdict = next(line for line in table.remarks if line.startswith("frozen: "))
    assert "against none: FixMatch" in verdict
    assert "against oracle" not in verdict  # a bound, not a control


def test_recipes_stand_beside_what_learns_from_the_same_examples(tmp_path: Path) -> None:
    table = reproduce("recipes", tmp_path / "out", seeds=1, workers=1)
    simple = {each.name: 100 * each.metrics["test"]["accuracy"] for each in yardsticks(load("digits", train=300))}
    assert {c.row.partition(": ")[2]: c.ours for c in table.cells if c.column == "test, %"} == pytest.approx(
        simple | {"long": next(c.ours for c in table.cells if c.column == "test, %")}, abs=1e-3
    )
    assert {c.column for c in table.cells} == {"training, %", "test, %", "CPU seconds"}
    gained = reproduce("recipes-pretrained", tmp_path / "more", seeds=1, workers=1).cells
    first, second, gain = (c.ours for c in gained if c.column == "test, %")
    assert gain == pytest.approx(second - first, abs=1e-3)


def test_the_thesis_difference_is_paired_by_seed(tmp_path: Path) -> None:
    table = reproduce("iml-table5.1", tmp_path / "out", seeds=2, workers=1)
    ours = {found.row: found for found in table.cells}
    difference = ours["Confidence Network, frozen"].ours - ours["FixMatch"].ours
    assert ours["frozen − FixMatch"].ours == pytest.approx(difference, abs=2e-3)
    assert ours["frozen − FixMatch"].paper == -0.53
    difference = ours["our form, frozen"].ours - ours["FixMatch"].ours
    assert ours["our form, frozen − FixMatch"].ours == pytest.approx(difference, abs=2e-3)
    assert "form=plain" in table.remarks[1]
    assert "+0.35, +0.17, -2.10" in table.remarks[0]


def test_fixmatch_beside_the_labels_alone_is_paired_by_seed(tmp_path: Path) -> None:
    table = reproduce("semi-labels", tmp_path / "out", seeds=2, workers=1)
    at = {(found.row, found.column): found.ours for found in table.cells}
    for row in ("digits, 40 labels", "digits, 250 labels"):
        assert at[row, "gain"] == pytest.approx(at[row, "FixMatch"] - at[row, "labels alone"], abs=2e-3)
        assert at[row, "labels alone, training"] > 0
        assert 0 <= at[row, "sure"] <= 100


def test_the_page_says_how_many_agree_and_what_is_farthest() -> None:
    near, far = Cell("LW", "α", 72.3, 71.0, 2.0, 3, True), Cell("BL", "β", 50.0, 61.0, 2.0, 3, False)
    said = sentence(Table("x", "Paper, table 9", [near, far]))
    assert said == "1 of 2 numbers agree with Paper, table 9 (3 seeds); farthest is BL at β: 61 against the paper's 50."
    assert sentence(Table("x", "Paper, table 9", [near])) == "1 of 1 numbers agree with Paper, table 9 (3 seeds)."
    alone = [Cell(row, "γ", None, ours, 0.1, 1, None) for row, ours in (("a", 1.5), ("b", 0.5))]
    assert sentence(Table("x", "Figure 2", alone, unit="ms")).startswith("At γ, ours go from 0.5 (b) to 1.5 (a), in ms")
