"""Which layers of a model are early and which are late: the threshold that the forgetting methods share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from fallow.base.errors import RequestError, unknown
from fallow.weights.blocks import find_blocks, head_of, inside, late_from
from fallow.weights.layers import execution_order, join, layers, owner, refuse_lazy

ALL = "all"  # the split of what stands behind frozen layers: all of it is late

Split = str | int | float | Callable[[str, nn.Module], bool]


@dataclass(frozen=True)
class Part:
    """Some layers of a model, in order, with their parameters; one that is tied is counted once."""

    modules: dict[str, nn.Module]
    names: list[str]
    parameters: list[nn.Parameter]

    @property
    def numel(self) -> int:
        """The number of single weights."""
        return sum(parameter.numel() for parameter in self.parameters)


class Partition:
    """A model cut in two at a threshold: ``early`` layers, near the input, and ``late`` ones, head included.

    ``split`` says where: a module's path (``"layer3"``: that module and all that runs after it are late), a
    number of ``blocks`` that are early, the fraction of them that is, or a predicate ``(path, layer)`` that
    is true for early layers; ``"auto"`` is the model's own ``late_from`` (SEAL's and LLF's for resnets), or half.
    Layers are ordered by a forward pass of ``inputs`` if given (a tensor, a tuple of arguments or a mapping of
    keywords), and otherwise as they were registered.

    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> print(Partition(net, 0.5))
    part   layers  tensors  parameters  share
    early  0             2          40  30.8%
    late   2 … 4         4          90  69.2%  (head: 4)
    """

    def __init__(self, model: nn.Module, split: Split = 0.5, *, inputs: Any = None) -> None:
        if not any(True for _ in model.parameters()):
            raise RequestError("the model has no parameters: a model with layers to train can be split")
        refuse_lazy(model)
        order = execution_order(model, inputs)
        owned = dict(sorted(layers(model).items(), key=lambda item: order[item[0]]))
        self.blocks = find_blocks(model, order)
        split = late_from(model) if split == "auto" else split
        late = self._late(model, split, owned, order)
        head = head_of(model, order)
        self._names = {id(parameter): name for name, parameter in model.named_parameters()}
        self.early = self._part({path: layer for path, layer in owned.items() if path not in late})
        self.late = self._part({path: layer for path, layer in owned.items() if path in late})
        self.head = self._part({path: layer for path, layer in owned.items() if owner(path) == head})
        for part, other in (("early", self.late), ("late", self.early)):
            if not getattr(self, part).parameters and split != ALL:
                names = [path or "the model itself" for path in other.modules]
                every = ", ".join(names) if len(names) < 9 else f"all {len(names)}"
                raise RequestError(
                    f"split={_shown(split)} leaves no {part} layer with parameters (layers: {every}): "
                    "a threshold with layers on both sides would fit"
                )
        self._refuse_ties()

    def _late(
        self, model: nn.Module, split: Split, owned: Mapping[str, nn.Module], order: Mapping[str, int]
    ) -> set[str]:
        if split == ALL:
            return set(owned)
        if isinstance(split, str):
            known = [path for path, _ in model.named_modules() if path]
            if split not in known:
                raise unknown("module", split, known)
            start = min((order[path] for path in owned if inside(path, split)), default=order[split])
            return {path for path in owned if order[path] >= start}
        if callable(split):
            return {path for path, layer in owned.items() if not split(path, layer)}
        count = len(self.blocks)
        if isinstance(split, float):
            if not 0 < split < 1:
                raise RequestError(f"split={split} is not a fraction of the blocks: give one between 0 and 1")
            split = max(1, round(split * count))
        if count == 0:
            raise RequestError("the model has no weight matrix, and so no blocks: name a layer, or give a predicate")
        if not 1 <= split <= count:
            raise RequestError(f"split={split} does not fit a model of {count} blocks: 1 to {count} would")
        end = max(order[path] for path in owned if any(path in block for block in self.blocks[:split]))
        return {path for path in owned if order[path] > end}

    def _part(self, modules: dict[str, nn.Module]) -> Part:
        parameters = {id(p): p for m in modules.values() for p in m._parameters.values() if p is not None}
        return Part(modules, [self._names[key] for key in parameters], list(parameters.values()))

    def _refuse_ties(self) -> None:
        tied = set(self.early.names) & set(self.late.names)
        if not tied:
            return
        name = min(tied)
        users = [
            join(path, own)
            for part in (self.early, self.late)
            for path, layer in part.modules.items()
            for own, parameter in layer._parameters.items()
            if parameter is not None and self._names[id(parameter)] == name
        ]
        raise RequestError(
            f"{users[0]} (early) and {users[-1]} (late) are tied: a split with both on one side would fit"
        )

    def describe(self) -> dict[str, Any]:
        """The partition as plain data, for a run's record."""
        parts = {"early": self.early, "late": self.late, "head": self.head}
        return {"blocks": [block.path for block in self.blocks]} | {
            name: {"layers": list(part.modules), "tensors": len(part.names), "parameters": part.numel}
            for name, part in parts.items()
        }

    def __str__(self) -> str:
        rows = [("part", "layers", "tensors", "parameters", "share")]
        total = self.early.numel + self.late.numel
        for name, part in (("early", self.early), ("late", self.late)):
            paths = list(part.modules) or ["none"]
            span = paths[0] if len(paths) == 1 else f"{paths[0]} … {paths[-1]}"
            rows.append((name, span, f"{len(part.names)}", f"{part.numel:,}", f"{part.numel / total:.1%}"))
        widths = [max(len(row[i]) for row in rows) for i in range(5)]
        lines = [
            f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c:>{widths[2]}}  {d:>{widths[3]}}  {e:>{widths[4]}}"
            for a, b, c, d, e in rows
        ]
        return "\n".join(lines) + f"  (head: {next(iter(self.head.modules))})"


def _shown(split: Split) -> str:
    return getattr(split, "__name__", "a predicate") if callable(split) else repr(split)
