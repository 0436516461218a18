"""Mixup (Zhang et al. 2018) and CutMix (Yun et al. 2019): every example is blended with another of its batch."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from fallow.base.errors import RequestError
from fallow.base.seeds import mix
from fallow.core.context import Batch, Context
from fallow.core.method import Method
from fallow.core.ranges import linear, log
from fallow.data.targets import Box

if TYPE_CHECKING:
    from fallow.problems import Problem

MIXING = 3  # names the random stream; 0 to 2 are the model's, the methods' and the epochs'


class Mixing(Method):
    """A blend of two inputs, and the loss of both targets in the same shares; subclasses blend.

    All draws of a step follow from (seed, step) alone, on the host: nothing to keep in a checkpoint, nothing for
    the device to wait for, and a method that takes the gradient twice sees the same blend twice.
    """

    def blend(self, x: Tensor, other: Tensor, draw: random.Random) -> tuple[Tensor, float, Box | None]:
        """The blend, the share of ``x`` in it, and the box that was replaced, if it was one."""
        raise NotImplementedError

    def loss(self, ctx: Context, batch: Batch) -> Tensor:
        x, y = batch
        draw = random.Random(mix(ctx.settings.seed, MIXING, ctx.clock.step_index))
        # a batch is shuffled already: to rotate it is to pair it at random, without moving indices to the device
        shift = 1 + int(draw.random() * (len(x) - 1))
        blended, share, box = self.blend(x, x.roll(shift, 0), draw)
        return ctx.target.mixed(ctx.criterion, ctx.predict(blended), y, y.roll(shift, 0), share, box)


@dataclass(eq=False)
class Mixup(Mixing):
    """Inputs and targets are averaged in pairs, in random proportions, one a batch (Zhang et al. 2018, section 1)::

        x̃ = λ·x + (1 − λ)·x',    loss = λ·L(f(x̃), y) + (1 − λ)·L(f(x̃), y'),    λ ~ Beta(α, α)

    By hand, a line: kornia's takes only images.
    """

    name = "mixup"
    summary = "inputs and targets are averaged in pairs, in random proportions"
    shards = True
    ranges: ClassVar = {"alpha": log(0.1, 2.0)}

    alpha: float = 0.2  # towards 0: hardly mixed; 1: any share alike

    def __post_init__(self) -> None:
        check_alpha(self.alpha)

    def refuses(self, problem: Problem) -> str:
        texts = getattr(problem.data, "texts", False)
        return "averages inputs, and texts have no average: use dropout" if texts else ""

    def begin(self, ctx: Context) -> None:
        x, _ = next(iter(ctx.train.ordered()))
        if not x.is_floating_point():
            raise RequestError(f"mixup averages inputs, and these are {x.dtype}: give real numbers, or use dropout")

    def blend(self, x: Tensor, other: Tensor, draw: random.Random) -> tuple[Tensor, float, Box | None]:
        share = draw.betavariate(self.alpha, self.alpha)
        return torch.lerp(other, x, share), share, None


@dataclass(eq=False)
class CutMix(Mixing):
    """A random box of every input is replaced by the same box of another, and so is its share of the target.

    Yun et al. 2019, equations 1 and 2::

        x̃ = M ⊙ x + (1 − M) ⊙ x',    loss = λ·L(f(x̃), y) + (1 − λ)·L(f(x̃), y')

    The box has its centre anywhere and, before it is cut off at the edges, the share 1 − λ of the area,
    λ ~ Beta(α, α); in the loss, λ is what is left of x in the end. A signal has intervals for boxes.

    By hand: kornia's is right, but slower than a small network's whole step, makes the host wait for the device
    and cuts no signals.
    """

    name = "cutmix"
    summary = "a random box of every input is replaced by another input's, and so is its share of the target"
    shards = True
    ranges: ClassVar = {"alpha": log(0.3, 2.0), "probability": linear(0.2, 1.0)}

    alpha: float = 1.0  # 1: any area alike
    probability: float = 0.5  # of a batch to be mixed

    def __post_init__(self) -> None:
        check_alpha(self.alpha)
        if not 0 < self.probability <= 1:
            raise RequestError(f"probability is {self.probability}: it must be above 0 and at most 1")

    def refuses(self, problem: Problem) -> str:
        if getattr(problem.data, "texts", False):
            return "cuts boxes from images or signals, and these are texts: use dropout"
        if len(problem.data.shape) < 2:
            return f"cuts boxes from images or signals, not from shape {tuple(problem.data.shape)}: use mixup"
        return ""

    def begin(self, ctx: Context) -> None:
        if next(iter(ctx.train.ordered()))[0].ndim < 3:
            raise RequestError("cutmix cuts boxes, and behind these frozen layers there is no space left: use mixup")

    def blend(self, x: Tensor, other: Tensor, draw: random.Random) -> tuple[Tensor, float, Box | None]:
        if draw.random() >= self.probability:
            return x, 1.0, None
        box, pasted = draw_box(x.shape[2:], draw.betavariate(self.alpha, self.alpha), draw)
        blended = x.clone()
        blended[box] = other[box]
        return blended, 1 - pasted, box


def draw_box(sizes: torch.Size, share: float, draw: random.Random) -> tuple[tuple[Any, ...], float]:
    """Where to cut a box that leaves ``share`` of an image, were it not for the edges; and the area inside them."""
    box: list[slice] = []
    area = 1.0
    for size in sizes:
        half = size * (1 - share) ** (1 / len(sizes)) / 2
        centre = size * draw.random()
        begin, end = max(0, round(centre - half)), min(size, round(centre + half))
        box.append(slice(begin, end))
        area *= (end - begin) / size
    return (..., *box), area


def check_alpha(alpha: float) -> None:
    """Refuse what is no parameter of a Beta distribution."""
    if alpha <= 0:
        raise RequestError(f"alpha is {alpha}: it must be above 0")
