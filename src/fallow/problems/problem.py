"""What the loop asks of whatever is learned."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor, nn

from fallow import models
from fallow.base.errors import RequestError

if TYPE_CHECKING:
    from fallow.core.context import RunOptions
    from fallow.core.method import Method
    from fallow.core.settings import Settings
    from fallow.data.targets import Target
    from fallow.evaluate.metrics import Metric

Criterion = Callable[[Tensor, Tensor], Tensor]


class Network(NamedTuple):
    """A network for a problem, how to draw another (None: only the user knows), and what the record says of it."""

    module: nn.Module
    factory: Callable[[], nn.Module] | None
    described: str


class Problem(ABC):
    """Data, a target, and the metric that decides; subclasses know what their data are."""

    data: Any
    target: Target
    metric: Metric | None  # decides which weights are best; None: the loss does

    def accept(self, method: Method) -> Method:
        """The method, completed where this problem needs it; one that cannot learn it is refused with its reason."""
        for part in method.parts:
            if why := part.refuses(self):
                raise RequestError(f"{part.name} {why}")
        return method

    @property
    @abstractmethod
    def default_model(self) -> str:
        """What to take when no model is named."""

    def network(self, model: nn.Module | str | None, size: int | None = None) -> Network:
        """The network, from a module, a name, or None for the default; ``size`` is what a pretrained one sees."""
        if isinstance(model, nn.Module):
            if any(nn.parameter.is_lazy(parameter) for parameter in model.parameters()):
                raise RequestError("the model has layers without a shape yet: pass one batch through it first")
            shapes = [(name, tuple(p.shape)) for name, p in model.named_parameters()]
            digest = hashlib.sha256(json.dumps(shapes).encode()).hexdigest()[:12]
            return Network(model, None, f"{type(model).__module__}.{type(model).__qualname__} ({digest})")
        spec = self.default_model if model is None else model

        def factory(pretrained: bool = False) -> nn.Module:
            return models.build(spec, shape=self.data.shape, classes=self.target.outputs, pretrained=pretrained)

        return Network(factory(pretrained=True), factory, spec)

    @abstractmethod
    def streams(self, settings: Settings, engine: Any, run: RunOptions) -> dict[str, Any]:
        """The stream of every part; None where there is no such part."""

    def freeze(self, network: nn.Module, at: str | int | float) -> nn.Module:
        """What is trained of a network of which all that runs before ``at`` stays as it is."""
        raise RequestError(f"freeze={at} is for labelled examples: leave it out")

    def keep_units(self) -> None:  # noqa: B027 (most targets have none)
        """Answers are not scaled: the user's own loss is written for them as they are."""

    @abstractmethod
    def training_loss(self, settings: Settings) -> Criterion:
        """What is minimised."""

    @abstractmethod
    def plain_loss(self, output: Tensor, y: Tensor) -> Tensor:
        """What is measured."""

    @abstractmethod
    def judge(self, output: Tensor, y: Tensor) -> dict[str, float]:
        """The metrics of outputs."""

    def check(self, model: nn.Module, batch: Any) -> None:  # noqa: B027 (a few-shot method tries the model itself)
        """Refuse a model that does not fit the data before anything is done."""

    def finished(self, model: nn.Module) -> nn.Module:
        """The trained model as it is returned and kept: ready for examples as the data hold them."""
        return model

    def understood(self, settings: Settings) -> str:
        """What was understood of the data, in a sentence."""
        return str(self.data.name)

    def describe(self) -> dict[str, Any]:
        """What identifies the problem, for the record of a run."""
        return self.data.describe() | {"target": self.target.describe()}

    def remarks(self) -> dict[str, Any]:
        """What else the record keeps: how to load the data again, and what was done to them."""
        data = self.data
        return {
            "notes": data.notes,
            "metric": None if self.metric is None else self.metric.name,  # that judged, asked for or not
            "normalisation": data.normalisation(),  # to use the model on other images
            "origin": data.origin,  # to load the data again
            "pictures": data.pictures,
            "texts": getattr(data, "texts_of", ()) or getattr(data, "texts", False),  # where they stood, if it is known
            "table": None if (table := getattr(data, "table", None)) is None else table.describe(),
            "flattened": list(getattr(data, "flattened", ())),  # the shape of image files that became features
            "columns": list(getattr(data, "columns", ())),  # of a table's pixels, which new ones may have in any order
        }
