"""Algorithm 1 as the thesis on implicit meta-learning runs it, in a plain loop, for all of its tables.

An MLP with one hidden layer as wide as its input; the penalty Σ (softplus(λ) ⊙ w)² with one λ per weight or per layer,
drawn at random; Adam 1e-4 inside, RMSprop 0.1 outside. The tables shrink the images, and the network with them: a
step of 196-196-10 takes a sixth of one of 784-784-10.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from fallow.base.errors import WorkError
from fallow.data import Examples, load
from fallow.experiment import heed
from fallow.hypergradients import MetaSchedule, SquaredDecay, hypergradient
from fallow.hypergradients.products import Operator
from fallow.hypergradients.solution import USED_UP, Solution, Solver

INNER, OUTER = 1e-4, 0.1  # learning rates
CHANCE = 10.0  # all data sets have ten classes

Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Sets:
    """Flat images, normalised, and their labels."""

    train: Batch
    val: Batch
    test: Batch

    @property
    def together(self) -> Sets:
        """Training on the validation examples too: what else they could have been used for."""
        both = (torch.cat([self.train[0], self.val[0]]), torch.cat([self.train[1], self.val[1]]))
        return Sets(both, self.val, self.test)


@lru_cache(maxsize=1)  # the rows of a table that share a seed come one after another
def sets(data: str, side: int, train: int | None, val: float, test: int, seed: int) -> Sets:
    """A data set with pixels from 0 to 1, and its images averaged down to ``side`` pixels where they are larger."""
    found = load(data, train=train, val=val, seed=seed)

    def flat(part: object, most: int | None = None) -> Batch:
        assert isinstance(part, Examples)
        x = part.x[:most].float() / (255 if part.x.dtype == torch.uint8 else 1)
        if x.shape[-1] > side:
            x = functional.interpolate(x, (side, side), mode="area")
        return x.flatten(1), part.y[:most]

    return Sets(flat(found.train), flat(found.val), flat(found.test, test))


def source(data_dir: Path | None, name: str) -> str:
    """The user's copy of a data set; the bundled digits stand in for it."""
    return "digits" if data_dir is None else str(data_dir / f"{name}.npz")


def network(inputs: int, hidden: int | None = None, classes: int = 10) -> nn.Sequential:
    """One hidden layer, as wide as the input if nothing else is said."""
    hidden = hidden or inputs
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, classes))


def random_decay(params: Sequence[Tensor], per: str, draw: torch.Generator) -> SquaredDecay:
    """λ uniform from 0 to 1, for every weight, or for every layer with weight and bias.

    The thesis says "randomly", and no more; from N(0, 1) our table 4.1 looked less like its. The decays 2·softplus(λ)²
    are from 0.96 to 3.4, which is much: a penalty of 1 for all costs the thesis' networks 28 to 39 points of test
    accuracy (table A.8).
    """
    shapes = [p.shape for p in params] if per == "weight" else [torch.Size()] * (len(params) // 2)
    owner = None if per == "weight" else [i // 2 for i in range(len(params))]
    knobs = [torch.rand(shape, generator=draw).to(params[0].dtype).requires_grad_() for shape in shapes]
    return SquaredDecay(knobs, owner)


@dataclass(frozen=True)
class ClampedCG:
    """Conjugate gradients of the public code that the thesis builds on, with its guard against small denominators.

    They start at x = b, and both denominators, p·A·p and r·r, become 0.01 where they are below half of it. The smaller
    b is, the smaller are the steps; negative curvature passes for 0.01.
    """

    iterations: int

    def __call__(self, A: Operator, b: Tensor) -> Solution:
        x = b.clone()
        r = b - A(x)
        p, rr = r.clone(), r @ r
        for _ in range(self.iterations):
            Ap = A(p)
            step = rr / guarded(p @ Ap)
            x, r = x + step * p, r - step * Ap
            rr, before = r @ r, rr
            p = r + rr / guarded(before) * p
        return Solution(x, USED_UP)


def guarded(denominator: Tensor) -> Tensor:
    """As it is from 0.005, 0.01 below.

    >>> guarded(torch.tensor([1.0, 0.001, -3.0]))
    tensor([1.0000, 0.0100, 0.0100])
    """
    return torch.where(denominator < 0.005, 0.01, denominator)


class Look(NamedTuple):
    """The network after so many steps: accuracies in %, and the largest decay 2·softplus(λ)² of a weight."""

    val_loss: float
    train: float
    val: float
    test: float
    decay: float


LOST = Look(math.inf, CHANCE, CHANCE, CHANCE, math.inf)  # where a number is not finite any more


class Bilevel:
    """Weights, λ and their optimisers."""

    def __init__(
        self, data: Sets, *, per: str = "weight", decay: bool = True, hidden: int | None = None, batch: int = 32,
        sample: int | None = None, seed: int = 0, dtype: torch.dtype = torch.float32,
    ) -> None:  # fmt: skip
        self.batch, self.sample = batch, sample  # examples of a step, and of a meta-update's losses (None: all)
        self.data = Sets(*((x.to(dtype), y) for x, y in (data.train, data.val, data.test)))
        self.draw = torch.Generator().manual_seed(seed)
        torch.manual_seed(seed)
        self.model = network(self.data.train[0].shape[1], hidden).to(dtype)
        self.params = list(self.model.parameters())
        self.decay = random_decay(self.params, per, self.draw) if decay else None
        self.rates = self.decay.rates() if self.decay else None
        self.inner = torch.optim.Adam(self.params, lr=INNER, fused=True)
        self.outer = torch.optim.RMSprop(self.decay.hyperparams, lr=OUTER) if self.decay else None
        self.order = torch.empty(0, dtype=torch.long)

    def loss(self, batch: Batch) -> Tensor:
        """Without the penalty."""
        return functional.cross_entropy(self.model(batch[0]), batch[1])

    def step(self) -> None:
        """One of Adam, with the penalty's gradient in closed form."""
        x, y = self.data.train
        if len(self.order) < self.batch:
            self.order = torch.cat([self.order, torch.randperm(len(x), generator=self.draw)])
        chosen, self.order = self.order[: self.batch], self.order[self.batch :]
        slopes = torch.autograd.grad(self.loss((x[chosen], y[chosen])), self.params)
        for p, slope in zip(self.params, slopes, strict=True):
            p.grad = slope
        with torch.no_grad():
            for p, slope, rate in zip(self.params, slopes, self.rates, strict=True) if self.rates else ():
                slope.addcmul_(rate, p)
        self.inner.step()

    def meta_update(self, solver: Solver) -> None:
        """One of RMSprop, by the hypergradient."""
        assert self.decay is not None
        assert self.outer is not None
        train, val = self.some(self.data.train), self.some(self.data.val)
        gradients, _ = hypergradient(
            lambda: self.loss(train), lambda: self.loss(val), self.params, self.decay.hyperparams, solver,
            penalty=self.decay,
        )  # fmt: skip
        for knob, gradient in zip(self.decay.hyperparams, gradients, strict=True):
            knob.grad = gradient
        self.outer.step()
        self.rates = self.decay.rates()

    def some(self, part: Batch) -> Batch:
        """All of a set, or a random sample of it."""
        if self.sample is None or self.sample >= len(part[0]):
            return part
        chosen = torch.randint(len(part[0]), (self.sample,), generator=self.draw)
        return part[0][chosen], part[1][chosen]

    @torch.no_grad()
    def look(self) -> Look:
        """Losses and accuracies; on training, of the first 5,000."""
        parts = (self.data.train, self.data.val, self.data.test)
        outputs = [(self.model(x[:5000]), y[:5000]) for x, y in parts]
        train, val, test = (100 * float((output.argmax(1) == y).float().mean()) for output, y in outputs)
        decay = max(float(rate.max()) for rate in self.rates) if self.rates else 0.0
        return Look(float(functional.cross_entropy(*outputs[1])), train, val, test, decay)


def learn(
    learner: Bilevel, solver: Solver | None, schedule: MetaSchedule, steps: int, every: int, updates: float = math.inf
) -> list[Look]:
    """Train for so many steps with meta-updates as scheduled, and look at the network after every few.

    Looks come before meta-updates: they see weights that had time to answer. Without a solver the decay stays, and
    after so many ``updates`` it stays as well.
    """
    looks: list[Look] = []
    done = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the thesis' settings are those one should be warned of
        for step in range(1, steps + 1):
            learner.step()
            if step % every == 0:
                heed()
                looks.append(learner.look())
            if solver is not None and done < updates and schedule.due(step):
                done += 1
                try:
                    learner.meta_update(solver)
                except WorkError:  # not finite, or no minimum at all
                    return [*looks, LOST]
    return looks


def stopped(looks: Sequence[Look], patience: int = 15) -> Look:
    """The look with the lowest validation loss, up to ``patience`` looks without a lower one."""
    best, waited = looks[0], 0
    for look in looks[1:]:
        best, waited = (look, 0) if look.val_loss < best.val_loss else (best, waited + 1)
        if waited == patience:
            break
    return best


def converged(looks: Sequence[Look]) -> float:
    """The look at which the validation accuracy was best, counted from 0 like the thesis' convergence epochs.

    >>> converged([Look(0.0, 0.0, val, 0.0, 0.0) for val in (30.0, 50.0, 50.0)])
    1.0
    """
    return float(max(range(len(looks)), key=lambda i: looks[i].val))
