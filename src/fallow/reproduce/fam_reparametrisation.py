"""What FAM claims of its measure (section 2): rescaling that leaves the function alone leaves relative flatness alone.

fallow reproduce fam-reparametrisation      seconds

A trained ReLU network is rescaled by layers (W₁ · s, W₂ / s) and by neurons (row i of W₁ · sᵢ, column i of W₂ / sᵢ):
the function stays the same to rounding. κ should stay the same too; the trace of the Hessian, and SAM's sharpness
max L(w + ε) − L(w) over ‖ε‖ ≤ ρ (one step along the gradient), do not. Cells are the ratio after / before, in float64.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from fallow.data import Examples, load
from fallow.data.normalise import normalise
from fallow.flatness import relative_flatness
from fallow.methods.flat.sam import perturbed
from fallow.reproduce.runs import Runs
from fallow.reproduce.table import Cell, Table

SEEDS = 3
SCALES = (0.2, 5.0)
RHO = 0.05
HIDDEN = 32


def ratios(folder: Path, seed: int) -> dict[str, Any]:
    """Every measure after every rescaling by what it was before, and how far the outputs moved."""
    model, x, y = _trained(seed)
    before = {measure: of(model, x, y) for measure, of in MEASURES.items()}
    output = model(x).detach()
    changed = {column: _rescaled(model, factors) for column, factors in _rescalings(seed).items()}
    moved = [float((net(x).detach() - output).abs().max() / output.abs().max()) for net in changed.values()]
    found = {c: {m: of(net, x, y) / before[m] for m, of in MEASURES.items()} for c, net in changed.items()}
    return {"moved": max(moved), "ratios": found}


def run(name: str, seeds: range, data_dir: Path | None, each: Runs) -> Table:
    """Every measure before and after every rescaling."""
    at, done = each(ratios, {("seed", seed): [seed] for seed in seeds})
    found = [at["seed", seed]["ratios"] for seed in done]
    cells = [_cell(m, column, [one[column][m] for one in found]) for column in found[0] for m in MEASURES]
    moved = max(one["moved"] for one in at.values())
    remarks = [
        f"Ratio after / before; a MLP 64-{HIDDEN}-10 trained on digits, float64. The outputs moved by {moved:.0e}.",
        "By neurons: factors drawn from exp N(0, ¼). κ of a layer stays when its own neurons are rescaled; κ of the "
        "layer that they feed does not, since the columns of its weight are then rescaled one by one.",
    ]
    return Table(name, "FAM, section 2", cells, unit="ratios", remarks=remarks)


def _cell(measure: str, column: str, ratios: list[float]) -> Cell:
    """The paper's ratio is 1 for its own measure; ours agrees when every seed has it to a millionth."""
    claimed = measure in INVARIANT
    agrees = all(abs(ratio - 1) <= 1e-6 for ratio in ratios) if claimed else None
    spread = statistics.stdev(ratios) if len(ratios) > 1 else 0.0
    return Cell(measure, column, 1.0 if claimed else None, statistics.mean(ratios), spread, len(ratios), agrees)


class Net(nn.Module):
    """One hidden layer with ReLU: its neurons can be rescaled, and the head make up for it."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(64, HIDDEN, dtype=torch.float64)
        self.head = nn.Linear(HIDDEN, 10, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        """The logits."""
        return self.head(functional.relu(self.hidden(x)))


def _trained(seed: int) -> tuple[Net, Tensor, Tensor]:
    data = load("digits", seed=seed)
    assert isinstance(data.train, Examples)
    x, y = normalise(data.train.x, data.mean, data.std).flatten(1).double(), data.train.y
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(100):
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return model, x, y


def _rescalings(seed: int) -> dict[str, Tensor]:
    by_layer = {f"layer × {scale:g}": torch.full((HIDDEN,), scale, dtype=torch.float64) for scale in SCALES}
    draw = torch.Generator().manual_seed(seed)
    return by_layer | {"by neurons": torch.randn(HIDDEN, generator=draw, dtype=torch.float64).div(2).exp()}


def _rescaled(model: Net, factors: Tensor) -> Net:
    changed = Net()
    with torch.no_grad():
        changed.hidden.weight.copy_(model.hidden.weight * factors[:, None])
        changed.hidden.bias.copy_(model.hidden.bias * factors)
        changed.head.weight.copy_(model.head.weight / factors)
        changed.head.bias.copy_(model.head.bias)
    return changed


def _kappa(layer: str) -> Callable[[Net, Tensor, Tensor], float]:
    return lambda model, x, y: float(relative_flatness(model, layer, x, y).detach())


def _trace(model: Net, x: Tensor, y: Tensor) -> float:
    """Tr H of the hidden layer: κ̂ without the weights' norm."""
    kappa = relative_flatness(model, "hidden", x, y, simplified=True)
    return float((kappa / model.hidden.weight.square().sum()).detach())


def _sharpness(model: Net, x: Tensor, y: Tensor) -> float:
    """SAM's: the rise of the loss one step of ρ along the gradient."""
    parameters = list(model.parameters())
    model.zero_grad()
    loss = functional.cross_entropy(model(x), y)
    loss.backward()
    with perturbed(parameters, RHO), torch.no_grad():
        worst = functional.cross_entropy(model(x), y)
    model.zero_grad()
    return max(float(worst - loss.detach()), math.ulp(1.0))


INVARIANT = ("κ, hidden layer", "κ, head")
MEASURES: dict[str, Callable[[Net, Tensor, Tensor], float]] = {
    "κ, hidden layer": _kappa("hidden"),
    "κ, head": _kappa("head"),
    "Tr H, hidden layer": _trace,
    "SAM's sharpness": _sharpness,
}
