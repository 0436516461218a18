"""FC: the last fully connected layers (Li et al. 2020), or the head alone (Zhao et al. 2018), are re-drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from fallow.base.errors import unknown
from fallow.core.context import Context
from fallow.core.method import Method
from fallow.core.ranges import choice
from fallow.methods.forget.measure import log_forgetting
from fallow.weights import Partition
from fallow.weights.layers import has_matrix, owner


@dataclass(eq=False)
class FC(Method):
    """Re-draw the last fully connected layers at the start of every generation but the first (LW, equation 1).

    They are all that run after the last layer of another kind; of a network of nothing else, all but the first, which
    is LW's case K = 1. Unlike RIFLE's schedule it never re-draws after the last epoch: what is returned is trained.
    """

    name = "fc"
    summary = "the last fully connected layers (or the head alone) are reinitialised at the start of each generation"
    generational = True
    forgets = frozenset({"late"})  # the last layers, though in an mlp some of them may lie before the split
    ranges: ClassVar = {"layers": choice("all", "head")}

    layers: str = "all"  # of the last fully connected ones; or "head" alone

    def __post_init__(self) -> None:
        if self.layers not in ("head", "all"):
            raise unknown("layers", self.layers, ("head", "all"))

    def begin(self, ctx: Context) -> None:
        head = list(ctx.partition.head.modules)
        self.paths = head if self.layers == "head" else last_connected(ctx.partition) or head

    def begin_generation(self, ctx: Context) -> None:
        if ctx.clock.generation > 0:
            ctx.redraw(self.paths)
            log_forgetting(ctx)


def last_connected(partition: Partition) -> list[str]:
    """The fully connected layers after the last layer of another kind, at least one layer excepted.

    >>> net = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3))
    >>> last_connected(Partition(net, 1))
    ['2', '4']
    """
    running = partition.early.modules | partition.late.modules  # in order
    matrices = [(owner(path), layer) for path, layer in running.items() if has_matrix(layer)]
    layers = [(path, running.get(path, layer)) for path, layer in matrices]
    others = [i for i, (_, layer) in enumerate(layers) if not isinstance(layer, nn.Linear)]
    first = others[-1] + 1 if others else 1
    return [path for path, _ in layers[first:]]
