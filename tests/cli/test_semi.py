"""``fallow semi``: what a user sees, and what is kept."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from fallow.base.errors import WorkError
from fallow.base.lock import locked
from fallow.semi import training
from tests.cli.conftest import Run
from tests.kill import ended, failing, killed

SMALL = ("--model", "mlp:hidden=8", "--epochs", 2, "--steps", 3, "--batch-size", 10, "--device", "cpu", "--workers", 1)
FEW = ("digits", "--labels", 20, "--val", 30, *SMALL)
LEARNED = "confidence:ratio=2,warmup=1,every=1,threshold=0,network=mlp"


@pytest.fixture
def semi(run: Run) -> Run:
    """``fallow semi`` on very little."""
    return lambda *words: run("semi", *FEW, *words)


def photographs(folder: Path, count: int, size: int = 8) -> Path:
    """Images without labels, in no class folders."""
    folder.mkdir(parents=True)
    draw = np.random.default_rng(1)
    for i in range(count):
        Image.fromarray(draw.integers(0, 256, (size, size), np.uint8)).save(folder / f"{i}.png")
    return folder


def offline(page: str) -> None:
    """No script, nothing from elsewhere."""
    assert "<script" not in page
    assert not re.search(r"""(src|href)=["'](?!data:|#)""", page)


def test_fixmatch_beside_its_baseline(semi: Run) -> None:
    words = semi("--method", "fixmatch:ratio=2", "--out", "a").done()
    assert words.startswith("digits: 20 labels, 30 validation labels, 1408 unlabelled images of 10 classes; mlp:")
    assert re.search(r"\nsupervised +\d+\.\d % +\d+\.\d % ", words)
    assert re.search(r"\nfixmatch +\d+\.\d % +\d+\.\d % ", words)
    assert "points compared with the labels alone" in words
    assert words.endswith("report: a/semi.html\n")
    assert {p.name for p in Path("a").iterdir()} >= {"experiment.db", "study.json", "semi.html", "runs"}
    assert {p.name for p in Path("a/runs").iterdir()} == {"supervised", "fixmatch"}
    page = Path("a/semi.html").read_text("utf-8")
    offline(page)
    assert "Accuracy on validation, %" in page
    assert "Pseudo-labels above the threshold, %" in page
    assert "Which images it trusts" not in page  # FixMatch has no weights


def test_the_weights_of_a_confidence_network_are_shown(semi: Run) -> None:
    found = json.loads(
        semi("--method", LEARNED, "--ood-classes", "8,9", "--no-baseline", "--out", "a", "--json").done()
    )
    assert list(found["trainings"]) == ["confidence"]
    assert 0 <= found["trainings"]["confidence"]["auroc"] <= 1
    page = Path("a/semi.html").read_text("utf-8")
    offline(page)
    assert page.count("data:image/png;base64") == 3 * (8 + 1)  # of every class, and of the foreign ones
    for words in ("Weights of original images", "Weights of augmented images", "AUROC of the weights", "share in %"):
        assert words in page
    assert Path("a/runs/confidence/confidence.safetensors").exists()


def test_the_controls_are_one_command(semi: Run) -> None:
    words = semi("--method", LEARNED, "--ood-classes", "8,9", "--controls", "--out", "a").done()
    table = words[words.index("weights from") :]
    for row in ("confidence network", "constant signal", "shuffled signal"):
        assert re.search(rf"\n{row} +\d+\.\d % +\d+\.\d % +\d\.\d\d", table), row
    assert re.search(r"\nzero after warm-up +\d+\.\d % +- ", table)
    assert re.search(r"\nuntrained network +- +\d+\.\d % +\d\.\d\d", table)
    assert re.search(r"\noracle +- +\d+\.\d % +-", table)
    for row in ("none: FixMatch", "none: supervised"):  # with the validation labels, and without
        assert re.search(rf"\n{row} +\d+\.\d % +\d+\.\d % ", table), row
    joint, frozen = (load_file(f"a/runs/{name}/confidence.safetensors") for name in ("confidence", "confidence-frozen"))
    assert joint.keys() == frozen.keys()
    assert all(torch.equal(joint[key], frozen[key]) for key in joint)
    sizes = json.loads(Path("a/runs/supervised-validation-labels-too/run.json").read_text())["data"]["sizes"]
    assert (sizes["train"], sizes["val"]) == (50, 0)
    assert "Does the network help" in Path("a/semi.html").read_text("utf-8")


def test_a_killed_study_goes_on_and_draws_the_same_page(semi: Run) -> None:
    words = ("--method", LEARNED, "--ood-classes", "8,9", "--json")
    whole = json.loads(semi(*words, "--out", "a").done())
    killed(lambda: semi(*words, "--out", "b"), training, "fit", call=2)
    assert list(before := ended(Path("b"))) == ["confidence"]  # the long one comes first
    after = json.loads(semi(*words, "--out", "b").done())
    for name, found in whole["trainings"].items():
        assert {**found, "seconds": 0} == {**after["trainings"][name], "seconds": 0}
    assert before.items() <= ended(Path("b")).items()
    pages = [re.sub(r">[\d.]+\s?s<", "><", Path(out, "semi.html").read_text("utf-8")) for out in "ab"]
    assert pages[0] == pages[1]
    weights = [Path(out, "runs/confidence/last.safetensors").read_bytes() for out in "ab"]
    assert weights[0] == weights[1]


def test_a_study_killed_in_a_training_goes_on_from_its_checkpoint(semi: Run) -> None:
    words = ("--method", "fixmatch:ratio=2", "--no-baseline")
    semi(*words, "--out", "a").done()
    killed(lambda: semi(*words, "--out", "b"), training, "_looked", call=1)  # trained, and not looked at
    assert not ended(Path("b"))
    trained = Path("b/runs/fixmatch/last.safetensors").stat().st_mtime_ns
    semi(*words, "--out", "b").done()
    assert Path("b/runs/fixmatch/last.safetensors").stat().st_mtime_ns == trained
    seen = [load_file(f"{out}/runs/fixmatch/images.safetensors")["predicted"] for out in "ab"]
    assert torch.equal(*seen)


def test_another_study_and_another_process_are_refused(semi: Run) -> None:
    words = ("--method", "supervised", "--out", "a")
    semi(*words).done()
    with locked(Path("a/lock"), wait=False):
        assert "another process is at work in a: wait for it" in semi(*words).refused()
    assert "a holds another study: its seed is 0, not 1; choose another" in semi(*words, "--seed", 1).refused()


def test_a_training_that_fails_is_told(semi: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("--method", "fixmatch:ratio=2", "--out", "a")
    with monkeypatch.context() as patch:
        when = {"supervised": True}
        failed = failing(training.fit, WorkError("the <b>loss became nan"), lambda *given, **_: when.get(given[2].name))
        patch.setattr(training, "fit", failed)
        found = semi(*words)
        assert found.code == 1
        assert re.search(r"\nsupervised +failed: the <b>loss became nan\n", found.out)
        assert found.troubles == "fallow: 1 of the runs failed, first supervised: the <b>loss became nan\n"
        assert "failed: the &lt;b&gt;loss became nan" in Path("a/semi.html").read_text("utf-8")
        when["fixmatch"] = True
        patch.setattr(training, "fit", failed)
        assert "fixmatch failed: the <b>loss" in semi(*words[:-1], "b").refused(1)
    before = ended(Path("a"))["fixmatch"]
    assert "points compared with the labels alone" in semi(*words).done()
    assert ended(Path("a"))["fixmatch"] == before


def test_images_of_another_size_are_resized_and_that_is_said(semi: Run, tmp_path: Path) -> None:
    more = photographs(tmp_path / "more", 5, size=12)
    words = semi("--method", "supervised", "--unlabelled", more, "--out", "a").done()
    assert "1413 unlabelled images" in words
    assert "note: The unlabelled images were resized to 8×8." in words


def test_names_of_classes_cannot_break_the_page(run: Run, images: Path, tmp_path: Path) -> None:
    (images / "cat").rename(images / "<b>cat")
    more = photographs(tmp_path / "more", 5)
    words = ("--val", 2, "--unlabelled", more, "--method", LEARNED, *SMALL, "--no-baseline", "--out", "a")
    run("semi", images, *words).done()
    page = Path("a/semi.html").read_text("utf-8")
    assert "&lt;b&gt;" in page
    assert "<b>cat" not in page


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--labels", 5000), "labels=5000 is more than the 1150 labelled training images there are"),
        (("--labels", 5), "labels=5 would leave class '5' without one: ask for at least 10"),
        (("--labels", 0), "labels is 0: it must be a whole number from 1"),
        (("--unlabelled", "empty"), "empty is empty: give a folder with images"),
        (("--ood", "empty"), "empty is empty"),
        (("--ood", "more", "--ood-share", "1"), "ood_share is 1.0: it must be above 0 and below 1"),
        (("--ood-classes", "nine"), "unknown class 'nine'"),
        (("--ood-classes", "9", "--ood", "more"), "give one of the two"),
        (("--method", "fixmach"), "unknown method 'fixmach': did you mean 'fixmatch'?"),
        (("--method", "fixmatch:treshold=1"), "did you mean 'threshold'?"),
        (("--method", "llf"), "unknown method 'llf'"),
        (("--controls",), "--controls is for --method confidence, and this is fixmatch"),
        (("--steps", 0), "steps is 0: it must be a whole number from 1"),
        (("--epochs", 0), "epochs is 0"),
        (("--model", "rseent"), "unknown model"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(semi: Run, tmp_path: Path, words: tuple, said: str) -> None:
    (tmp_path / "empty").mkdir()
    photographs(tmp_path / "more", 2)
    assert said in semi(*words).refused()


def test_without_labels_to_hide_there_must_be_other_images(run: Run) -> None:
    assert "keep some labels by --labels 250, or give --unlabelled" in run("semi", "digits", *SMALL).refused()


def test_what_holds_no_images(run: Run) -> None:
    Path("t.csv").write_text("age,risk\n" + "30,low\n40,high\n" * 20)
    said = run("semi", "t.csv", "--labels", 20, *SMALL).refused()
    assert said.startswith("t.csv is a table, and semi learns from images: give a folder of them")
    said = run("semi", "t.csv", "--as", "images", "--labels", 20, *SMALL).refused()
    assert said == "which column of t.csv holds the classes? call it label, and no other so"
    assert "holds no images in memory" in run("semi", "synthetic", "--labels", 20, *SMALL).refused()


def test_weights_that_run_away_are_told_and_nothing_is_lost(semi: Run) -> None:
    away = LEARNED + ",form=plain,rate=1e4,limit=0.5"
    outcome = semi("--method", away, "--no-baseline", "--out", "a")
    assert outcome.code == 1
    assert outcome.troubles.startswith("fallow: the confidence weights diverged")
    assert outcome.troubles.count("\n") == 1
    assert "confidence reaches" in outcome.out
    assert json.loads(Path("a/study.json").read_text())["trainings"]["confidence"]["ran_away"]
    assert "diverged" in Path("a/semi.html").read_text("utf-8")
    assert Path("a/runs/confidence/confidence.safetensors").exists()
    assert Path("a/runs/confidence/last.safetensors").exists()
