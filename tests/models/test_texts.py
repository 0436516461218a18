"""Texts through the one door: bytes, tokens, padding per batch, the default network, Hugging Face's, predict."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fallow
from fallow.base.errors import RequestError
from fallow.data import load, stream
from fallow.data.texts import MASK, as_bytes, to_strings
from fallow.flatness import explain, relative_flatness
from fallow.models import build
from fallow.problems import as_problem
from fallow.reproduce.fam_rte import untrained
from fallow.training.prepare import prepare
from tests.flatness.reference import dense, distance

WORDS = ["sun", "rain", "snow", "wind", "fog", "hail", "été", "ice"]


def pairs(count: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Does the second text hold a word of the first?"""
    draw = np.random.default_rng(0)
    first = [list(draw.choice(WORDS, draw.integers(2, 6))) for _ in range(count)]
    y = np.arange(count) % 2
    second = [draw.choice(words if same else ["none"]) for words, same in zip(first, y, strict=True)]
    return np.array([[" ".join(a), b] for a, b in zip(first, second, strict=True)]), y


def test_strings_survive_as_bytes() -> None:
    x, _ = pairs()
    held = as_bytes({"train": x, "test": x[:3, :]})
    assert held["train"].dtype == torch.int8
    assert held["train"].shape[1:] == held["test"].shape[1:]
    assert to_strings(held["train"]) == [tuple(row) for row in x.tolist()]
    assert to_strings(as_bytes({"train": np.array(["", ""])})["train"]) == [("",), ("",)]


@pytest.mark.parametrize("names", [("s1", "s2"), ("premise", "hypothesis"), ("Sentence1", "Sentence2")])
def test_an_archive_of_pairs(tmp_path, names) -> None:
    x, y = pairs()
    arrays = {f"{name}_{part}": x[:, k] for k, name in enumerate(names) for part in ("train", "dev")}
    np.savez(tmp_path / "pairs.npz", y_train=y, y_dev=y, **arrays)
    data = load(tmp_path / "pairs.npz")
    assert data.texts
    assert data.understood().startswith("120 pairs of texts, 2 classes, 48 for training, 60 for validation")
    assert data.mean is None


def test_texts_are_padded_to_the_longest_of_a_batch() -> None:
    x, y = pairs()
    problem = as_problem((x, y), seed=0)
    problem.network("bag:words=64")
    lengths = set()
    for tokens, _ in stream(problem.data.train, problem.data, batch_size=2, seed=0).epoch(0):
        assert tokens.dtype == torch.int64
        assert tokens[:, MASK].any(0).all()  # no column of padding alone
        lengths.add(tokens.shape[2])
    assert len(lengths) > 1


def test_the_default_network_learns_and_predicts(tmp_path) -> None:
    x, y = pairs(160)
    labels = np.array(["no", "yes"])[y]
    result = fallow.fit(None, (x, labels), generations=1, epochs=8, lr=0.01, out=tmp_path / "run")
    assert type(result.network).__name__ == "Bag"
    assert result.last["test_accuracy"] > 0.8
    predictor = fallow.Predictor(tmp_path / "run")
    found = predictor(x[:20])
    logits = result.model(as_bytes({"x": x[:20]})["x"])
    best = torch.tensor([p.confidence for p in found], dtype=torch.float64)
    assert torch.allclose(best, logits.double().softmax(1).max(1).values, atol=1e-6)
    (tmp_path / "new.txt").write_text("sun rain\tsun\nfog\tnone\n", "utf-8")
    np.savez(tmp_path / "new.npz", s1=x[:3, 0], s2=x[:3, 1])
    found = predictor([tmp_path / "new.txt", tmp_path / "new.npz", tmp_path / "none.txt"])
    assert [p.name.rpartition("/")[2] for p in found] == [
        "new.txt:0",
        "new.txt:1",
        "new.npz:0",
        "new.npz:1",
        "new.npz:2",
    ]
    assert list(found.failed) == [str(tmp_path / "none.txt")]
    (tmp_path / "odd.txt").write_text("sun\train\nfog\n", "utf-8")
    with pytest.raises(RequestError, match=r"line 2 of .*odd.txt has 1 text: give 2, separated by a tab"):
        predictor([tmp_path / "odd.txt"])


def test_the_recipe_has_its_own_optimizer() -> None:
    x, y = pairs()
    assert type(prepare(None, (x, y)).optimizer) is torch.optim.AdamW
    assert type(prepare(None, (x, y), optimizer="sgd").optimizer) is torch.optim.SGD


def test_strings_in_lists_and_in_columns_of_objects(tmp_path) -> None:
    x, y = pairs(40)
    texts = [*x[:-1, 0], "half a letter \ud800"]
    for given in (texts, np.array(texts, object), np.array(texts)):
        data = load((given, y))
        assert data.understood().startswith("40 texts, 2 classes")
        assert data.content() == load((np.array(texts), y)).content()
    assert load((x.tolist(), y)).shape[0] == 2
    with pytest.raises(RequestError, match="x of train holds None among its texts: give '' where there is none"):
        load((np.array([None, *texts[1:]], object), y))
    fallow.fit(None, (np.array(texts), y), generations=1, epochs=1, out=tmp_path / "run")
    predictor = fallow.Predictor(tmp_path / "run")
    assert predictor(np.array(texts[:3], object)) == predictor(np.array(texts[:3]))
    for nothing in (np.zeros((3, 4)), np.array([], str)):
        with pytest.raises(RequestError, match="the array holds no texts, and the model was trained on texts"):
            predictor(nothing)
    with pytest.raises(RequestError, match=r"sun rain: name \.npz, .* or give an array of strings"):
        predictor(["sun rain"])
    with pytest.raises(RequestError, match="is a folder: name"):
        predictor(tmp_path)


def test_files_of_texts_are_read_as_tables_are(tmp_path) -> None:
    """In UTF-16 a line was letters parted by zeros; a mark of Unicode's that parts lines parted a text."""
    x, y = pairs(40)
    fallow.fit(None, (x[:, 0], y), generations=1, epochs=1, out=tmp_path / "run")
    predictor, texts = fallow.Predictor(tmp_path / "run"), ["été, sun\u2028and rain", "ice"]
    for encoding in ("utf-8-sig", "utf-16"):
        (tmp_path / "new.txt").write_bytes("\r\n".join([*texts, ""]).encode(encoding))
        assert [p[:2] for p in predictor(tmp_path / "new.txt")] == [p[:2] for p in predictor(np.array(texts))]
    (tmp_path / "odd.txt").write_text("\nsun\nfog\train\n")
    with pytest.raises(RequestError, match=r"line 3 of .*odd.txt has 2 texts: give 1"):
        predictor(tmp_path / "odd.txt")


def test_what_cannot_be() -> None:
    x, y = pairs()
    with pytest.raises(RequestError, match="mlp reads no texts: take bag, minilm, or hf:FOLDER"):
        fallow.fit("mlp", (x, y))
    with pytest.raises(RequestError, match="bag reads texts, and these are examples"):
        fallow.fit("bag", "digits")
    with pytest.raises(RequestError, match="bag reads texts, and these are none"):
        fallow.fit("bag", (np.random.randn(20, 2, 40).astype(np.float32), y[:20]))
    with pytest.raises(RequestError, match="augment=flip moves pictures, and these are texts"):
        fallow.fit("bag", (x, y), augment="flip")
    with pytest.raises(RequestError, match="mixup averages inputs, and texts have no average: use dropout"):
        fallow.fit("bag", (x, y), "mixup")
    with pytest.raises(RequestError, match="cutmix cuts boxes from images or signals, and these are texts"):
        fallow.fit("bag", (x, y), "cutmix")
    with pytest.raises(RequestError, match="give a text for each example, or two"):
        load((np.array([["a", "b", "c"]] * 4), np.arange(4) % 2))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    pytest.importorskip("transformers")
    return untrained(tmp_path_factory.mktemp("bert"), [" ".join([*WORDS, "none"])], hidden=16, layers=1)


def test_a_folder_of_hugging_faces(folder, tmp_path) -> None:
    """From a config alone, it trains; asked again it is found finished; predict wants it named again."""
    x, y = pairs()
    spec = f"hf:{folder}:length=12"
    options = {"generations": 1, "epochs": 2, "lr": 1e-3, "optimizer": "adamw", "precision": "float64"}
    whole = fallow.fit(spec, (x, y), out=tmp_path / "run", **options)
    assert type(whole.network).__name__ == "Reader"
    assert not whole.network.pretrained
    again = fallow.fit(spec, (x, y), out=tmp_path / "run", resume=True, **options)
    assert again.last == whole.last
    with pytest.raises(RequestError, match="name it too"):
        fallow.Predictor(tmp_path / "run")
    found = fallow.Predictor(tmp_path / "run", model=spec, weights="last")(x[:4])
    wanted = whole.model.float().eval()(list(map(tuple, x[:4].tolist()))).softmax(1).max(1).values
    assert [p.confidence for p in found] == pytest.approx(wanted.tolist(), abs=1e-5)


def test_weights_are_safetensors_alone(folder, tmp_path) -> None:
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x04")
    x, y = pairs()
    with pytest.raises(RequestError, match=r"cannot be built"):
        fallow.fit(f"hf:{tmp_path}", (x, y))


def test_flatness_of_the_pooler_in_training_mode_is_the_dense_hessians(folder) -> None:
    """With dropout before and after it, tanh behind it: κ and its gradient by every parameter, in float64."""
    x, y = pairs(6)
    torch.manual_seed(0)
    net = build(f"hf:{folder}", shape=(2, 9), classes=2).double().train()
    assert any(m.p > 0 for m in net.modules() if isinstance(m, torch.nn.Dropout))
    tokens, wanted = net.tokens([tuple(row) for row in x.tolist()]), torch.from_numpy(y)
    path = "network.bert.pooler.dense"
    assert explain(net, path, tokens, wanted).form == "closed"
    reference = dense(net, path, tokens, wanted, torch.nn.functional.cross_entropy)
    assert distance(relative_flatness(net, path, tokens, wanted), reference, net) < 1e-10
