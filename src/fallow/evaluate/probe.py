"""Linear probes: what can be read off features by a linear head, its one setting chosen on validation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from fallow.base.errors import RequestError, unknown
from fallow.evaluate.heads import LinearHead, columns, nearest, principal, ridge
from fallow.evaluate.logistic import logistic
from fallow.evaluate.span import fresh_heads, orders

Part = tuple[Tensor, Tensor]  # features (n, width) and classes (n,), or numbers (n,) or (n, columns)

STRENGTHS = tuple(10.0 ** (k / 2) for k in range(-6, 5))  # of penalties, relative to the mean eigenvalue of the scatter
RATES = (1e-1, 1e-2, 1e-3)
KINDS = ("logistic", "ridge", "nearest")


@dataclass(frozen=True)
class LinearProbe:
    """A head for every setting that was tried, and which of them validation chose."""

    settings: tuple[float, ...]
    heads: LinearHead  # along the first axis: settings
    validation: tuple[float, ...]  # each setting's score: accuracy, or R² of numbers
    chosen: int

    @property
    def head(self) -> LinearHead:
        """The one that validation chose."""
        return LinearHead(self.heads.weight[self.chosen], self.heads.bias[self.chosen])

    def score(self, x: Tensor, y: Tensor) -> float:
        """Of the chosen head: its accuracy, or R² where ``y`` holds numbers."""
        return scores(self.head(x)[None], y).item()

    def best(self, x: Tensor, y: Tensor) -> tuple[float, float]:
        """The setting that does best on these very examples, with its score: an optimist's figure on test data."""
        found = scores(self.heads(x), y).tolist()
        return self.settings[found.index(max(found))], max(found)


def scores(outputs: Tensor, y: Tensor) -> Tensor:
    """For outputs (settings, n, columns): accuracies, or R² (averaged over columns) where ``y`` holds numbers."""
    return judged(outputs, y).mean(-1)


def judged(outputs: Tensor, y: Tensor) -> Tensor:
    """Of every example, what a score is the mean of, for outputs (…, n, columns).

    1 or 0 for right or wrong; of numbers 1 − (ŷ − y)²/σ², σ² the variance of these very ``y``: the mean is R².
    """
    if not y.is_floating_point():
        return (outputs.argmax(-1) == y).double()
    t = columns(y)
    return (1 - (outputs - t).square() / (t - t.mean(0)).square().mean(0)).double().mean(-1)


def linear_probe(
    train: Part, validation: Part, kind: str = "logistic", strengths: Sequence[float] = STRENGTHS
) -> LinearProbe:
    """Logistic or ridge regression with the strength of its penalty chosen on validation, or nearest centroids.

    All strengths are fitted together. They are relative: λ = strength × the mean eigenvalue of the features' scatter
    matrix, so that features times ten have the same answer. Of equal scores the stronger penalty wins.
    """
    x, y = train
    if kind not in KINDS:
        raise unknown("probe", kind, KINDS)
    if y.is_floating_point() and kind != "ridge":
        raise RequestError(f"a {kind} probe tells classes apart, and these targets are numbers: take ridge")
    if kind == "nearest":
        head = nearest(x, y)
        return _choose((0.0,), LinearHead(head.weight[None], head.bias[None]), validation)
    settings = tuple(sorted(strengths, reverse=True))
    axes = principal(x)
    penalties = axes.scale * torch.tensor(settings, dtype=axes.z.dtype, device=x.device)
    if kind == "ridge":
        return _choose(settings, ridge(x, y, penalties, axes=axes), validation)
    return _choose(settings, logistic(x, y, penalties, axes=axes, tolerance=1e-6), validation)


@torch.no_grad()
def seal_probe(
    train: Part, validation: Part, *, rates: Sequence[float] = RATES, epochs: int = 120, batch: int = 32,
    momentum: float = 0.9, decay: float = 1e-4, seed: int = 0,
) -> LinearProbe:  # fmt: skip
    """SEAL's linear probe (section 4.2): SGD at flat rates of .1, .01 and .001, from a freshly drawn head.

    The rates share head and minibatches and advance together: their heads lie beside each other in one matrix, and
    a step is two products. The paper reports the best rate on test, which is :meth:`Probe.best`; validation chooses
    here. It does not give the probe's batch size: 32 is that of its training.
    """
    x, y = train
    n, width = x.shape
    classes = int(y.max()) + 1
    start = fresh_heads([seed], classes, width)
    with_one = torch.cat([x, x.new_ones(n, 1)], 1)  # the bias is the weight of a feature that is always 1
    weight = torch.cat([start.weight[0], start.bias[0, :, None]], 1).to(x).repeat(len(rates), 1)
    rate = torch.tensor(rates, dtype=x.dtype, device=x.device).repeat_interleave(classes)[:, None]
    velocity = torch.zeros_like(weight)
    targets = functional.one_hot(y, classes).to(x)[:, None]
    for order in orders([seed], n, epochs)[0].to(x.device):
        for some in order.split(batch):
            inputs = with_one[some]
            logits = (inputs @ weight.T).view(len(some), len(rates), classes)
            error = logits.softmax(-1).sub_(targets[some]).div_(len(some)).flatten(1)
            velocity.mul_(momentum).addmm_(error.T, inputs).add_(weight, alpha=decay)
            weight.addcmul_(rate, velocity, value=-1)
    weight = weight.view(len(rates), classes, width + 1)
    return _choose(tuple(rates), LinearHead(weight[..., :-1], weight[..., -1]), validation)


def _choose(settings: tuple[float, ...], heads: LinearHead, validation: Part) -> LinearProbe:
    x, y = validation
    found = scores(heads(x), y).tolist()
    return LinearProbe(settings, heads, tuple(found), found.index(max(found)))
