"""What is learned for every example: one of several classes, numbers, several labels, or a class per pixel.

A `Target` owns all that depends on it: how many numbers a model gives, the loss, the metrics, how splits are
balanced, what the mixture of two answers is, how far a student is from its teacher. Nothing else asks for its kind.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from typing import Any, ClassVar, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from fallow.base.errors import RequestError, unknown
from fallow.data.dice import LOSSES
from fallow.evaluate import metrics
from fallow.evaluate.metrics import NO_LABEL, Metric

Criterion: TypeAlias = Callable[[Tensor, Tensor], Tensor]  # of (output, y)
Box: TypeAlias = tuple[Any, ...]  # an index: (..., rows, columns)

SMOOTHING = 0.1  # what label_smoothing is where nobody asks: said of anything but classes, it is no mistake
BINS, LEAST = 10, 10  # at most so many strata of numbers, and at least so many examples in one


@dataclass(frozen=True)
class Target(ABC):
    """What a model is to give for an example; ``names`` has one for each number of its output."""

    names: Sequence[str]

    kind: ClassVar[str]
    metrics: ClassVar[dict[str, Metric]]  # by name; the first judges unless another is asked for

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(map(str, self.names)))

    @property
    def outputs(self) -> int:
        """Numbers that the model gives per example; of a dense target, per pixel: its channels."""
        return len(self.names)

    def metric(self, name: str | None = None) -> Metric:
        """The metric of this name, or the one that judges by default.

        >>> Classes(["cat", "dog"]).metric().words, Numbers(["price"]).metric("mae").higher
        ('accuracy', False)
        """
        if name is None:
            return next(iter(self.metrics.values()))
        if name not in self.metrics:
            raise unknown(f"metric of {self.kind}", name, self.metrics)
        return self.metrics[name]

    @abstractmethod
    def cast(self, y: Tensor, x: Tensor) -> Tensor:
        """The answers of a batch as `fallow.data.Examples` keeps them, in whatever form a Dataset gives them."""

    def fitted(self, y: Tensor) -> Target:
        """The same target, with what it must know of the training examples."""
        return self

    @abstractmethod
    def loss(self, output: Tensor, y: Tensor) -> Tensor:
        """The plain loss, for measuring."""

    def minimising(self, loss: str) -> Target:
        """The same target with another loss, where there is a choice."""
        raise RequestError(f"loss={loss} is for masks: {self.kind} have one loss, so leave it out")

    def training_loss(self, label_smoothing: float = SMOOTHING) -> Criterion:
        """The loss to train with; smoothing is for classes, and the default of it is ignored elsewhere."""
        if label_smoothing not in (0.0, SMOOTHING):
            raise RequestError(f"label_smoothing={label_smoothing} smooths classes, and these are {self.kind}: use 0")
        return self.loss

    @abstractmethod
    def decode(self, output: Tensor) -> Tensor:
        """Predictions in the metrics' terms, on the host in float64: rounding makes no two of them equal."""

    @abstractmethod
    def strata(self, y: Tensor) -> Tensor | None:
        """What to balance the parts of a split by, int64; None where nothing helps."""

    @abstractmethod
    def mixed(
        self, criterion: Criterion, output: Tensor, y: Tensor, other: Tensor, share: float, box: Box | None = None
    ) -> Tensor:
        """The loss where inputs hold a ``share`` of their own and the rest of the example of ``other``.

        They are blended all over, unless ``box`` is the index at which ``other``'s pixels were pasted in.
        """

    @abstractmethod
    def distance(self, student: Tensor, teacher: Tensor, temperature: float = 1.0) -> Tensor:
        """How far a student's output is from its teacher's, both divided by the temperature T.

        T² times it has gradients of the same size at every T, which is left to the method.
        """

    def chance(self, y: Tensor, metric: str | None = None) -> float:
        """The metric of the best guess that looks at no example: the frequencies of classes or labels, the mean."""
        return self.metric(metric).compute(self._guess(y), y.numpy())

    @abstractmethod
    def _guess(self, y: Tensor) -> NDArray[Any]: ...

    def check(self, output: Sequence[int], y: Sequence[int] | None = None) -> str:
        """What is wrong with a batch of outputs of this shape (for answers of that shape); empty if nothing is."""
        if tuple(output[1:]) == (self.outputs,):
            return ""
        needed = f"{self.outputs} {self.kind} need {self.outputs} numbers" if self.outputs > 1 else "1 number is needed"
        return f"the model gives {tuple(output[1:])} for an example: {needed}"

    def unscaled(self) -> Target:
        """The same, of outputs in the answers' own units."""
        return self

    def describe(self) -> dict[str, Any]:
        """As plain JSON, for `Target.of`."""
        return {"kind": self.kind} | {key: list(value) for key, value in asdict(self).items()}

    @staticmethod
    def of(described: dict[str, Any]) -> Target:
        """The target that `describe` told of.

        >>> Target.of({"kind": "labels", "names": ["oedema", "fracture"]})
        Labels(names=('oedema', 'fracture'))
        """
        kind, fields = described["kind"], {key: value for key, value in described.items() if key != "kind"}
        if kind not in KINDS:
            raise unknown("kind of target", kind, KINDS)
        return KINDS[kind](**fields)


@dataclass(frozen=True)
class Classes(Target):
    """One of several classes: y holds an index, the output a logit for each class."""

    kind = "classes"
    metrics = metrics.CLASSES

    def cast(self, y: Tensor, x: Tensor) -> Tensor:
        return y.long().reshape(len(y))

    def loss(self, output: Tensor, y: Tensor) -> Tensor:
        return functional.cross_entropy(output, y)

    def training_loss(self, label_smoothing: float = SMOOTHING) -> Criterion:
        return partial(functional.cross_entropy, label_smoothing=label_smoothing)

    def decode(self, output: Tensor) -> Tensor:
        return _on_host(output)[:, : self.outputs].softmax(1)

    def strata(self, y: Tensor) -> Tensor:
        return y

    def mixed(
        self, criterion: Criterion, output: Tensor, y: Tensor, other: Tensor, share: float, box: Box | None = None
    ) -> Tensor:
        return share * criterion(output, y) + (1 - share) * criterion(output, other)

    def distance(self, student: Tensor, teacher: Tensor, temperature: float = 1.0) -> Tensor:
        """KL(softmax(z̄/T) ‖ softmax(z/T)), z the student's and z̄ the teacher's output."""
        found, wanted = (functional.log_softmax(_wide(z) / temperature, 1) for z in (student, teacher))
        return functional.kl_div(found, wanted, reduction="batchmean", log_target=True)

    def chance(self, y: Tensor | None = None, metric: str | None = None) -> float:
        """As ever; without ``y``, the accuracy of guessing all classes alike."""
        return 1 / self.outputs if y is None else super().chance(y, metric)

    def _guess(self, y: Tensor) -> NDArray[Any]:
        shares = y.bincount(minlength=self.outputs).double() / len(y)
        return shares.expand(len(y), -1).numpy()

    def check(self, output: Sequence[int], y: Sequence[int] | None = None) -> str:
        """More outputs than classes are no harm: what is beyond them is never the answer."""
        return "" if len(output) == 2 and output[1] > self.outputs else super().check(output, y)


@dataclass(frozen=True)
class Numbers(Target):
    """One or several real numbers: y is in their own units, the output in deviations from the training mean."""

    kind = "numbers"
    metrics = metrics.NUMBERS

    mean: Sequence[float] = ()
    std: Sequence[float] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "mean", tuple(map(float, self.mean or [0.0] * self.outputs)))
        object.__setattr__(self, "std", tuple(map(float, self.std or [1.0] * self.outputs)))

    def fitted(self, y: Tensor) -> Numbers:
        """With mean and deviation of ``y``; refuses numbers that are all the same."""
        columns = _columns(y).double()
        mean, std = columns.mean(0), columns.std(0, correction=0)
        constant = std <= 1e-6 * mean.abs()  # but for rounding
        if constant.any():
            place = int(constant.nonzero()[0])
            value = float(columns[0, place])
            raise RequestError(
                f"{self.names[place]!r} is {value:g} in all {len(y)} training examples: give numbers that differ"
            )
        return Numbers(self.names, mean.tolist(), std.tolist())

    def unscaled(self) -> Numbers:
        return Numbers(self.names)

    def cast(self, y: Tensor, x: Tensor) -> Tensor:
        return y.float().reshape(len(y)) if self.outputs == 1 else y.float()

    def loss(self, output: Tensor, y: Tensor) -> Tensor:
        """Mean ((ŷ − y)/σ)², σ the deviation of the training examples."""
        found = _columns(_wide(output))
        mean, std = _statistics(self.mean, self.std, found.device, found.dtype)
        return functional.mse_loss(found, (_columns(y).to(found.dtype) - mean) / std)

    def decode(self, output: Tensor) -> Tensor:
        mean, std = _statistics(self.mean, self.std, torch.device("cpu"), torch.float64)
        return _columns(_on_host(output)) * std + mean

    def strata(self, y: Tensor) -> Tensor | None:
        """Up to ten bins of equal size, by rank; None for fewer than 20 examples, or several numbers."""
        bins = min(BINS, len(y) // LEAST)
        if bins < 2 or self.outputs > 1:
            return None
        ranks = torch.empty(len(y), dtype=torch.long)
        ranks[y.reshape(-1).argsort(stable=True)] = torch.arange(len(y))
        return ranks * bins // len(y)

    def mixed(
        self, criterion: Criterion, output: Tensor, y: Tensor, other: Tensor, share: float, box: Box | None = None
    ) -> Tensor:
        return criterion(output, torch.lerp(other, y, share))

    def distance(self, student: Tensor, teacher: Tensor, temperature: float = 1.0) -> Tensor:
        """Mean ((z − z̄)/T)²."""
        return functional.mse_loss(_wide(student) / temperature, _wide(teacher) / temperature)

    def _guess(self, y: Tensor) -> NDArray[Any]:
        return np.broadcast_to(y.double().mean(0).numpy(), y.shape)

    def check(self, output: Sequence[int], y: Sequence[int] | None = None) -> str:
        """A single number may come without an axis of its own."""
        return "" if self.outputs == 1 and len(output) == 1 else super().check(output, y)


@dataclass(frozen=True)
class Labels(Target):
    """Any of several labels: y is 0 or 1 for each, the output a logit for each."""

    kind = "labels"
    metrics = metrics.LABELS

    def cast(self, y: Tensor, x: Tensor) -> Tensor:
        return y.float()

    def loss(self, output: Tensor, y: Tensor) -> Tensor:
        return functional.binary_cross_entropy_with_logits(_wide(output), y.to(_wide(output).dtype))

    def decode(self, output: Tensor) -> Tensor:
        return _on_host(output).sigmoid()

    def strata(self, y: Tensor) -> Tensor | None:
        """The rarest label that an example has; those of fewer than ten examples go with the most common one."""
        rarest = torch.where(y > 0, y.sum(0), torch.inf).min(1)
        found = torch.where(rarest.values.isfinite(), rarest.indices, self.outputs)  # one more for those without any
        counts = found.bincount()
        found = torch.where(counts[found] < LEAST, counts.argmax(), found)
        return found if len(found.unique()) > 1 else None

    def mixed(
        self, criterion: Criterion, output: Tensor, y: Tensor, other: Tensor, share: float, box: Box | None = None
    ) -> Tensor:
        return criterion(output, torch.lerp(other.float(), y.float(), share))

    def distance(self, student: Tensor, teacher: Tensor, temperature: float = 1.0) -> Tensor:
        """Mean of p̄·log(p̄/p) + (1 − p̄)·log((1 − p̄)/(1 − p)), p = σ(z/T)."""
        z, wanted = _wide(student) / temperature, _wide(teacher) / temperature
        present = wanted.sigmoid() * (functional.logsigmoid(wanted) - functional.logsigmoid(z))
        absent = (-wanted).sigmoid() * (functional.logsigmoid(-wanted) - functional.logsigmoid(-z))
        return (present + absent).mean()

    def _guess(self, y: Tensor) -> NDArray[Any]:
        return np.broadcast_to(y.double().mean(0).numpy(), y.shape)


@dataclass(frozen=True)
class Dense(Target):
    """A class for every pixel or voxel: y holds an index for each, the output a channel of logits for each class.

    Class 0 is the background. What is −100 has no label, and is neither learned nor judged. A mask of zeros and ones is
    two classes with two channels, not one channel with a sigmoid: two logits have the same losses, and all numbers of
    classes go the same way. ``objective`` is the loss, one of `fallow.data.dice.LOSSES`.
    """

    kind = "dense"
    metrics = metrics.DENSE

    objective: str = "cross-entropy"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.objective not in LOSSES:
            raise unknown("loss of masks", self.objective, LOSSES)

    def minimising(self, loss: str) -> Dense:
        return Dense(self.names, loss)

    def cast(self, y: Tensor, x: Tensor) -> Tensor:
        return (y.squeeze(1) if y.ndim == x.ndim else y).long()  # masks often have a channel of their own

    def loss(self, output: Tensor, y: Tensor) -> Tensor:
        return LOSSES[self.objective](_wide(output), y)

    def training_loss(self, label_smoothing: float = SMOOTHING) -> Criterion:
        return partial(LOSSES[self.objective], label_smoothing=label_smoothing)

    def decode(self, output: Tensor) -> Tensor:
        return _on_host(output).softmax(1)

    def strata(self, y: Tensor) -> None:
        return None

    def mixed(
        self, criterion: Criterion, output: Tensor, y: Tensor, other: Tensor, share: float, box: Box | None = None
    ) -> Tensor:
        """Of a pasted box, the answers are pasted too."""
        if box is None:
            return share * criterion(output, y) + (1 - share) * criterion(output, other)
        pasted = y.clone()
        pasted[box] = other[box]
        return criterion(output, pasted)

    def distance(self, student: Tensor, teacher: Tensor, temperature: float = 1.0) -> Tensor:
        """The mean over pixels of KL(softmax(z̄/T) ‖ softmax(z/T)), z the student's and z̄ the teacher's output."""
        found, wanted = (functional.log_softmax(_wide(z) / temperature, 1) for z in (student, teacher))
        return functional.kl_div(found, wanted, reduction="none", log_target=True).sum(1).mean()

    def _guess(self, y: Tensor) -> NDArray[Any]:
        return np.full(y.shape, int(y[y != NO_LABEL].bincount().argmax()))

    def describe(self) -> dict[str, Any]:
        """As plain JSON; the usual loss goes without saying."""
        usual = self.objective == "cross-entropy"
        return {"kind": self.kind, "names": list(self.names)} | ({} if usual else {"objective": self.objective})

    def check(self, output: Sequence[int], y: Sequence[int] | None = None) -> str:
        """The output has a channel for each class, and the size of the masks."""
        if len(output) > 2 and output[1] == self.outputs and (y is None or tuple(output[2:]) == tuple(y[1:])):
            return ""
        size = "" if y is None else f" of {'×'.join(map(str, y[1:]))}"
        return (
            f"the model gives {tuple(output[1:])} for an example: "
            f"{self.outputs} classes of pixels need {self.outputs} channels{size}"
        )


KINDS: dict[str, type[Target]] = {kind.kind: kind for kind in (Classes, Numbers, Labels, Dense)}


def _on_host(output: Tensor) -> Tensor:
    return output.detach().cpu().double()


def _wide(output: Tensor) -> Tensor:
    """In float32 at least: bfloat16 has too few digits for logarithms."""
    return output.to(torch.promote_types(output.dtype, torch.float32))


def _columns(values: Tensor) -> Tensor:
    return values.reshape(len(values), -1)


@lru_cache
def _statistics(
    mean: tuple[float, ...], std: tuple[float, ...], device: torch.device, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """On the device, where no step has to wait for them."""
    return torch.tensor(mean, device=device, dtype=dtype), torch.tensor(std, device=device, dtype=dtype)
