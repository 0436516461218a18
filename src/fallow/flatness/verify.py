"""What the graph cannot show is tried: is the loss curved, and do samples interact after the layer?

Tried means at this batch and these weights: an interaction that has no effect here (behind a scale that is still 0,
say) is not seen. Statistics of a batch are always seen, because the graph shows them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from fallow.base.errors import RequestError
from fallow.flatness.graph import derivative, trace
from fallow.flatness.observation import Observation


def verify(seen: Observation) -> None:
    """Refuse a loss without curvature; find out whether samples interact, and keep that in mind."""
    with _twice("the loss"):
        _verify_loss(seen)
    with _twice(f"what comes after layer {seen.path!r}"):
        if not seen.coupled and _interact(seen):
            seen.mark_mixing()


@contextmanager
def _twice(what: str) -> Iterator[None]:
    """Torch says which operation has no second derivative; here is where."""
    try:
        yield
    except RuntimeError as error:
        raise RequestError(f"{what} is not twice differentiable: {str(error).splitlines()[0]}") from error


def _verify_loss(seen: Observation) -> None:
    edge = seen.output_edge
    if edge is None:
        return
    assert seen.loss.grad_fn is not None
    steps = trace(seen.loss.grad_fn, edge).steps
    first = derivative(seen.loss, edge)
    if all(step.piecewise_linear for step in steps) or not first.requires_grad:
        made_of = ", ".join(dict.fromkeys(step.kind for step in steps))
        raise RequestError(
            f"the loss is not twice differentiable in the model's outputs (it is made of {made_of}): "
            "use cross-entropy or a squared error"
        )
    derivative(first, edge, torch.ones_like(first), graph=False, like=first)  # torch may know only one derivative


def _interact(seen: Observation) -> bool:
    """Whether some samples at the site move the outputs of others, or the gradient of others.

    Half of the samples are pushed and the other half is looked at, for halves that differ in one digit of the sample's
    number: for any two samples there is a digit that parts them.
    """
    n, first = seen.rows.n, seen.gradient
    outputs = seen.output_like
    if outputs is not None and len(outputs) != n:
        return True
    numbers = torch.arange(n, device=first.device)
    changed = [numbers.new_zeros((), dtype=torch.bool)]
    for digit in range((n - 1).bit_length()):
        half = (numbers >> digit) % 2 == 1
        moved = derivative(first, seen.site, _push(first, half), graph=False, like=first)
        changed.append(moved[~half].any())
        if outputs is not None:
            pulled = derivative(seen.output_edge, seen.site, _push(outputs, half), graph=False, like=first)
            changed.append(pulled[~half].any())
    return bool(torch.stack(changed).any())


def _push(like: Tensor, half: Tensor) -> Tensor:
    """Random numbers for half of the samples, the same every time."""
    push = torch.randn(like.shape, generator=torch.Generator().manual_seed(0)).to(like)
    push[~half] = 0
    return push
