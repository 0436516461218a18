"""What ten lines of scikit-learn would give, as networks: kept as weights like any other, never as pickles.

They take scaled inputs and answer in a network's terms (logits; deviations from the mean of numbers), so that a
target decodes them and `fallow.models.scaled.Scaled` brings them what the data hold.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fallow.models.chunks import by_chunks
from fallow.models.forest import Forest
from fallow.models.words import Words

CHUNK = 512  # examples whose distances to all others are held at once


class Constant(nn.Module):
    """The same answer for every example, whatever it shows; of masks, for every pixel.

    >>> Constant(torch.tensor([0.5, 2.0]))(torch.zeros(3, 7)).shape
    torch.Size([3, 2])
    """

    output: Tensor

    def __init__(self, output: Tensor, dense: bool = False) -> None:
        super().__init__()
        self.register_buffer("output", output.float())
        self.dense = dense

    def forward(self, x: Tensor) -> Tensor:
        """The answer, as often as there are examples."""
        size = x.shape[2:] if self.dense else ()
        return self.output.view(1, -1, *[1] * len(size)).expand(x.shape[0], -1, *size)


class Linear(nn.Module):
    """A linear function of all values of an example."""

    weight: Tensor
    bias: Tensor

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.register_buffer("weight", weight.float())
        self.register_buffer("bias", bias.float())

    def forward(self, x: Tensor) -> Tensor:
        """Wx + b."""
        return nn.functional.linear(x.flatten(1), self.weight, self.bias)


class Neighbours(nn.Module):
    """The mean answer p of the k nearest training examples, by the distance of all their values.

    ``of`` classes the output is log (k·p + 1/C)/(k + 1), of labels the log-odds of (k·p + ½)/(k + 1): a little of
    the ignorant answer, so that no logarithm is of 0 and the likeliest answer stays. Of numbers it is p itself.
    """

    x: Tensor
    answers: Tensor

    def __init__(self, x: Tensor, answers: Tensor, k: int, of: str = "classes") -> None:
        super().__init__()
        self.register_buffer("x", x.flatten(1).float())
        self.register_buffer("answers", answers.float())
        self.k, self.of = k, of

    def forward(self, x: Tensor) -> Tensor:
        """What the neighbours of every example say."""
        return self.said(self.nearest(x, self.k), self.k)

    def nearest(self, x: Tensor, k: int) -> Tensor:
        """Where the k nearest examples are, the nearest first."""
        how = "use_mm_for_euclid_dist" if len(self.x) > 25 else "donot_use_mm_for_euclid_dist"  # torch's rule, less x

        def find(some: Tensor) -> Tensor:
            return torch.cdist(some, self.x, compute_mode=how).topk(k, largest=False).indices

        return by_chunks(find, x.flatten(1).float(), CHUNK)

    def said(self, nearest: Tensor, k: int) -> Tensor:
        """The output, from the k first of the nearest examples."""
        p = self.answers[nearest[:, :k]].mean(1)
        if self.of == "classes":
            return ((k * p + 1 / p.shape[1]) / (k + 1)).log()
        return ((k * p + 0.5) / (k + 1)).logit() if self.of == "labels" else p


KINDS: dict[str, type[nn.Module]] = {
    "constant": Constant, "linear": Linear, "neighbours": Neighbours, "forest": Forest, "words": Words,
}  # fmt: skip


def rebuilt(kind: str, arrays: dict[str, Tensor], **settings: object) -> nn.Module:
    """A yardstick from its kept arrays: ``arrays`` are its buffers, ``settings`` what else it was made with.

    What :class:`fallow.training.yardsticks.Yardstick` has as ``kept`` are ``kind`` and ``settings``.

    >>> line = Linear(torch.eye(2), torch.ones(2))
    >>> rebuilt("linear", dict(line.named_buffers()))(torch.zeros(1, 2))
    tensor([[1., 1.]])
    """
    return KINDS[kind](**arrays, **settings)
