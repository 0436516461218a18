"""Wrong requests: one line that says what is wrong and what would be right, exit code 2, nothing left behind."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

from fallow import cli
from tests.cli.conftest import Run

FAST = ("--epochs", 2, "--generations", 2, "--model", "mlp:hidden=4,4", "--out", "out")


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["--method", "sael"], "unknown method 'sael': did you mean 'seal'?"),
        (["--method", "seal:scal=1"], "unknown setting of seal 'scal': did you mean 'scale'?"),
        (["--method", "seal:scale=big"], "scale of seal cannot be 'big'"),
        (["--method", "llf+born-again"], "do not go together"),
        (["--model", "scn"], "unknown model 'scn': did you mean 'scnn'?"),
        (["--model", "mlp:hiden=3"], "unknown setting of model mlp 'hiden': did you mean 'hidden'?"),
        (["--model", "mlp:hidden=zero"], "hidden of model mlp cannot be 'zero'"),
        (["--method", "llf", "--split", "hiden2"], "unknown module 'hiden2': did you mean 'hidden2'?"),
        (["--method", "llf", "--split", "7"], "split=7 does not fit a model of 2 blocks: 1 to 2 would"),
        (["--method", "llf", "--split", "1.5"], "split=1.5 is not a fraction of the blocks"),
        (["--method", "llf", "--split", "hidden1"], "leaves no early layer"),
        (["--method", "seal", "--epochs", "1"], "has none left to relearn"),
        (["--optimizer", "adam"], "unknown optimizer 'adam': did you mean 'adamw'?"),
        (["--schedule", "cosin"], "unknown schedule 'cosin': did you mean 'cosine'?"),
        (["--precision", "fp16"], "unknown precision 'fp16': did you mean 'bf16'?"),
        (["--augment", "flop"], "did you mean 'flip'?"),
        (["--device", "gpu"], "device 'gpu' cannot be used here"),
        (["--devices", "0"], "devices is 0"),
        (["--threads", "0"], "threads is 0: give 1 to"),
        (["--lr", "-1"], "lr is -1.0: it must be above 0"),
        (["--lr", "nan"], "lr is nan: it must be a finite number"),
        (["--warmup", "inf"], "warmup is inf"),
        (["--epochs", "0"], "epochs is 0: it must be a whole number from 1"),
        (["--epochs", "two"], "Invalid value for '--epochs'"),
        (["--generations", "0"], "generations is 0"),
        (["--batch-size", "0"], "batch_size is 0"),
        (["--accumulate", "64"], "accumulate is 64: it must be at most the batch size"),
        (["--seed", "-1"], "seed is -1"),
        (["--patience", "0"], "patience is 0"),
        (["--patience", "2", "--val", "0"], "patience waits for a lower validation loss"),
        (["--val", "1.5"], "val"),
        (["--val", "nan"], "val"),
        (["--train", "0"], "train"),
        (["--train", "-3"], "train"),
        (["--input-size", "8"], "has no size of its own: leave input_size=8 out"),
        (["--input-size", "-8", "--model", "lite0:pretrained=false"], "input_size is -8"),
        (["--eposch", "3"], "No such option: --eposch"),
    ],
)
def test_settings(words: list[str], answer: str, run: Run) -> None:
    assert answer in run("train", "synthetic", *FAST, *words).refused()
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["train"], "Missing argument 'data' (see fallow train --help)"),
        (["trian", "digits"], "No such command 'trian'"),
        (["list"], "Missing argument 'what' (see fallow list --help)"),
        (["list", "method"], "unknown catalogue 'method': did you mean 'methods'?"),
        (["--verbose"], "No such option: --verbose"),
    ],
)
def test_verbs(words: list[str], answer: str, run: Run) -> None:
    assert answer in run(*words).refused()


@pytest.mark.parametrize(
    ("data", "answer"),
    [
        ("digitz", "unknown data 'digitz': did you mean 'digits'?"),
        ("no/such/path", "there is no no/such/path"),
        ("gone.npz", "there is no gone.npz"),
        ("synthetic:alpha=-1", "alpha is -1"),
        ("synthetic:alhpa=1", "did you mean 'alpha'?"),
        ("empty", "no class folders"),
        ("text.txt", "is of an unknown kind"),
        ("damaged.npz", "is not a readable .npz"),
    ],
)
def test_data_that_is_not_there(data: str, answer: str, run: Run) -> None:
    Path("empty").mkdir()
    Path("text.txt").write_text("hello")
    Path("damaged.npz").write_bytes(b"PK\x03\x04 and no more")
    assert answer in run("train", data, *FAST).refused()
    assert not Path("out").exists()


X = np.zeros((40, 3), np.float32)
Y = np.arange(40) % 2


@pytest.mark.parametrize(
    ("arrays", "answer"),
    [
        ({"x": X, "y": Y[:-1]}, "39"),
        ({"x": X, "y": np.where(Y, 0.5, np.nan)}, "y"),
        ({"x": X, "y": np.append(Y[:-1], 2)}, "class '2' has 1 of the 3 examples"),
        ({"x": X}, "holds x without its labels"),
        ({"x": X, "y": Y.astype(object)}, "array of objects"),
        ({"x": np.full_like(X, np.nan), "y": Y}, ""),
    ],
)
def test_arrays_that_do_not_fit(arrays: dict, answer: str, run: Run) -> None:
    np.savez("data.npz", **arrays)
    assert answer in run("train", "data.npz", *FAST).refused()


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:50])


def test_a_damaged_image_is_skipped_and_noted(run: Run, images: Path) -> None:
    truncate(images / "cat" / "3.png")
    words = run("train", images, *FAST).done()
    assert "note: 1 unreadable image skipped: cat/3.png." in words


def test_damaged_images_only(run: Run, images: Path) -> None:
    for path in images.rglob("*.png"):
        truncate(path)
    line = run("train", images, *FAST).refused()
    assert line.startswith("16 of 16 images cannot be read, the first is")


def test_a_class_of_one_image(run: Run, images: Path) -> None:
    for i in range(1, 8):
        (images / "dog" / f"{i}.png").unlink()
    line = run("train", images, *FAST).refused()
    assert "class 'dog' has 1 of the 3 examples that training, validation, test need" in line


def test_an_error_of_several_lines_becomes_one(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from fallow.base.errors import WorkError
    from fallow.training import prepare as preparing

    def fit(*_: object, **__: object) -> None:
        raise WorkError("first\nsecond")

    monkeypatch.setattr(preparing, "prepare", fit)
    assert run("train", "digits").refused(1) == "first second"


def test_what_the_system_refuses_is_a_line_too(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from fallow.training import prepare as preparing

    def fit(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", "/root/x")

    monkeypatch.setattr(preparing, "prepare", fit)
    assert run("train", "digits").refused(1) == "/root/x: Permission denied"


def test_a_path_that_no_system_takes(run: Run) -> None:
    assert run("train", "digits", "--groups", "g" * 5000).refused().endswith(": File name too long")


def test_no_option_is_ignored() -> None:
    ignored = []
    for file in Path(cli.__file__).parent.glob("*.py"):
        for verb in (node for node in ast.parse(file.read_text("utf-8")).body if isinstance(node, ast.FunctionDef)):
            used = {node.id for statement in verb.body for node in ast.walk(statement) if isinstance(node, ast.Name)}
            options = {argument.arg for argument in [*verb.args.args, *verb.args.kwonlyargs]}
            ignored += [] if "locals" in used else [f"{verb.name}: {name}" for name in options - used]
    assert ignored == ["fallow: version"]  # which a callback answers


def test_a_bug_is_not_hidden(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from fallow.training import prepare as preparing

    def fit(*_: object, **__: object) -> None:
        raise KeyError("oops")

    monkeypatch.setattr(preparing, "prepare", fit)
    with pytest.raises(KeyError):
        run("train", "digits")


def test_names_in_data_cannot_steer_the_terminal(run: Run, images: Path) -> None:
    (images / "cat").rename(images / "\x1b[2Jcat")
    common = ("--model", "mlp:hidden=4", "--epochs", 1, "--generations", 1)
    outcomes = [
        run("train", images, *common, "--out", "evil"),
        run("predict", "evil", images),
        run("predict", "evil", images, "no\x1b[2J/file"),
        run("predict", "no\x1b[2J/run", images),
    ]
    assert [outcome.code for outcome in outcomes] == [0, 0, 1, 2]
    for outcome in outcomes:
        assert "\x1b" not in outcome.out + outcome.err
        assert "\\x1b[2J" in outcome.out + outcome.err
