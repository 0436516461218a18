"""MiniLM against the library that published it: what it reads, what it gives, and the ways in which it is used."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import fallow
from fallow.base.errors import RequestError
from fallow.comparison.yardsticks import Measured
from fallow.data import load
from fallow.data.texts import SEGMENT
from fallow.models import build, minilm, starts_trained
from fallow.problems import as_problem
from fallow.training.recipes import recipe
from fallow.training.yardsticks import on_pretrained

FOLDER = minilm.published()
pytestmark = pytest.mark.skipif(FOLDER is None, reason="the extra text is not installed")
WEATHER = ["it rains in town", "snow fell all night", "a storm is near", "the sun is out", "fog and hail again"]
FOOD = ["soup with fresh bread", "she bakes a cake", "rice, beans and pepper", "an apple a day", "he fries an egg"]


def texts() -> tuple[np.ndarray, np.ndarray]:
    """Forty sentences on two topics, of which no word is in two."""
    x = [f"{sentence}{mark}" for sentence in WEATHER + FOOD for mark in (".", "!", "?", "")]
    return np.array(x), np.repeat([0, 1], len(x) // 2)


@pytest.fixture(scope="module")
def theirs():
    """The mean vectors of texts by the library's own network and tokeniser."""
    from transformers import AutoModel, AutoTokenizer

    network, tokeniser = AutoModel.from_pretrained(FOLDER).eval(), AutoTokenizer.from_pretrained(FOLDER)

    def vectors(each: list[str], longest: int = 128) -> torch.Tensor:
        given = tokeniser(each, padding=True, truncation=True, max_length=longest, return_tensors="pt")
        mask = given["attention_mask"][..., None]
        with torch.no_grad():
            return (network(**given).last_hidden_state * mask).sum(1) / mask.sum(1)

    return vectors


def test_texts_have_the_vectors_of_the_publishers_own_network(theirs) -> None:
    each = ["A dog runs.", "Café naïve, 很好! " * 3, "", "word " * 60]
    network = build("minilm:length=40", shape=(1, 99), classes=2).eval()
    with torch.no_grad():
        found = network.features(network.tokens([(text,) for text in each]))
    torch.testing.assert_close(found, theirs(each, 40), atol=1e-5, rtol=1e-5)


def test_its_blocks_run_in_order_and_all_learn() -> None:
    network = build("minilm:pretrained=false", shape=(1, 9), classes=2)
    calls = []
    for path, module in network.named_modules():
        module.register_forward_pre_hook(lambda *_, path=path: calls.append(path))
    network(network.tokens([("it rains",), ("snow",)])).square().sum().backward()
    assert [path for path in calls if path in (*network.blocks, "head")] == [*network.blocks, "head"]
    assert all(p.grad is not None for p in network.parameters())


def test_of_a_pair_each_text_is_read_by_itself(theirs) -> None:
    network = build("minilm", shape=(2, 99), classes=2).eval()
    pairs = [("the longer text of a pair", "short"), ("x", "the second one is longer here"), ("", "")]
    tokens = network.tokens(pairs)
    assert tokens[0, SEGMENT].max() == 1
    with torch.no_grad():
        found = network.features(tokens)
    u, v = (theirs([pair[k] for pair in pairs]) for k in (0, 1))
    torch.testing.assert_close(found, torch.cat([u, v, (u - v).abs(), u * v], 1), atol=1e-5, rtol=1e-5)


def test_a_head_on_its_features_tells_meanings_that_words_do_not(tmp_path: Path) -> None:
    x, y = texts()
    held = np.arange(len(x)) % 20 < 4  # a sentence of each topic that training never sees a word of
    data = load(((x[~held], y[~held]), (x[held], y[held])), val=0.25)
    result = fallow.fit("minilm", data, freeze="head", generations=1, epochs=20, out=tmp_path / "run")
    assert result.last["test_accuracy"] == 1.0
    labels = [
        found.label for found in fallow.Predictor(tmp_path / "run")(np.array(["hail and rain", "a cake and an egg"]))
    ]
    assert labels == ["0", "1"]
    (row,) = on_pretrained(data, folder=tmp_path / "features")
    assert (row.name, row.metrics["test"]["accuracy"]) == ("logistic on minilm features", 1.0)
    assert Measured("texts", row.name, [], [], [], []).network == "minilm"
    assert list((tmp_path / "features").glob("*/*.safetensors"))  # kept for other splits


def test_its_recipe_tunes_with_care_and_trains_a_head_fast() -> None:
    data = load(texts(), val=0.2)
    assert recipe(data, "minilm")["lr"] == 1e-4
    assert recipe(data, "minilm", frozen=True)["lr"] == 0.01
    assert recipe(data, "minilm")["epochs"] <= recipe(data, "bag")["epochs"]


def test_from_its_initialisation() -> None:
    assert starts_trained("minilm")
    assert not starts_trained("minilm:pretrained=false")
    network = build("minilm:pretrained=false", shape=(1, 9), classes=2)
    assert float(network.encoder.embeddings.word_embeddings.weight.detach().std()) == pytest.approx(0.02, rel=0.02)


def test_pictures_are_no_texts() -> None:
    with pytest.raises(RequestError, match=r"minilm reads texts, and these are examples of shape \(1, 8, 8\)"):
        fallow.fit("minilm", "digits")


def test_without_the_extra(monkeypatch) -> None:
    monkeypatch.setattr(minilm, "find_spec", lambda name: None)
    with pytest.raises(RequestError, match=r"pip install 'fallow\[text\]'"):
        as_problem(texts(), seed=0).network("minilm")
    assert on_pretrained(load(texts(), val=0.2)) == []
