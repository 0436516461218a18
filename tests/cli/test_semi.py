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

from fallow.semi import training
from tests.cli.conftest import Run

SMALL = ("--model", "mlp:hidden=8", "--epochs", 2, "--steps", 3, "--batch-size", 10, "--device", "cpu")
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
    assert "points against the labels alone" in words
    assert words.endswith("report: a/semi.html\n")
    assert {p.name for p in Path("a").iterdir()} == {"run.json", "study.json", "semi.html", "supervised", "fixmatch"}
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
    assert Path("a/confidence/confidence.safetensors").exists()


def test_the_controls_are_one_command(semi: Run) -> None:
    words = semi(
        "--method", LEARNED, "--ood-classes", "8,9", "--controls", "--workers", 1, "--threads", 1, "--out", "a"
    ).done()  # fmt: skip
    table = words[words.index("weights from") :]
    for row in ("confidence network", "constant signal", "shuffled signal"):
        assert re.search(rf"\n{row} +\d+\.\d % +\d+\.\d % +\d\.\d\d", table), row
    assert re.search(r"\nzero after warm-up +\d+\.\d % +- ", table)
    assert re.search(r"\nuntrained network +- +\d+\.\d % +\d\.\d\d", table)
    assert re.search(r"\noracle +- +\d+\.\d % +-", table)
    for row in ("none: FixMatch", "none: supervised"):  # with the validation labels, and without
        assert re.search(rf"\n{row} +\d+\.\d % +\d+\.\d % ", table), row
    joint, frozen = (load_file(f"a/{name}/confidence.safetensors") for name in ("confidence", "confidence-frozen"))
    assert joint.keys() == frozen.keys()
    assert all(torch.equal(joint[key], frozen[key]) for key in joint)
    sizes = json.loads(Path("a/supervised-validation-labels-too/run.json").read_text())["data"]["sizes"]
    assert (sizes["train"], sizes["val"]) == (50, 0)
    assert "Does the network help" in Path("a/semi.html").read_text("utf-8")


def test_a_study_goes_on_where_it_was(semi: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("--method", "fixmatch:ratio=2", "--json")
    whole = json.loads(semi(*words, "--out", "a").done())
    trained, begun = training._train, []

    def interrupted(plan, name, *rest):
        begun.append(name)
        if len(begun) == 2:
            raise KeyboardInterrupt
        return trained(plan, name, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(training, "_train", interrupted)
        assert "with --out b --resume goes on" in semi(*words, "--out", "b").refused(130)
    assert begun == ["supervised", "fixmatch"]
    first = Path("b/supervised/last.safetensors").read_bytes()
    after = json.loads(semi(*words, "--out", "b", "--resume").done())
    for name, found in whole["trainings"].items():
        assert {**found, "seconds": 0} == {**after["trainings"][name], "seconds": 0}
    assert Path("b/supervised/last.safetensors").read_bytes() == first
    assert Path("a/fixmatch/last.safetensors").read_bytes() == Path("b/fixmatch/last.safetensors").read_bytes()
    assert "already holds a run: add --resume" in semi(*words, "--out", "b").refused()
    assert "holds another run: its semi.seed" in semi(*words, "--out", "b", "--resume", "--seed", 1).refused()


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
        (("--labels", 0), "labels is 0: at least 1 is needed"),
        (("--unlabelled", "empty"), "empty is empty: give a folder with PNG or JPEG images"),
        (("--ood", "empty"), "empty is empty"),
        (("--ood", "more", "--ood-share", "1"), "the foreign share is 1.0: it must be above 0 and below 1"),
        (("--ood-classes", "nine"), "unknown class 'nine'"),
        (("--ood-classes", "9", "--ood", "more"), "give one of the two"),
        (("--method", "fixmach"), "unknown method 'fixmach': did you mean 'fixmatch'?"),
        (("--method", "fixmatch:treshold=1"), "did you mean 'threshold'?"),
        (("--method", "llf"), "unknown method 'llf'"),
        (("--controls",), "--controls are those of --method confidence, and this is fixmatch"),
        (("--resume",), "--resume needs --out"),
        (("--steps", 0), "steps is 0: an epoch has one or more"),
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
    assert "holds no images in memory" in run("semi", "synthetic", "--labels", 20, *SMALL).refused()


def test_weights_that_run_away_are_told_and_nothing_is_lost(semi: Run) -> None:
    away = LEARNED + ",form=plain,rate=1e4,limit=0.5"
    outcome = semi("--method", away, "--no-baseline", "--out", "a")
    assert outcome.code == 1
    assert outcome.err.startswith("fallow: the confidence weights ran away")
    assert outcome.err.count("\n") == 1
    assert "confidence reaches" in outcome.out
    assert json.loads(Path("a/study.json").read_text())["trainings"]["confidence"]["ran_away"]
    assert "ran away" in Path("a/semi.html").read_text("utf-8")
    assert Path("a/confidence/confidence.safetensors").exists()
    assert Path("a/confidence/last.safetensors").exists()
