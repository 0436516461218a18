"""What a model and its blocks make of a data set: one row of features for each example."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fallow.base.errors import RequestError, unknown
from fallow.weights.blocks import find_blocks, head_of
from fallow.weights.layers import copied, execution_order, layers, untouched

CHUNK = 256  # examples that pass at once

Pooling = str | Callable[[Tensor], Tensor]
POOLINGS: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": lambda x: x.flatten(2).mean(2) if x.ndim > 2 else x,
    "max": lambda x: x.flatten(2).amax(2) if x.ndim > 2 else x,
    "flatten": lambda x: x.flatten(1),
}


def place(model: nn.Module, values: Tensor) -> Tensor:
    """Examples where the model is, and in its precision when they are real numbers."""
    like = next((p for p in model.parameters() if p.is_floating_point()), values)
    return values.to(like.device, like.dtype if values.is_floating_point() else values.dtype)


def without_head(model: nn.Module, inputs: Tensor) -> nn.Module:
    """A copy of the model that gives what its head, the last linear layer, would look at.

    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> without_head(net, torch.zeros(1, 4))(torch.zeros(3, 4)).shape
    torch.Size([3, 8])
    """
    path = head_of(model, execution_order(model, place(model, inputs[:1]))) if layers(model) else ""
    head = model.get_submodule(path)
    if not isinstance(head, nn.Linear):
        raise RequestError(
            f"the model ends in a {type(head).__name__}: features are what a linear layer at the end sees"
        )
    if not path:
        return nn.Flatten()
    found = copied(model)
    found.set_submodule(path, nn.Identity())
    return found


def pooled(pooling: Pooling) -> Callable[[Tensor], Tensor]:
    """The function that makes a block's output N×C×… one row for each example."""
    if callable(pooling):
        return pooling
    if pooling not in POOLINGS:
        raise unknown("pooling", pooling, POOLINGS)
    return POOLINGS[pooling]


def block_outputs(model: nn.Module, names: Sequence[str] | None, inputs: Tensor) -> dict[str, str]:
    """Blocks by name, each with the path of the module whose output is theirs.

    Without names they are the model's own: ``model.blocks``, or those that its structure shows.

    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> block_outputs(net, None, torch.zeros(1, 4))
    {'0': '1', '2': '3'}
    """
    if names is not None:
        known = [path for path, _ in model.named_modules() if path]
        for name in names:
            if name not in known:
                raise unknown("block", name, known)
        found = {name: name for name in names}
    elif layers(model):
        order = execution_order(model, place(model, inputs[:1]))
        found = {block.path: block.output for block in find_blocks(model, order)}
    else:
        found = {}
    if not found:
        raise RequestError("no block can be found in the model: name modules of it, as in blocks=['layer1', 'layer2']")
    return found


@torch.no_grad()
def features(
    model: nn.Module, outputs: dict[str, str], inputs: Tensor | Iterable[Tensor], pooling: Pooling = "mean"
) -> tuple[dict[str, Tensor], Tensor]:
    """The features of every block, in the order in which blocks finish, and the model's own output; in eval mode.

    ``inputs`` are all examples, or batches of them.
    """
    pool = pooled(pooling)
    parts: dict[str, list[Tensor]] = {}
    present: dict[str, Tensor] = {}

    def keep(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, arguments: Any, output: Any) -> None:
            if isinstance(output, tuple | list) and output:  # as attention layers give
                output = output[0]
            if not isinstance(output, Tensor):
                raise RequestError(f"block {name!r} gives a {type(output).__name__}: name blocks that give a tensor")
            rows = pool(output)
            if rows.ndim != 2:
                raise RequestError(f"pooling leaves {rows.ndim} dimensions of block {name!r}: it should leave N×F")
            shared = rows.untyped_storage().data_ptr() == output.untyped_storage().data_ptr()
            present[name] = rows.clone() if shared else rows  # what comes next may work in place

        return hook

    handles = [model.get_submodule(path).register_forward_hook(keep(name)) for name, path in outputs.items()]
    logits = []
    try:
        with untouched(model):
            model.eval()
            for some in inputs.split(CHUNK) if isinstance(inputs, Tensor) else inputs:
                present.clear()
                logits.append(model(place(model, some)))
                for name, rows in present.items():
                    parts.setdefault(name, []).append(rows)
    finally:
        for handle in handles:
            handle.remove()
    idle = [name for name in outputs if name not in parts]
    if idle:
        raise RequestError(f"block {idle[0]!r} does not run in a forward pass: name blocks that do")
    found = {}
    for name in list(parts):
        found[name] = torch.cat(parts.pop(name))
        if not torch.isfinite(found[name]).all():
            raise RequestError(f"block {name!r} gives values that are not finite: no distance can be measured there")
    return found, torch.cat(logits)
