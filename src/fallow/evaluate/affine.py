"""Linear + affine: fine-tune the norms' scales and shifts together with the head, one episode after another.

Convolutions are shared and frozen, but what they see differs from episode to episode, so nothing is gained by stacking
episodes on a CPU; run ranges of them side by side in processes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from fallow.base.errors import RequestError
from fallow.base.seeds import mix
from fallow.evaluate.heads import LinearHead
from fallow.evaluate.sampling import DrawnEpisodes
from fallow.evaluate.span import CDFSL, Protocol, fresh_heads, orders
from fallow.weights.layers import is_norm, join, untouched


class Adapted(NamedTuple):
    """What an episode made of a backbone."""

    affines: dict[str, Tensor]  # by the name of the parameter
    buffers: dict[str, Tensor]  # the running statistics
    head: LinearHead


def affine_names(backbone: nn.Module) -> list[str]:
    """The scales and shifts of a model's norms, by name."""
    names = [
        join(path, name)
        for path, module in backbone.named_modules()
        if is_norm(module)
        for name, _ in module.named_parameters(recurse=False)
    ]
    if not names:
        raise RequestError("the model has no norms with scales and shifts: fine-tune its head alone")
    return names


def adapt(
    backbone: nn.Module, x: Tensor, y: Tensor, start: LinearHead, order: Tensor, protocol: Protocol = CDFSL
) -> Adapted:
    """Fine-tune affines and head on one support: inputs ``x``, labels ``y`` (N,), minibatches of ``order`` (epochs, N).

    ``backbone`` gives features (n, width) and stays as it is. As in the public scripts the head follows the protocol,
    the affines plain SGD of the same rate, and norms see the statistics of the minibatch, moving their running ones.
    """
    names = affine_names(backbone)
    frozen = {name: p.detach() for name, p in backbone.named_parameters()}
    affines = {name: frozen[name].clone().requires_grad_() for name in names}
    buffers = {name: b.clone() for name, b in backbone.named_buffers()}
    weight, bias = (p.detach().clone().requires_grad_() for p in start)
    descents = (
        torch.optim.SGD(
            [weight, bias], lr=protocol.rate, momentum=protocol.momentum,
            dampening=protocol.dampening, weight_decay=protocol.decay,
        ),
        torch.optim.SGD(list(affines.values()), lr=protocol.rate),
    )  # fmt: skip
    with untouched(backbone), torch.enable_grad():
        backbone.train()
        for some in order:
            for batch in some.split(protocol.batch):
                try:
                    seen = functional_call(backbone, {**frozen, **affines, **buffers}, (x[batch],))
                except ValueError as error:  # batch norm has no variance of one value
                    raise RequestError(
                        f"a norm cannot normalise a minibatch of {len(batch)}: take ways × shots that leave no single "
                        f"example over after batches of {protocol.batch}"
                    ) from error
                loss = functional.cross_entropy(functional.linear(seen, weight, bias), y[batch])
                for descent in descents:
                    descent.zero_grad()
                loss.backward()
                for descent in descents:
                    descent.step()
    detached = {name: p.detach() for name, p in affines.items()}
    return Adapted(detached, buffers, LinearHead(weight.detach(), bias.detach()))


@torch.no_grad()
def outputs(backbone: nn.Module, adapted: Adapted, x: Tensor) -> Tensor:
    """The logits of inputs after adaptation, in evaluation mode."""
    with untouched(backbone):
        backbone.eval()
        return adapted.head(functional_call(backbone, {**adapted.affines, **adapted.buffers}, (x,)))


def learn_affine(
    backbone: nn.Module,
    x: Tensor,
    drawn: DrawnEpisodes,
    numbers: Iterable[int],
    *,
    seed: int = 0,
    protocol: Protocol = CDFSL,
) -> Tensor:
    """The accuracies on the queries of the episodes with these numbers, each from (seed, number) alone.

    ``x`` holds the inputs of all examples. Heads and minibatches are those of :func:`fallow.evaluate.learners.learn`
    with this seed, so that the difference that affines make is paired.
    """
    _, ways, shots = drawn.support.shape
    labels = torch.arange(ways, device=x.device)
    y, asked = labels.repeat_interleave(shots), labels.repeat_interleave(drawn.query.shape[2])
    found: list[Tensor] = []
    for number in numbers:
        support, query = (rows[number].flatten().to(x.device) for rows in drawn)
        if not found:
            with untouched(backbone), torch.no_grad():
                width = backbone.eval()(x[support[:1]]).shape[1]
        seeds = [mix(seed, number)]
        start = fresh_heads(seeds, ways, width)
        head = LinearHead(start.weight[0].to(x), start.bias[0].to(x))
        order = orders(seeds, len(y), protocol.epochs)[0].to(x.device)
        with torch.random.fork_rng():  # a backbone may have dropout
            torch.manual_seed(seeds[0])
            adapted = adapt(backbone, x[support], y, head, order, protocol)
        found.append((outputs(backbone, adapted, x[query]).argmax(-1) == asked).double().mean().cpu())
    return torch.stack(found) if found else torch.empty(0, dtype=torch.float64)
