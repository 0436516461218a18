"""What a solver gives back, and what solvers say when a system is not as it should be."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from fallow.base.errors import RequestError, WorkError
from fallow.hypergradients.products import Operator

USED_UP, CONVERGED = "all products used", "converged"


@dataclass(frozen=True)
class Solution:
    """x, and how it was come by."""

    x: Tensor
    reason: str  # to stop
    damping: float = 0.0  # ρ
    residual: float | None = None  # ‖b − (A + ρI)x‖ / ‖b‖, where it is known
    curvature: float | None = None  # the smallest met, without the damping


def nothing(b: Tensor) -> Solution | None:
    """The solution for b = 0, which no search has to be made for; None for any other."""
    return None if bool(b.any()) else Solution(torch.zeros_like(b), CONVERGED, residual=0.0)


class Solver(Protocol):
    """What solves (A + ρI)·x = b."""

    def __call__(self, A: Operator, b: Tensor) -> Solution: ...


def tolerance(b: Tensor) -> float:
    """Of the residual relative to ‖b‖: what rounding leaves."""
    return 10 * torch.finfo(b.dtype).eps


def falls(curvature: float, damping: float) -> WorkError:
    """What to raise where not even the first direction has a minimum."""
    return WorkError(
        f"the training loss has the curvature {curvature:.3g} along the validation gradient, beyond the damping "
        f"{damping:.3g}: there is no minimum there; train on, or give damping='auto' or one above {abs(curvature):.3g}"
    )


def tell_if_falling(found: Solution) -> None:
    """Warn of a solution of an indefinite system."""
    if found.curvature is not None and found.curvature + found.damping < 0:
        warn(
            f"the training loss has the curvature {found.curvature:.3g}, beyond the damping {found.damping:.3g}: the "
            f"weights are at no minimum, and the gradient is that of a saddle; use damping='auto'"
        )


def warn(message: str) -> None:
    """Say what a caller should know, and go on."""
    warnings.warn(message, RuntimeWarning, stacklevel=2)


def check_count(name: str, value: int) -> None:
    """Refuse what counts nothing."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise RequestError(f"{name} is {value!r}: it must be a whole number from 1")


def check_damping(value: float | str) -> None:
    """Refuse what is no damping."""
    if value != "auto" and (isinstance(value, str) or not 0 <= value < math.inf):
        raise RequestError(f"damping is {value!r}: it must be 0 or above, or 'auto'")
