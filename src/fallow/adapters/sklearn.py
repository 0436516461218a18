"""fallow as scikit-learn estimators: in pipelines, grid searches and cross-validation like any other."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d, validate_data
from torch import Tensor, nn
from typing_extensions import Self

from fallow.data import load
from fallow.data.given import read_texts, shaped
from fallow.data.layout import layout, numeric
from fallow.data.scales import as_trained
from fallow.data.texts import texts_in
from fallow.training.fit import fit

BATCH = 1024  # examples at a time in a prediction
AXES = {1: "features", 2: "signals", 3: "images"}  # what examples of so many axes were read as; volumes have four


class _Estimator(BaseEstimator):
    """What the two share: the settings, the training, the network's output."""

    def __init__(
        self,
        method: str = "normal",
        model: nn.Module | str | None = None,
        *,
        generations: int | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        lr: float | None = None,
        weight_decay: float | None = None,
        inputs: str | None = None,
        val: float = 0.0,
        settings: dict[str, Any] | None = None,
        device: str = "auto",
        random_state: Any = None,
    ) -> None:
        self.method, self.model = method, model
        self.generations, self.epochs, self.batch_size = generations, epochs, batch_size
        self.lr, self.weight_decay, self.inputs, self.val = lr, weight_decay, inputs, val
        self.settings, self.device, self.random_state = settings, device, random_state

    def _train(self, x: NDArray[Any], y: NDArray[Any], target: str) -> None:
        """Train on all examples but the share ``val``; the network is kept on the CPU in double precision.

        So that what it says of an example does not depend, not even in the last bit that float32 has, on which others
        it is asked of together.
        """
        if len(x) < 2:
            raise ValueError(f"n_samples={len(x)} is too few to learn from: give at least 2")
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        data = load((x, y), val=float(self.val), test=0.0, target=target, as_=self.inputs, seed=seed)
        names = ("generations", "epochs", "batch_size", "lr", "weight_decay")
        asked = {name: value for name in names if (value := getattr(self, name)) is not None}
        options: dict[str, Any] = {"seed": seed, "device": self.device} | asked | (self.settings or {})
        result = fit(copy.deepcopy(self.model), data, self.method, **options)
        result.model.load_state_dict(result.best_state())
        self.row_, self.texts_ = x.shape[1:], data.texts
        self.shape_, self.target_, self.history_ = data.shape, data.target, result.history
        self.scale_: tuple[Tensor, Tensor, bool] | None = None
        if len(data.shape) > 2 and data.mean is not None and data.std is not None:
            self.scale_ = data.mean, data.std, data.pictures
        self.model_ = result.model.cpu().double().eval()

    @torch.no_grad()
    def _decoded(self, X: Any) -> NDArray[Any]:
        """What the network says of every example, in the target's terms."""
        check_is_fitted(self)
        x = self._read(self._checked(X, reset=False))
        if self.scale_ is not None:
            as_trained(x, *self.scale_)
        return self.target_.decode(torch.cat([self.model_(part) for part in x.split(BATCH)])).numpy()

    def _checked(self, X: Any, *y: Any, **how: Any) -> Any:
        """Validated as scikit-learn does; texts, of which it knows nothing, are a column."""
        if (texts := texts_in(X, "X")) is None:
            return validate_data(self, X, *y, allow_nd=True, **how)
        if not y:
            return texts
        check_consistent_length(texts, *y)
        return texts, column_or_1d(*y)

    def _read(self, X: NDArray[Any]) -> Tensor:
        """Examples that look like those that were fitted are read as they were, others as a Predictor reads them."""
        if self.texts_:
            return read_texts(X, self.shape_[0], "X")
        x = numeric(X, "X", as_=self.inputs)
        if x.shape[1:] != self.row_:
            return shaped(x, self.shape_)
        if len(self.shape_) == 2 and self.row_ == self.shape_[::-1] != self.shape_:  # steps × channels, as fit saw
            x = np.moveaxis(x, 1, 2)
        laid = layout({"train": x}, [], as_=AXES.get(len(self.shape_)))["train"]  # what fit saw in them, not guessed
        if tuple(laid.shape[1:]) != self.shape_:
            raise ValueError(f"X was read as examples of shape {tuple(laid.shape[1:])}: fit's were of {self.shape_}")
        return laid


class Classifier(ClassifierMixin, _Estimator):
    """A network that learns classes by one of fallow's methods.

    There is no ``sample_weight``: every example counts alike. Where classes are of unequal sizes, ``method="balanced"``
    weighs them. Sparse arrays are refused.

    Parameters
    ----------
    method : one of fallow's with its settings, as on the command line: "llf", "seal:share=0.3", "llf+sam". What needs
        more than labelled examples (few-shot, unlabelled images, a pretrained network) is refused when it is fitted.
    model : one of fallow's ("mlp:hidden=64"), "module:factory" of your own, or a module, of which a copy is trained;
        None: the network, and the settings that are None here, which the data's recipe has.
    generations, epochs, batch_size, lr, weight_decay : see :class:`fallow.Settings`.
    inputs : what a row is where its shape does not show it: "features", "images" (squares of pixels) or "signals".
    val : the share of the examples that is kept to choose the best epoch; 0: all are learned from, to the last epoch.
    settings : what else :func:`fallow.fit` takes, by name.
    device : to train on; predictions are made on the CPU.
    random_state : a number for the same bits every time, a generator, or None.

    Attributes
    ----------
    model_ : the trained network, its scaling inside; ``classes_``, ``history_`` (a row for every epoch), ``target_``.

    >>> from sklearn.datasets import load_wine
    >>> from sklearn.model_selection import cross_val_score
    >>> x, y = load_wine(return_X_y=True)
    >>> scores = cross_val_score(Classifier("llf", epochs=5, random_state=0), x, y, cv=3)
    >>> bool(scores.mean() > 0.9)
    True

    """

    def fit(self, X: Any, y: Any) -> Self:
        """Train a network from the start."""
        X, y = self._checked(X, y)
        check_classification_targets(y)
        self.classes_ = np.unique(y)
        if len(self.classes_) == 1:
            raise ValueError(f"there is only 1 class, {self.classes_[0]}: give examples of another")
        self._train(X, y, "classes")  # in the order of classes_, and messages name them
        return self

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """The probability of every class, by softmax."""
        return self._decoded(X)

    def predict(self, X: Any) -> NDArray[Any]:
        """The likeliest class."""
        found = self._decoded(X).argmax(1)
        return self.classes_[found]


class Regressor(RegressorMixin, _Estimator):
    """A network that learns a number, or several, by one of fallow's methods.

    Parameters and the rest are those of :class:`Classifier`.

    >>> from sklearn.datasets import load_diabetes
    >>> x, y = load_diabetes(return_X_y=True)
    >>> bool(Regressor(epochs=10, random_state=0).fit(x, y).score(x, y) > 0.4)
    True
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Train a network from the start."""
        X, y = self._checked(X, y, multi_output=True, y_numeric=True)
        self.flat_ = y.ndim == 1
        self._train(X, y, "numbers")
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """The numbers, in the units of those that were learned."""
        found = self._decoded(X)
        return found[:, 0] if self.flat_ else found

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
