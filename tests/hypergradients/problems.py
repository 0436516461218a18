"""Problems small enough for the dense answer, in float64."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from fallow.hypergradients.penalty import SquaredDecay
from fallow.hypergradients.products import Operator


def system(n: int = 30, low: float = 0.5, high: float = 20.0, seed: int = 0) -> tuple[Tensor, Tensor]:
    """A symmetric matrix with eigenvalues from ``low`` to ``high``, and a right-hand side."""
    draw = torch.Generator().manual_seed(seed)
    basis = torch.linalg.qr(torch.randn(n, n, generator=draw, dtype=torch.float64)).Q
    matrix = basis @ torch.diag(torch.linspace(low, high, n, dtype=torch.float64)) @ basis.T
    return (matrix + matrix.T) / 2, torch.randn(n, generator=draw, dtype=torch.float64)


def operator(matrix: Tensor, diagonal: Tensor | None = None) -> Operator:
    return Operator(lambda v: matrix @ v, diagonal)


def damped(matrix: Tensor, rho: float, b: Tensor) -> Tensor:
    """(A + ρI)⁻¹·b, by the dense inverse."""
    return torch.linalg.solve(matrix + rho * torch.eye(len(b), dtype=b.dtype), b)


def error(found: Tensor, right: Tensor) -> float:
    return float((found - right).norm() / right.norm())


class Net:
    """A network of 53 weights with a decay for each tensor, trained to its minimum; all derivatives also densely."""

    def __init__(self, smooth: nn.Module | None = None, decay: float = 0.1, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(6, 5), smooth or nn.Tanh(), nn.Linear(5, 3)).double()
        self.params = list(self.model.parameters())
        start = torch.tensor(decay, dtype=torch.float64).sqrt().expm1().log()
        self.raw = [(start + 0.1 * i).requires_grad_() for i in range(4)]
        self.decay = SquaredDecay(self.raw)
        draw = torch.Generator().manual_seed(seed)
        self.x, self.val_x = torch.randn(2, 20, 6, generator=draw, dtype=torch.float64)
        self.y, self.val_y = torch.randint(3, (2, 20), generator=draw)
        minimise(self.train_loss, self.params)
        for raw in self.raw:
            raw.grad = None

    def data_loss(self) -> Tensor:
        return functional.cross_entropy(self.model(self.x), self.y)

    def train_loss(self) -> Tensor:
        return self.data_loss() + self.decay(self.params)

    def val_loss(self) -> Tensor:
        return functional.cross_entropy(self.model(self.val_x), self.val_y)

    def dense(self, rho: float = 0.0) -> list[Tensor]:
        """−∂L_V/∂w · (H + ρI)⁻¹ · ∂²L_T/∂w∂λ, every factor as a matrix."""
        hessian = second(self.train_loss(), self.params, self.params)
        mixed = second(self.train_loss(), self.params, self.raw)
        b = torch.cat([g.flatten() for g in torch.autograd.grad(self.val_loss(), self.params)])
        return list(-damped(hessian, rho, b) @ mixed)


def second(loss: Tensor, by: list[Tensor], then: list[Tensor]) -> Tensor:
    """The matrix of second derivatives, row by row."""
    first = torch.cat([g.flatten() for g in torch.autograd.grad(loss, by, create_graph=True)])
    rows = []
    for slope in first:
        found = torch.autograd.grad(slope, then, retain_graph=True, allow_unused=True)
        row = [torch.zeros_like(t) if g is None else g for g, t in zip(found, then, strict=True)]
        rows.append(torch.cat([part.flatten() for part in row]))
    return torch.stack(rows)


def minimise(loss: Callable[[], Tensor], params: list[Tensor]) -> None:
    """To where rounding ends: a quasi-Newton method, then Newton's own steps."""
    optimizer = torch.optim.LBFGS(params, max_iter=2000, tolerance_grad=1e-10, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value

    optimizer.step(closure)
    optimizer.zero_grad()
    for _ in range(4):
        slope = torch.cat([g.flatten() for g in torch.autograd.grad(loss(), params)])
        step = torch.linalg.solve(second(loss(), params, params), slope)
        with torch.no_grad():
            for p, part in zip(params, step.split([p.numel() for p in params]), strict=True):
                p.sub_(part.view_as(p))
