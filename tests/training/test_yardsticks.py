"""Yardsticks against scikit-learn, and against themselves once they are kept and rebuilt."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from scipy.sparse import csr_array
from sklearn import ensemble
from sklearn.datasets import load_diabetes
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor

from fallow.data import Data, load
from fallow.data.texts import WORD, to_strings
from fallow.evaluate.heads import principal
from fallow.evaluate.metrics import labels_f1
from fallow.models import build, forest, words
from fallow.models.forest import Forest
from fallow.models.lite0 import published
from fallow.models.scaled import Scaled
from fallow.models.words import Words, spanned
from fallow.models.yardsticks import rebuilt
from fallow.training.predict import Predictor
from fallow.training.yardsticks import KS, Yardstick, keep, on_pretrained, relearned, yardsticks


@pytest.fixture(scope="module")
def digits() -> Data:
    return load("digits", train=200)


@pytest.fixture(scope="module")
def diabetes() -> Data:
    x, y = load_diabetes(return_X_y=True)
    return load((x.astype(np.float32), y.astype(np.float32)), target="numbers")


@pytest.fixture(scope="module")
def several() -> Data:
    """Three labels of four values, one of them rare and one that no training example has."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(200, 4, generator=draw)
    y = torch.stack([x[:, 0] > 0, x[:, 1] + x[:, 2] > 1, torch.zeros(200).bool()], 1).to(torch.uint8)
    return load((x, y), target="labels")


def by_name(data: Data, **how) -> dict[str, Yardstick]:
    return {each.name: each for each in yardsticks(data, **how)}


def scaled(data: Data, part: str) -> np.ndarray:
    mean, std = data.mean.numpy(), data.std.numpy()
    x = getattr(data, part).x.float().numpy()
    return ((x - mean.reshape(-1, *[1] * (x.ndim - 2))) / std.reshape(-1, *[1] * (x.ndim - 2))).reshape(len(x), -1)


def test_classes(digits: Data) -> None:
    found = by_name(digits)
    assert list(found) == ["majority", "logistic", "k-NN", "extra trees"]
    x, y = scaled(digits, "train"), digits.train.y.numpy()
    penalty = found["logistic"].chosen["strength"] * float(principal(torch.from_numpy(x)).scale)
    exact = LogisticRegression(C=1 / penalty, tol=1e-8, max_iter=5000).fit(x.astype(np.float64), y)
    theirs = exact.predict_proba(scaled(digits, "test").astype(np.float64))
    ours = digits.target.decode(found["logistic"].outputs["test"]).numpy()
    np.testing.assert_allclose(ours, theirs, atol=2e-3)
    k = int(found["k-NN"].chosen["k"])
    theirs = KNeighborsClassifier(k, algorithm="brute").fit(x, y).score(scaled(digits, "test"), digits.test.y.numpy())
    assert found["k-NN"].metrics["test"]["accuracy"] == pytest.approx(theirs, abs=2 / len(digits.test))  # ties
    accuracy = {name: each.metrics["test"]["accuracy"] for name, each in found.items()}
    assert accuracy["majority"] < 0.15
    assert min(accuracy["logistic"], accuracy["k-NN"], accuracy["extra trees"]) > 0.85
    for each in found.values():
        assert torch.isfinite(each.outputs["val"]).all()
        assert torch.equal(each.outputs["test_y"], digits.test.y)
        assert each.seconds > 0


@pytest.mark.parametrize("metric", ["accuracy", "log-loss", "ece"])
def test_validation_chooses_by_the_metric_that_is_asked_for(digits: Data, metric: str) -> None:
    found = by_name(digits, metric=metric)["k-NN"]
    judge, sign = digits.target.metric(metric), 1 if digits.target.metric(metric).higher else -1
    values = {}
    for found.network.k in KS:
        output = found.network(torch.from_numpy(scaled(digits, "val")))
        values[found.network.k] = sign * judge.compute(digits.target.decode(output).numpy(), digits.val.y.numpy())
    assert values[int(found.chosen["k"])] == max(values.values())
    assert sign * found.metrics["val"][metric] == pytest.approx(max(values.values()))


def test_numbers(diabetes: Data) -> None:
    found = by_name(diabetes)
    assert list(found) == ["mean", "ridge", "k-NN", "extra trees", "boosted trees"]
    x, y = scaled(diabetes, "train"), diabetes.train.y.numpy()
    penalty = found["ridge"].chosen["strength"] * float(principal(torch.from_numpy(x)).scale)
    theirs = Ridge(penalty).fit(x, y).predict(scaled(diabetes, "test"))
    np.testing.assert_allclose(diabetes.target.decode(found["ridge"].outputs["test"])[:, 0].numpy(), theirs, rtol=1e-4)
    k = int(found["k-NN"].chosen["k"])
    theirs = KNeighborsRegressor(k, algorithm="brute").fit(x, y).predict(scaled(diabetes, "test"))
    np.testing.assert_allclose(diabetes.target.decode(found["k-NN"].outputs["test"])[:, 0].numpy(), theirs, rtol=1e-4)
    assert found["mean"].metrics["test"]["r2"] == pytest.approx(0, abs=0.1)
    assert min(found[name].metrics["test"]["r2"] for name in ("ridge", "extra trees", "boosted trees")) > 0.2


def test_labels(several: Data) -> None:
    found = by_name(several)
    assert list(found) == ["majority", "logistic", "k-NN", "extra trees", "boosted trees"]
    assert found["majority"].metrics["test"]["macro-auroc"] == 0.5
    for name, least in (("logistic", 0.97), ("k-NN", 0.85), ("extra trees", 0.95), ("boosted trees", 0.9)):
        assert found[name].metrics["test"]["macro-auroc"] > least
        assert several.target.decode(found[name].outputs["test"])[:, 2].max() < 0.1  # nobody has the third


@pytest.mark.parametrize("seed", range(4))
def test_labels_are_given_about_as_often_as_they_are_there(seed: int) -> None:
    """AUROC does not see that a heavy penalty leaves every probability below one half; the loss does."""
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(160, 10))
    y = (x @ draw.normal(size=(10, 4)) + draw.normal(size=(160, 4)) > 2).astype(np.int64)
    data = load((x, y), seed=seed)
    (found,) = (each for each in yardsticks(data) if each.name == "logistic")
    said, truth = data.target.decode(found.outputs["test"]).numpy() >= 0.5, found.outputs["test_y"].numpy()
    theirs = [
        LogisticRegression().fit(data.train.x.numpy(), column).predict(data.test.x.numpy())
        for column in data.train.y.T.numpy()
    ]
    assert said.sum() > 0.7 * truth.sum()
    assert labels_f1(said, truth) > labels_f1(np.stack(theirs, 1), truth) - 0.1


@pytest.mark.parametrize("kind", ["digits", "diabetes", "several"])
def test_what_is_kept_gives_the_same_answers_for_examples_as_the_data_hold_them(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    data = request.getfixturevalue(kind)
    for each in yardsticks(data):
        save_file(dict(each.network.named_buffers()), tmp_path / "kept.safetensors")
        again = rebuilt(arrays=load_file(tmp_path / "kept.safetensors"), **each.kept)
        output = Scaled(again, data.mean, data.std)(data.test.x)
        torch.testing.assert_close(output, each.outputs["test"])


@pytest.mark.parametrize("boosted", [False, True])
@pytest.mark.parametrize("kind", ["digits", "two", "one", "diabetes", "several"])
def test_forests_are_those_of_scikit_learn(kind: str, boosted: bool, request: pytest.FixtureRequest) -> None:
    """Of many classes and of two, of a class that is alone, of numbers and of labels, one of which nobody has."""
    name = "HistGradientBoosting" if boosted else "ExtraTrees"
    how = {"random_state": 0} | ({"max_iter": 5} if boosted else {"n_estimators": 5})
    data = request.getfixturevalue(kind if kind in ("diabetes", "several") else "digits")
    x, y, outputs = scaled(data, "train"), data.train.y.numpy(), data.target.outputs
    if kind in ("two", "one"):
        x, y = x[y < (2 if kind == "two" else 1)], y[y < (2 if kind == "two" else 1)] + 3
    of = "numbers" if kind == "diabetes" else data.target.kind
    make = getattr(ensemble, name + ("Regressor" if of == "numbers" else "Classifier"))
    forests = [make(**how).fit(x, column) for column in (y.T if y.ndim > 1 else [y])]
    ours = Forest(of, boosted, **(forest.boosted if boosted else forest.bagged)(forests, outputs, of))
    test = scaled(data, "test")
    output = ours(torch.from_numpy(test)).numpy()
    for place, theirs in enumerate(forests):
        if of == "numbers":
            np.testing.assert_allclose(output[:, place], theirs.predict(test), rtol=1e-5)
            continue
        p = np.clip(theirs.predict_proba(test)[:, : len(theirs.classes_)], 1e-6, 1 - 1e-6)
        if of == "classes":
            whole = np.full_like(output, 1e-6)
            whole[:, theirs.classes_] = p
            np.testing.assert_allclose(np.exp(output), whole, rtol=1e-4, atol=1e-6)
        else:
            has = p[:, theirs.classes_ == 1].sum(1)
            np.testing.assert_allclose(1 / (1 + np.exp(-output[:, place])), has, rtol=1e-4, atol=2e-6)


def test_a_tree_that_turns_back_is_refused() -> None:
    """Nothing that was kept may make a prediction go round for ever."""
    nodes = {"feature": [0, 0], "threshold": [0.0, 0.0], "left": [1, 0], "right": [1, 0], "value": [[0.0], [0.0]]}
    made = {name: torch.tensor(values) for name, values in (nodes | {"roots": [0], "base": [0.0]}).items()}
    with pytest.raises(TypeError, match="turn back"):
        rebuilt("forest", made)


def test_masks_have_a_majority_alone() -> None:
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(20, 1, 6, 6, generator=draw), (torch.rand(20, 6, 6, generator=draw) > 0.8).long()
    data = load((x, y), target="dense")
    (only,) = yardsticks(data)
    assert only.name == "majority"
    assert only.outputs["test"].shape == (len(data.test), 2, 6, 6)
    assert only.metrics["test"]["dice"] == 0  # all is background


def reviews(count: int = 120) -> tuple[np.ndarray, np.ndarray]:
    draw, y = np.random.default_rng(0), np.arange(count) % 3
    common, own = [f"word{i}" for i in range(40)], [["good", "fine film"], ["bad", "dull plot"], ["odd", "strange"]]
    texts = [" ".join([*draw.choice(common, draw.integers(3, 30)), *draw.choice(own[k], 2)]) for k in y]
    return np.array([text.capitalize() + "!" for text in texts]), y


def test_words_of_texts_are_weighed_as_by_scikit_learn() -> None:
    texts, _ = reviews()
    network = Words.from_texts([(text,) for text in texts[:80]])
    theirs = TfidfVectorizer(token_pattern=WORD.pattern, ngram_range=(1, 2), sublinear_tf=True).fit(texts[:80])
    assert len(network.terms) == len(theirs.vocabulary_)
    ours, reference = network.vectors(network.tokens([(t,) for t in texts])), theirs.transform(texts)
    # the order of terms is another: what does not depend on it is compared
    np.testing.assert_allclose((ours @ ours.T).toarray(), (reference @ reference.T).toarray(), atol=1e-5)
    np.testing.assert_allclose(np.sort(ours.toarray(), 1), np.sort(reference.toarray(), 1), atol=1e-5)


@pytest.mark.parametrize("rows", [3000, 40])
def test_texts_have_a_yardstick_on_their_words(rows: int, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(words, "ROWS", rows)
    texts, y = reviews()
    data = load((texts, y))
    found = by_name(data)
    assert list(found) == ["majority", "logistic on words"]
    line = found["logistic on words"]
    assert line.metrics["test"]["accuracy"] > 0.9 > 0.5 > found["majority"].metrics["test"]["accuracy"]
    if rows > len(texts):  # all of the training texts: the head is that of scikit-learn
        known = TfidfVectorizer(token_pattern=WORD.pattern, ngram_range=(1, 2), sublinear_tf=True)
        x = known.fit_transform([text for (text,) in to_strings(data.train.x)])
        penalty = line.chosen["strength"] * float(principal(torch.from_numpy(x @ spanned(csr_array(x)))).scale)
        theirs = LogisticRegression(C=1 / penalty, tol=1e-8, max_iter=10_000).fit(x, data.train.y.numpy())
        given = theirs.predict_log_proba(known.transform([text for (text,) in to_strings(data.test.x)]))
        np.testing.assert_allclose(line.outputs["test"].log_softmax(1), given, atol=1e-3)
    keep(line, data, tmp_path)
    answers = Predictor(tmp_path)(np.array(["a good fine film", "bad dull", ""]))
    assert [answer.label for answer in answers][:2] == ["0", "1"]
    again = relearned(data, line.name, line.chosen)
    torch.testing.assert_close(again.outputs["test"], line.outputs["test"])


def test_pairs_of_texts_and_numbers_have_one_too() -> None:
    texts, y = reviews()
    pairs = np.stack([texts, np.roll(texts, 1)], 1)
    found = by_name(load((pairs, y.astype(np.float32)), target="numbers"))
    assert list(found) == ["mean", "ridge on words"]
    assert found["ridge on words"].metrics["test"]["rmse"] < 0.7 * found["mean"].metrics["test"]["rmse"]


def test_without_validation_there_is_still_a_yardstick() -> None:
    found = by_name(load("digits", train=100, val=0.0))
    assert set(found["k-NN"].outputs) == {"test", "test_y"}
    assert found["k-NN"].chosen == {"k": 5}


@pytest.mark.skipif(published() is None, reason="the extra pretrained is not installed")
def test_pictures_have_a_yardstick_on_pretrained_features(tmp_path: Path) -> None:
    """Its outputs are those of lite0 with the head that was found."""
    draw = torch.Generator().manual_seed(0)
    y = torch.arange(24) % 2
    x = torch.randint(0, 100, (24, 3, 16, 16), generator=draw)
    x[y == 1, 0] += 150  # red ones
    data = load((x.to(torch.uint8).numpy(), y.numpy()))
    (found,) = on_pretrained(data, folder=tmp_path)
    assert (found.name, found.inputs) == ("logistic on lite0 features", "lite0")
    assert found.metrics["test"]["accuracy"] == 1
    network = build("lite0", shape=(3, 16, 16), classes=2).eval()
    with torch.no_grad():
        network.head.weight.copy_(found.network.weight)
        network.head.bias.copy_(found.network.bias)
        whole = Scaled(network, torch.tensor([127.0] * 3), torch.tensor([128.0] * 3), 128)(data.test.x)
    torch.testing.assert_close(found.outputs["test"], whole, rtol=1e-3, atol=1e-3)
    assert on_pretrained(load("digits", train=50)) == []  # no photographs: 8 pixels a side


def test_without_the_weights_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fallow.models.lite0.published", lambda: None)
    x, y = torch.randint(0, 256, (20, 3, 16, 16)).to(torch.uint8).numpy(), (torch.arange(20) % 2).numpy()
    assert on_pretrained(load((x, y))) == []


def test_many_classes_of_few_examples() -> None:
    """scikit-learn would warn, for every tree, that they may be numbers."""
    x = torch.randn(90, 4, generator=torch.Generator().manual_seed(0))
    found = by_name(load((x + 5 * (torch.arange(90) % 30)[:, None], torch.arange(90) % 30)))
    assert found["extra trees"].metrics["test"]["accuracy"] > 0.2
