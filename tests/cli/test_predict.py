from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import fallow
from fallow import Predictor, RequestError
from fallow.data import load
from tests.cli.conftest import Run
from tests.comparison.small import arrays

TRAIN = ("--model", "mlp:hidden=16", "--epochs", 8, "--generations", 1, "--batch-size", 4, "--lr", 0.05)


@pytest.fixture
def cats(tmp_path: Path) -> Path:
    """Bright cats and dark dogs."""
    draw = np.random.default_rng(0)
    for label, low in (("cat", 150), ("dog", 0)):
        (tmp_path / "images" / label).mkdir(parents=True)
        for i in range(12):
            pixels = draw.integers(low, low + 100, (8, 8), np.uint8)
            Image.fromarray(pixels).save(tmp_path / "images" / label / f"{i}.png")
    return tmp_path / "images"


@pytest.fixture
def trained(run: Run, cats: Path) -> Path:
    run("train", cats, *TRAIN, "--out", "run").done()
    return Path("run")


def test_a_run_says_what_images_show(run: Run, trained: Path, cats: Path) -> None:
    paths = [cats / "cat" / "0.png", cats / "dog" / "11.png"]
    lines = run("predict", trained, *paths).done().splitlines()
    for line, path, label in zip(lines, paths, ("cat", "dog"), strict=True):
        assert line.split()[:2] == [str(path), label]
        assert line.endswith(" %)")
    found = json.loads(run("predict", trained, *paths, "--json").done())["predictions"]
    assert [row["name"] for row in found] == list(map(str, paths))
    assert [row["label"] for row in found] == ["cat", "dog"]
    assert all(0.5 < row["confidence"] <= 1 for row in found)


def test_another_size_and_colours_are_no_hindrance(run: Run, trained: Path, cats: Path) -> None:
    Image.new("RGB", (50, 30), (200, 210, 190)).save("bright.jpg")
    assert "bright.jpg  cat  (" in run("predict", trained, "bright.jpg").done()


def test_a_comparison_uses_its_winner(run: Run, cats: Path) -> None:
    words = ("--models", "mlp:hidden=16", "--epochs", 4, "--generations", 2, "--batch-size", 4, "--lr", 0.05)
    found = run(
        "compare",
        cats,
        *words,
        "--methods",
        "ema",
        "--seeds",
        1,
        "--workers",
        1,
        "--out",
        "out",
        "--json",
        "--no-refit",
    )
    winner = json.loads(found.out)["winner"]
    image = cats / "dog" / "3.png"
    whole, own = (
        json.loads(run("predict", folder, image, "--json").done())["predictions"]
        for folder in ("out", f"out/{winner['folder']}")
    )
    assert whole[0]["label"] == own[0]["label"] == "dog"
    last = Predictor(f"out/{winner['folder']}", weights="last")  # the comparison scores the last epoch
    last.temperature = Predictor("out").temperature  # and calibrates it
    assert whole[0]["confidence"] == last([image])[0].confidence
    accuracy = np.mean(
        [each.label == cats_label for each, cats_label in zip(
            Predictor("out")(load(str(cats), seed=winner["seed"]).test.x),
            [("cat", "dog")[i] for i in load(str(cats), seed=winner["seed"]).test.y], strict=True)]
    )  # fmt: skip
    assert accuracy == pytest.approx(winner["test"])


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["run"], "Missing argument 'files"),
        (["run", "gone.png"], "there is no file or folder gone.png"),
        (["run", "empty"], "empty holds no .png"),
        (["run", "run/last.safetensors"], "last.safetensors is of an unknown kind"),
        (["run", "broken.png"], "broken.png cannot be read as an image"),
        (["run", "text.png"], "text.png cannot be read as an image"),
        (["gone", "images/cat/0.png"], "there is no folder gone: give the folder of a run, or of a complete"),
        (["mine", "images/cat/0.png"], "there is no folder mine: did you mean mine-quick?"),
        (["images", "images/cat/0.png"], "images holds no run"),
        (["strange", "images/cat/0.png"], "strange holds no run"),
        (["deep", "images/cat/0.png"], "deep holds no run"),
        (["half", "images/cat/0.png"], "half has no best.safetensors: the run is not finished: resume it first"),
        (
            ["old", "images/cat/0.png"],
            "old was written by an older fallow, which did not record the normalisation: train it",
        ),
        (["foreign", "images/cat/0.png"], "foreign trained my.module:net, which is not fallow's own: name it too"),
    ],
)
@pytest.mark.usefixtures("trained")
def test_what_cannot_be_predicted(words: list[str], answer: str, run: Run) -> None:
    record = json.loads(Path("run/run.json").read_text())
    for name, content in {
        "strange": {"name": "no run of ours"},
        "half": record,
        "old": {key: value for key, value in record.items() if key != "normalisation"},
        "foreign": record | {"model": "my.module:net"},
    }.items():
        Path(name).mkdir()
        Path(name, "run.json").write_text(json.dumps(content))
    Path("deep").mkdir()
    Path("deep/run.json").write_text("[" * 100_000)  # deeper than Python's stack
    Path("broken.png").write_bytes(Path("images/cat/0.png").read_bytes()[:60])
    Path("text.png").write_text("hello")
    Path("empty").mkdir()
    Path("mine-quick").mkdir()
    assert answer in run("predict", *words).refused()


def test_a_model_that_was_not_trained_on_images(run: Run) -> None:
    arrays(Path("few.npz"))
    run("train", "few.npz", *TRAIN, "--out", "run").done()
    Image.new("L", (8, 8)).save("image.png")
    line = run("predict", "run", "image.png").refused()
    assert line == "image.png is an image, and the model was trained on arrays of shape (6,): give it arrays"
    draw = np.random.default_rng(0)
    np.savez("real.npz", x=draw.random((40, 8, 8, 1), np.float32), y=np.arange(40) % 2)  # images, but not in bytes
    run("train", "real.npz", *TRAIN, "--out", "real").done()
    assert "the model was trained on arrays of shape (1, 8, 8)" in run("predict", "real", "image.png").refused()


def test_arrays_in_python(run: Run) -> None:
    arrays(Path("few.npz"))
    result = fallow.fit("mlp:hidden=16", "few.npz", epochs=8, generations=1, lr=0.05, out="run")
    data = load("few.npz")
    predictor = Predictor("run", weights="last")
    wanted = data.test.y  # type: ignore[union-attr]
    for x in (data.test.x, data.test.x.numpy(), data.test.x.numpy().astype(np.float64)):  # type: ignore[union-attr]
        right = [p.label == data.classes[i] for p, i in zip(predictor(x), wanted, strict=True)]
        assert np.mean(right) == pytest.approx(result.last["test_accuracy"])
    with pytest.raises(RequestError, match=r"examples have shape \(5,\): the model was trained on \(6,\)"):
        predictor(torch.zeros(2, 5))
    with pytest.raises(RequestError, match="unknown weights 'first'"):
        Predictor("run", weights="first")


def test_weights_of_another_model(run: Run, trained: Path) -> None:
    record = json.loads((trained / "run.json").read_text())
    (trained / "run.json").write_text(json.dumps(record | {"model": "mlp:hidden=16,16"}))
    with pytest.raises(RequestError, match=r"best\.safetensors lacks .*: it is of another model"):
        Predictor(trained)


def test_predicting_does_not_touch_the_random_state(trained: Path, cats: Path) -> None:
    before = torch.get_rng_state()
    Predictor(trained)([cats / "cat" / "0.png"])
    assert torch.equal(torch.get_rng_state(), before)


def test_masks_are_written_in_the_size_of_their_pictures(run: Run, tmp_path: Path) -> None:
    """Left halves are white, and so is what the mask says; a wider picture's edges are cut away: background."""
    for name in ("images", "masks"):
        (tmp_path / "halves" / name).mkdir(parents=True)
    draw = np.random.default_rng(0)
    for i in range(24):
        mask = np.zeros((8, 8), np.uint8)
        mask[:, : 3 + i % 3] = 255
        noisy = np.clip(mask.astype(int) + draw.integers(-20, 20, (8, 8)), 0, 255).astype(np.uint8)
        Image.fromarray(noisy).save(tmp_path / "halves" / "images" / f"{i}.png")
        Image.fromarray(mask).save(tmp_path / "halves" / "masks" / f"{i}.png")
    settings = ["--model", "unet:width=4", "--epochs", "20", "--generations", "1", "--lr", "0.05", "--augment", "none"]
    assert run("train", str(tmp_path / "halves"), "--out", "run", *settings).code == 0
    wide = np.zeros((8, 12), np.uint8)
    wide[:, :6] = 255
    Image.fromarray(wide).save(tmp_path / "wide.png")
    np.savez(tmp_path / "two.npz", x=np.stack([wide[:, 2:10]] * 2)[:, None])
    answer = run("predict", "run", str(tmp_path / "wide.png"), str(tmp_path / "two.npz"), "--masks", "masks")
    assert answer.code == 0
    assert "3 masks in masks" in answer.out
    written = np.asarray(Image.open("masks/wide.png"))
    assert written.shape == (8, 12)
    assert set(np.unique(written)) == {0, 255}
    assert not written[:, :2].any()
    assert not written[:, 10:].any()
    assert (written[:, 2:10] == wide[:, 2:10]).mean() > 0.9
    assert np.array_equal(np.asarray(Image.open("masks/two-1.png")), written[:, 2:10])
    answer = run("train", "digits", "--train", "50", "--out", "plain", "--model", "mlp", "--quick")
    answer = run("predict", "plain", str(tmp_path / "wide.png"), "--masks", "masks")
    assert "plain does not predict masks: leave --masks out" in answer.err


def test_numbers_are_whole_in_csv_and_readable_elsewhere(run: Run) -> None:
    rows = "".join(f"{i % 11},{1.7e9 + 3600 * (i % 11) + i / 8}\n" for i in range(60))
    Path("t.csv").write_text(f"hours,seconds\n{rows}")
    run("train", "t.csv", "--target", "seconds", *TRAIN, "--out", "run").done()
    expected = [p.label for p in Predictor("run")("t.csv")]
    written = run("predict", "run", "t.csv", "--csv").done().splitlines()[1:]
    assert [float(line.split(",")[1]) for line in written] == expected
    shown = run("predict", "run", "t.csv").done().splitlines()
    assert [line.split()[1] for line in shown] == [f"{number:.0f}" for number in expected]


def test_several_numbers_have_a_column_each_in_csv(run: Run) -> None:
    rows = "".join(f"{i % 11},{i % 7 + 0.5},{i % 5 + 0.25}\n" for i in range(60))
    Path("t.csv").write_text(f"hours,kilos,metres\n{rows}")
    run("train", "t.csv", "--target", "kilos,metres", *TRAIN, "--out", "run").done()
    head, first, *_ = run("predict", "run", "t.csv", "--csv").done().splitlines()
    assert head == "name,kilos,metres"
    assert [float(cell) for cell in first.split(",")[1:]] == Predictor("run")("t.csv")[0].label
