"""An exported file answers as fallow does, on raw examples and any number of them."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

import fallow
from fallow import Predictor, RequestError
from fallow.data import load
from fallow.training import export as exporting
from tests.cli.conftest import Run
from tests.conftest import small_images

SHORT = {"generations": 1, "epochs": 2, "batch_size": 16, "augment": "none"}
ONNX = pytest.mark.skipif(not (find_spec("onnx") and find_spec("onnxruntime")), reason="the extra export")


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("export") / "run"
    fallow.fit("scnn:width=4,dense=8,norm=batch", "digits", train=200, out=out, **SHORT)
    return out


def answers(file: Path, x: np.ndarray) -> np.ndarray:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    return session.run(None, {"examples": x})[0]


@ONNX
def test_onnx_agrees_with_predict_on_every_test_label(digits: Path) -> None:
    x = load("digits").test.x
    file = fallow.export(digits)
    predictor = Predictor(digits)
    found, wanted = answers(file, x.numpy()), predictor.target.decode(predictor.logits(x))
    assert file.name == "model.onnx"
    assert np.abs(found - wanted.numpy()).max() < 1e-5
    said = [predictor.classes[place] for place in found.argmax(1)]
    assert said == [each.label for each in predictor(x)]
    assert answers(file, x[:1].numpy()).shape == (1, 10)  # any batch size

    import onnx

    about = {each.key: each.value for each in onnx.load(file).metadata_props}
    assert json.loads(about["names"]) == [str(digit) for digit in range(10)]
    assert json.loads(about["shape"]) == [1, 8, 8]
    assert about["kind"] == "classes"


def test_torch_programs_agree_and_carry_their_description(digits: Path) -> None:
    x = load("digits").test.x
    extra = {"fallow.json": ""}
    program = torch.export.load(fallow.export(digits, format="torch"), extra_files=extra)
    predictor = Predictor(digits)
    torch.testing.assert_close(
        program.module()(x).double(), predictor.target.decode(predictor.logits(x)), atol=1e-6, rtol=0
    )
    assert json.loads(extra["fallow.json"])["names"][3] == "3"


@pytest.mark.parametrize("format", ["torch", pytest.param("onnx", marks=ONNX)])
def test_numbers_come_in_their_own_units(tmp_path: Path, format: str) -> None:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(60, 3)).astype(np.float32) * [1, 10, 100]
    fallow.fit("mlp:hidden=8", (x, 1000 + x.sum(1)), out=tmp_path / "run", **SHORT)
    file = fallow.export(tmp_path / "run", format=format)
    rows = torch.tensor(x[:5], dtype=torch.float32)
    found = answers(file, rows.numpy()) if format == "onnx" else torch.export.load(file).module()(rows).numpy()
    wanted = [each.label for each in Predictor(tmp_path / "run")(rows)]
    assert found.shape == (5, 1)
    np.testing.assert_allclose(found[:, 0], wanted, rtol=1e-5)


def test_resizing_is_inside(tmp_path: Path) -> None:
    from fallow.data.targets import Classes
    from fallow.models.scaled import Scaled

    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 20 * 20, 4))
    scaled = Scaled(network, torch.tensor([100.0, 110.0, 120.0]), torch.tensor([50.0, 60.0, 70.0]), 20)
    x = torch.randint(0, 256, (3, 3, 12, 9), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    target = Classes(["a", "b", "c", "d"])
    found = exporting.Answers(scaled, target, 2.0, (3, 12, 9))(x)
    torch.testing.assert_close(found.double(), target.decode(scaled(x) / 2), atol=1e-6, rtol=0)


def test_a_winner_with_several_labels(tmp_path: Path) -> None:
    data = small_images()
    y = torch.stack([data.train.y == 0, data.train.y < 2], 1).float()
    fallow.fit("scnn:width=4", (data.train.x, y), out=tmp_path / "run", **SHORT)
    program = torch.export.load(fallow.export(tmp_path / "run", format="torch")).module()
    predictor = Predictor(tmp_path / "run")
    torch.testing.assert_close(
        program(data.test.x).double(), predictor.target.decode(predictor.logits(data.test.x)), atol=1e-6, rtol=0
    )


def test_a_folder_that_is_not_there_is_made(digits: Path, tmp_path: Path) -> None:
    assert fallow.export(digits, tmp_path / "for" / "others" / "digits.pt2").exists()


def test_the_verb(run: Run, digits: Path) -> None:
    assert "any batch size" in run("export", digits, "--format", "torch", "--to", "small.pt2").done()
    assert Path("small.pt2").exists()


def test_the_model_of_a_table_says_what_it_takes(run: Run, tmp_path: Path) -> None:
    rows = [f"{20 + i if i % 7 else ''},{'ab'[i % 2]},{'yes' if i % 4 < 2 else 'no'}" for i in range(60)]
    Path("wards.csv").write_text("\n".join(["age,ward,ill", *rows]))
    run("train", "wards.csv", "--target", "ill", "--epochs", 1, "--generations", 1, "--out", "run").done()
    said = run("export", "run", "--to", "wards.pt2").done()
    assert "encoded features of a table's rows in, probabilities out" in said
    extra = {"fallow.json": ""}
    program = torch.export.load("wards.pt2", extra_files=extra).module()
    about, predictor = json.loads(extra["fallow.json"]), Predictor("run")
    assert about["input"] == "encoded features of a table's rows"
    assert about["features"] == ["age", "ward=a", "ward=b", "age is missing"]
    assert predictor.table is not None
    gap = predictor.table.encode(predictor.table.raw({"age": [""], "ward": ["b"]}))
    assert dict(zip(about["features"], gap[0].tolist(), strict=True)) == {
        "age": 0, "ward=a": 0, "ward=b": 1, "age is missing": 1,
    }  # fmt: skip
    assert program(gap).shape == (1, 2)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--format", "onx"), "unknown format 'onx': did you mean 'onnx'?"),
        (("--to", "model.pb"), "model.pb should end in .onnx or .pt2"),
        (("--to", "model.pt2", "--format", "onnx"), "model.pt2 ends in .pt2: onnx files end in .onnx"),
        (("--weights", "bets", "--format", "torch"), "unknown weights 'bets'"),
    ],
)
def test_mistakes(run: Run, digits: Path, words: tuple[str, ...], line: str) -> None:
    assert line in run("export", digits, *words).refused()


def test_a_missing_extra_is_named(digits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "find_spec", lambda name: None)
    with pytest.raises(RequestError, match=r"fallow\[export\]"):
        fallow.export(digits)


def test_what_torch_cannot_export_is_named(tmp_path: Path, run: Run) -> None:
    Path("odd.py").write_text(
        "from torch import nn\n"
        "class Odd(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.head = nn.Linear(64, 10)\n"
        "    def forward(self, x):\n"
        "        return self.head(x.flatten(1)) * (2 if float(x.sum()) > 0 else 1)\n"
        "def net():\n    return Odd()\n"
    )
    run("train", "digits", "--model", "odd:net", "--epochs", 1, "--generations", 1, "--train", 60, "--out", "run")
    assert "torch cannot export this network" in run(
        "export", "run", "--model", "odd:net", "--format", "torch"
    ).refused(1)


@pytest.mark.parametrize("best", ["forest", "neighbours", "linear", "majority"])
def test_yardsticks_that_win_are_exported_too(best: str) -> None:
    from sklearn.ensemble import ExtraTreesClassifier

    from fallow.data.targets import Classes
    from fallow.models.forest import Forest, bagged
    from fallow.models.scaled import Scaled
    from fallow.models.yardsticks import Constant, Linear, Neighbours

    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(80, 5, generator=draw), torch.arange(80) % 3
    if best == "forest":
        grown = ExtraTreesClassifier(7, random_state=0).fit(x.numpy(), y.numpy())
        network: torch.nn.Module = Forest(**bagged([grown], 3, "classes"))
    elif best == "neighbours":
        network = Neighbours(x, torch.eye(3)[y], 4)
    else:
        network = Linear(torch.randn(3, 5), torch.randn(3)) if best == "linear" else Constant(torch.randn(3))
    scaled, target = Scaled(network, x.mean(0), x.std(0)), Classes(["a", "b", "c"])
    answers = exporting.Answers(scaled, target, 0.7, (5,)).eval()
    with exporting._quiet():
        program = exporting.exported(answers, torch.zeros(2, 5))
    found = program.module()(x + 0.1)
    torch.testing.assert_close(found.double(), target.decode(scaled(x + 0.1) / 0.7), atol=1e-6, rtol=0)
