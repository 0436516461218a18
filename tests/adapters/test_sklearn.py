"""scikit-learn's own checks pass, and the estimators work where scikit-learn's do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_digits, load_wine, make_regression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

from fallow.adapters.sklearn import Classifier, Regressor
from fallow.base.errors import RequestError
from fallow.data import load
from fallow.methods import REGISTRY

SHORT: dict[str, Any] = {"generations": 2, "epochs": 4, "random_state": 0}
X, Y = load_wine(return_X_y=True)


@parametrize_with_checks([Classifier(epochs=8, generations=1), Regressor(epochs=16, generations=1)])
def test_scikit_learns_own_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def test_in_a_search_over_methods_in_a_pipeline() -> None:
    """The scaling is inside fallow's network, and a pipeline may scale before it."""
    search = GridSearchCV(
        make_pipeline(StandardScaler(), Classifier(**SHORT)),
        {"classifier__method": ["normal", "llf"], "classifier__lr": [0.05]},
        cv=2,
    )
    search.fit(X, Y)
    assert search.best_score_ > 0.9
    assert search.predict_proba(X[:5]).shape == (5, 3)


def test_numbers_as_searches_draw_them() -> None:
    drawn = {"generations": np.int64(1), "epochs": np.int64(2), "batch_size": np.int32(16), "lr": np.float32(0.25)}
    found = Classifier(random_state=0, **drawn).fit(X, Y)
    plain = Classifier(random_state=0, **{name: value.item() for name, value in drawn.items()}).fit(X, Y)
    assert np.array_equal(found.predict_proba(X), plain.predict_proba(X))


def test_in_cross_validation() -> None:
    assert cross_val_score(Classifier("sam", **SHORT), X, Y, cv=2).mean() > 0.9
    x, y = make_regression(120, 5, random_state=0)
    assert cross_val_score(Regressor(epochs=60, random_state=0), x, y, cv=2).mean() > 0.5


@pytest.mark.filterwarnings("ignore:seal's ascent", "ignore:implicit-decay")  # in so few steps
@pytest.mark.parametrize("method", REGISTRY)
def test_every_method_fits_or_says_why_not(method: str) -> None:
    """What needs tasks, unlabelled images, pictures or a pretrained network is refused; all the others train."""
    kind = REGISTRY[method]
    model = Classifier(method, "mlp", val=0.25, **SHORT)
    if kind.tasks or kind.semi or kind.pretrained or method == "cutmix":
        with pytest.raises(RequestError):
            model.fit(X, Y)
    else:
        assert model.fit(X[::2], Y[::2]).score(X, Y) > 0.6


def test_a_number_of_random_state_gives_the_same_bits() -> None:
    first, second, other = (Classifier(**SHORT | {"random_state": seed}).fit(X, Y) for seed in (1, 1, 2))
    assert np.array_equal(first.predict_proba(X), second.predict_proba(X))
    assert not np.array_equal(first.predict_proba(X), other.predict_proba(X))


def test_a_module_of_ones_own_is_copied() -> None:
    own = nn.Sequential(nn.Linear(13, 8), nn.ReLU(), nn.Linear(8, 3))
    before = own[0].weight.detach().clone()
    found = clone(Classifier("llf", own, lr=0.05, **SHORT)).fit(X, Y)
    assert found.score(X, Y) > 0.6
    assert (own[0].weight == before).all()


def test_rows_of_pixels_are_images() -> None:
    x, y = load_digits(return_X_y=True)
    small = {"generations": 1, "epochs": 1, "random_state": 0, "settings": {"augment": "none"}}
    found = Classifier("cutmix", "scnn:width=4", inputs="images", lr=0.05, **small).fit(x[:300], y[:300])
    assert found.shape_ == (1, 8, 8)
    assert found.predict(x[:4]).shape == (4,)


def test_predictions_read_examples_as_fit_did() -> None:
    """Truth values, transparency, channels last: what is scored is what was trained on."""
    draw = np.random.default_rng(0)
    truths = draw.random((120, 6)) < 0.5
    pictures = draw.integers(0, 256, (120, 8, 8, 4), np.uint8)
    pictures[..., 3] = 200
    bright = np.where(pictures[..., 0].mean((1, 2)) > 127, "bright", "dark")
    pictures[bright == "bright", ..., 0] //= 4
    signals = np.cumsum(draw.normal(size=(120, 3, 16)), 2)
    for x, y, model in (
        (truths, np.where(truths[:, 0], "yes", "no"), "mlp"),
        (pictures, bright, "scnn:width=4"),
        (pictures[..., :3], bright, "scnn:width=4"),
        (pictures[..., 0] / 255, bright, "scnn:width=4"),
        (signals, signals[:, 0, -1] > 0, None),
    ):
        found = Classifier(model=model, generations=1, epochs=6, random_state=0, settings={"augment": "none"}).fit(x, y)
        trained_on = load((x, y), val=0.0, test=0.0).train.x
        assert np.allclose(found.predict_proba(x), found.model_(trained_on).softmax(1).detach())
        assert np.allclose(found.predict_proba(x[:3]), found.predict_proba(x)[:3])
        assert found.score(x, y) > 0.7


def test_classes_go_by_their_own_names() -> None:
    names = np.array(["solo", "duo", "trio"], object)[Y]
    names[names == "solo"] = "duo"
    names[0] = "solo"
    with pytest.raises(RequestError, match="'solo'"):
        Classifier(val=0.2, **SHORT).fit(X, names)
    found = Classifier(**SHORT).fit(X, np.array([10, 2, 7])[Y])
    assert found.target_.names == ("2", "7", "10")
    assert found.score(X, np.array([10, 2, 7])[Y]) > 0.9


def test_several_numbers() -> None:
    x, y = load_diabetes(return_X_y=True)
    found = Regressor(**SHORT).fit(x, np.stack([y, -y], 1)).predict(x)
    assert found.shape == (len(x), 2)


def test_a_table_of_pandas_keeps_its_names() -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(X, columns=[f"c{i}" for i in range(13)])
    found = Classifier(**SHORT).fit(table, pandas.Series(Y))
    assert list(found.feature_names_in_) == list(table.columns)
    assert (found.predict(table) == Classifier(**SHORT).fit(X, Y).predict(X)).all()


def test_refuses_in_a_line() -> None:
    with pytest.raises(TypeError, match="Sparse"):
        Classifier(**SHORT).fit(csr_array(X), Y)
    with pytest.raises(TypeError, match="sample_weight"):
        Classifier(**SHORT).fit(X, Y, sample_weight=np.ones(len(X)))  # type: ignore[call-arg]
    with pytest.raises(RequestError, match="did you mean 'lr'"):
        Classifier(settings={"lrr": 1.0}).fit(X, Y)


def test_texts() -> None:
    words = np.array([f"it was {('dull', 'fine')[i % 2]}, no{i}" for i in range(60)], object)
    model = Classifier(epochs=20, random_state=0).fit(list(words), ["bad", "good"] * 30)
    assert model.predict(np.array(["how fine", "dull"])).tolist() == ["good", "bad"]
    assert cross_val_score(Classifier(epochs=20, random_state=0), words, [0, 1] * 30, cv=3).mean() > 0.9
    assert Regressor(epochs=20, random_state=0).fit(words, np.tile([0.0, 1.0], 30)).score(words, [0, 1] * 30) > 0.5
    with pytest.raises(ValueError, match="X holds no texts, and the model was trained on texts"):
        model.predict(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.fit(words, [0, 1])


def test_truth_values_are_one_thing_in_fit_and_in_predict() -> None:
    """Black and white pixels are 0 and 255; rows of features 0 and 1."""
    drawn = np.random.default_rng(0).random((60, 64)) > 0.5
    side = np.arange(60) % 2
    drawn[side == 1, :32] = False
    model = Classifier(inputs="images", epochs=24, generations=1, random_state=0).fit(drawn, side)
    assert model.score(drawn, side) > 0.9
    assert np.array_equal(model.predict(drawn), model.predict(drawn.astype(np.uint8) * 255))


def test_images_on_another_scale_are_refused() -> None:
    images = np.random.default_rng(0).integers(0, 256, (40, 8, 8)).astype(np.uint8)
    model = Classifier("normal", "mlp:hidden=4", epochs=1, generations=1).fit(images, np.arange(40) % 2)
    with pytest.raises(RequestError, match="the scale cannot be right"):
        model.predict(images / 255)


def test_signals_of_steps_and_channels_are_read_as_fit_read_them() -> None:
    signals = np.random.default_rng(0).normal(size=(40, 32, 3))
    signals[::2, 5:9, 1] += 3
    model = Classifier(epochs=2, generations=1, random_state=0).fit(signals, np.arange(40) % 2)
    assert model.shape_ == (3, 32)
    again = Classifier(epochs=2, generations=1, random_state=0).fit(signals.transpose(0, 2, 1), np.arange(40) % 2)
    assert np.array_equal(model.predict_proba(signals), again.predict_proba(signals.transpose(0, 2, 1)))
