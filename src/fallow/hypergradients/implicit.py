"""The gradient of a validation loss by hyperparameters, through the weights that the training loss leads to.

With w*(λ) = argmin_w L_T(w, λ), the implicit function theorem gives (equations 3.3 and 3.4)::

    dL_V/dλ = ∂L_V/∂λ − ∂L_V/∂w · H⁻¹ · ∂²L_T/∂w∂λ,    H = ∂²L_T/∂w²

so no step of the training has to be unrolled. A solver finds x = (H + ρI)⁻¹ · ∂L_V/∂w by products with H.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fallow.base.errors import RequestError, WorkError
from fallow.hypergradients.inner import Inner
from fallow.hypergradients.penalty import Penalty
from fallow.hypergradients.products import Loss, Slopes, add, differentiate, flat, scalar, shaped
from fallow.hypergradients.solution import Solver
from fallow.hypergradients.solvers import CG

FAR = 0.5  # of the validation gradient: an inner gradient above this is hardly that of a minimum

Tensors = nn.Module | Mapping[str, Tensor] | Iterable[Tensor]


@dataclass(frozen=True)
class Record:
    """How a hypergradient was come by: what to look at when it seems wrong."""

    reason: str  # to stop
    products: int  # with the Hessian
    damping: float  # ρ
    residual: float | None  # ‖b − (H + ρI)x‖ / ‖b‖, where the solver knows it
    curvature: float | None  # the smallest met, without the damping; below 0 the weights are at no minimum
    gradient_norm: float  # ‖∂L_T/∂w‖: 0 at the minimum that all this assumes
    val_gradient_norm: float  # ‖∂L_V/∂w‖, to compare it with
    train_loss: float  # without the penalty that is given apart
    val_loss: float


def hypergradient(
    train_loss: Loss | Sequence[Loss],
    val_loss: Loss | Sequence[Loss],
    params: Tensors,
    hyperparams: Tensors,
    solver: Solver = CG(10, damping="auto"),  # noqa: B008 (it is frozen)
    *,
    penalty: Penalty | None = None,
    all_reduce: Callable[[Tensor], Tensor] | None = None,
) -> tuple[list[Tensor], Record]:
    """dL_V/dλ for every hyperparameter λ, and a record of how it was found. Nothing is written to ``.grad``.

    Parameters
    ----------
    train_loss, val_loss : functions of nothing that give a scalar, or scalars with a graph. Several in a sequence are
        chunks of a loss, which is their sum: weigh each by its share of the examples. Functions among several are
        called once for every product, and must give the same loss each time.
    params, hyperparams : a module, a mapping from names, or tensors. The weights are those that the training loss was
        minimised by; the hyperparameters enter the training loss, and may enter the validation loss.
    solver : of :mod:`fallow.hypergradients.solvers`.
    penalty : a term of the training loss with a diagonal Hessian, in closed form and not in ``train_loss``.
    all_reduce : a function that averages a tensor over processes, of which each gives its own share of the losses.

    >>> w, decay = torch.tensor([0.8], requires_grad=True), torch.tensor(0.25, requires_grad=True)
    >>> train = lambda: ((w - 1) ** 2 + decay * w**2).sum()  # its argmin is w = 1 / (1 + decay) = 0.8
    >>> gradients, record = hypergradient(train, lambda: (w**2).sum(), [w], [decay])
    >>> gradients, record.products  # d(1 + decay)⁻² = −2 (1 + decay)⁻³
    ([tensor(-1.0240)], 1)

    """
    weights, names = _named(params, "parameter")
    knobs, knob_names = _named(hyperparams, "hyperparameter")
    closed = [] if penalty is None else [id(tensor) for tensor in penalty.hyperparams]
    _check(weights, names, {name: k for name, k in zip(knob_names, knobs, strict=True) if id(k) not in closed})

    val, b, direct = _validation(_chunks(val_loss), weights, knobs)
    A = Inner(_chunks(train_loss), weights, penalty, all_reduce)
    if A.idle:
        idle = ", ".join(names[i] for i in A.idle)
        raise RequestError(f"the training loss does not depend on {idle}: leave out what is not trained")
    b = A.averaged(b)
    val_norm = float(b.norm())
    _judge(A.gradient_norm, val_norm)
    found = solver(A, b)
    gradients = _difference(direct, A.mixed(found.x, knobs), knob_names)
    if all_reduce:
        gradients = shaped(A.averaged(flat(gradients, knobs)), knobs)
    if not math.isfinite(sum(float(g.sum()) for g in gradients)):
        raise WorkError("the hypergradient is not finite: look at the weights and the hyperparameters")
    losses = A.averaged(torch.tensor([A.loss, val], dtype=torch.float64, device=b.device)).tolist()
    return gradients, Record(
        found.reason, A.products, found.damping, found.residual, found.curvature, A.gradient_norm, val_norm, *losses
    )


def _chunks(loss: Loss | Sequence[Loss]) -> Sequence[Loss]:
    return [loss] if isinstance(loss, Tensor) or callable(loss) else list(loss)


def _named(tensors: Tensors, what: str) -> tuple[list[Tensor], list[str]]:
    """The tensors, and what messages call them."""
    if isinstance(tensors, nn.Module):
        tensors = {name: p for name, p in tensors.named_parameters() if p.requires_grad}
    if isinstance(tensors, Mapping):
        named = {f"{what} {name!r}": tensor for name, tensor in tensors.items()}
    else:
        named = {f"{what} {i}": tensor for i, tensor in enumerate(tensors)}
    if not named:
        raise RequestError(f"there is no {what}: give at least one")
    for name, tensor in named.items():
        if not isinstance(tensor, Tensor):
            raise RequestError(f"{name} is a {type(tensor).__name__}: it must be a tensor")
    return list(named.values()), list(named)


def _check(weights: list[Tensor], names: list[str], knobs: dict[str, Tensor]) -> None:
    """Refuse tensors that cannot be differentiated by, or not together."""
    for name, tensor in [*zip(names, weights, strict=True), *knobs.items()]:
        if not tensor.requires_grad:
            raise RequestError(f"{name} has no gradient: it needs requires_grad=True")
    kinds = {(w.dtype, w.device) for w in weights}
    if len(kinds) > 1:
        listed = ", ".join(sorted(f"{dtype} on {device}" for dtype, device in kinds))
        raise RequestError(f"the parameters are of several kinds ({listed}): use one dtype and one device")
    for name, knob in knobs.items():
        if any(knob is w for w in weights):
            raise RequestError(f"{name} is a parameter too: a tensor is one or the other")


def _validation(chunks: Sequence[Loss], weights: list[Tensor], knobs: list[Tensor]) -> tuple[float, Tensor, Slopes]:
    """L_V, ∂L_V/∂w as a vector, and ∂L_V/∂λ."""
    total = 0.0
    slopes: Slopes = [None] * (len(weights) + len(knobs))
    for chunk in chunks:
        loss = scalar(chunk, "validation")
        slopes = add(slopes, differentiate(loss, [*weights, *knobs]))
        total += float(loss.detach())
    return total, flat(slopes[: len(weights)], weights), slopes[len(weights) :]


def _judge(norm: float, val_norm: float) -> None:
    """Refuse gradients that say nothing; warn of weights that are at no minimum."""
    if not math.isfinite(norm + val_norm):
        raise WorkError(f"the gradients have the norms {norm:g} (training) and {val_norm:g} (validation): not finite")
    if val_norm == 0:
        raise RequestError("the validation loss does not depend on the parameters: there is nothing to learn from")
    if norm > FAR * val_norm:
        warnings.warn(
            f"the training loss is far from its minimum: its gradient has the norm {norm:.3g}, that of the validation "
            f"loss {val_norm:.3g}; a hypergradient assumes that the first is 0: train on before taking one",
            RuntimeWarning,
            stacklevel=3,
        )


def _difference(direct: Slopes, mixed: Slopes, names: list[str]) -> list[Tensor]:
    """∂L_V/∂λ − x·∂²L_T/∂w∂λ, where at least one of them must be."""
    found: list[Tensor] = []
    for plus, minus, name in zip(direct, mixed, names, strict=True):
        if minus is not None:
            found.append(-minus if plus is None else plus - minus)  # not in place: knobs that are added share theirs
        elif plus is not None:
            found.append(plus)
        else:
            raise RequestError(f"the gradient of the training loss does not depend on {name}: it cannot be learned")
    return found
