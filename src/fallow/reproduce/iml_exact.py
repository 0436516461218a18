"""Figure 4.1 of the thesis on implicit meta-learning: every solver against the exact inverse, along a training.

fallow reproduce iml-figure4.1 --data-dir DIR --out DIR      DIR/mnist.npz at 14×14
fallow reproduce iml-figure4.1 --out DIR                     the digits stand in

As in the thesis: 14×14 images, 32 hidden units (6,634 weights), 50 images to train, a decay per weight, 50 steps
between two meta-updates, here by CG (10). In float64. At a few of them x = (H + ρI)⁻¹·∂L_V/∂w is solved densely, for
ρ = 0 and for a ρ above |λmin|, and each solver's x is compared: its cosine, and its error relative to the exact one.
Neumann's series and the guarded CG are as in the thesis. The thesis' figure gives no numbers.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from fallow.base.errors import WorkError
from fallow.hypergradients import CG, MINRES, Identity, MetaSchedule, Neumann, Nystrom
from fallow.hypergradients.inner import Inner
from fallow.hypergradients.krylov import lanczos
from fallow.hypergradients.products import Operator, flat
from fallow.hypergradients.solution import Solver
from fallow.report.charts import Axis, Line, lines
from fallow.report.style import series
from fallow.report.svg import Drawing, beside
from fallow.reproduce.iml_inner import Bilevel, ClampedCG, learn, sets, source
from fallow.reproduce.runs import Runs
from fallow.reproduce.table import Cell, Table, cell

SEEDS = 2
SIDE, HIDDEN, IMAGES = 14, 32, 50
INNER, CHECKPOINTS = 50, (1, 5, 20, 50, 100)  # steps, and meta-updates after which to compare
PROBE = 150  # products to estimate λmin by
LEAST = 0.02  # of the damping, beside 2·|λmin|
MOST = 1e6  # of an error: a series that diverges has no better number


def solvers(rho: float) -> dict[str, Solver]:
    """All of them, with the same damping where they know of one."""
    known: dict[str, Solver] = {
        "Identity": Identity(),
        "Neumann (3), α = 0.1": Neumann(3, 0.1, rho),
        "Neumann (50), α = 0.1": Neumann(50, 0.1, rho),
        "Neumann (50), α = 1/λmax": Neumann(50, "auto", rho),
        "CG (10), guarded": ClampedCG(10),
        "CG (3)": CG(3, rho),
        "CG (10)": CG(10, rho),
        "CG (50)": CG(50, rho),
        "MINRES (10)": MINRES(10, rho),
    }
    return known | ({"Nyström (10)": Nystrom(10, rho)} if rho else {})  # it needs a damping


class Compared:
    """The system at the present weights, and its dense solutions: one matrix for both, and no eigenvalues (`Exact`)."""

    def __init__(self, A: Operator, b: Tensor) -> None:
        self.A, self.b = A, b
        self.matrix = torch.empty(len(b), len(b), dtype=b.dtype)
        unit = torch.zeros_like(b)
        for i, row in enumerate(self.matrix):
            unit[i] = 1
            row.copy_(A(unit))
            unit[i] = 0
        self.matrix.add_(self.matrix.T.clone()).div_(2)

    def damped(self) -> tuple[float, Tensor]:
        """A ρ above |λmin|, and (H + ρI)⁻¹·b.

        ρ is twice an estimate of |λmin| and a little more; doubled if that leaves H + ρI indefinite.
        """
        *_, space = lanczos(self.A, self.b, min(PROBE, len(self.b)))
        rho = LEAST + 2 * max(0.0, -space.extremes()[0])
        while True:
            shifted = self.matrix.clone()
            shifted.diagonal().add_(rho)
            factor, failed = torch.linalg.cholesky_ex(shifted)
            if not failed:
                return rho, torch.cholesky_solve(self.b[:, None], factor)[:, 0]
            rho *= 2

    def undamped(self) -> tuple[float, Tensor]:
        """0, and H⁻¹·b."""
        return 0.0, torch.linalg.solve(self.matrix, self.b)

    def nearness(self, rho: float, exact: Tensor) -> dict[str, tuple[float, float]]:
        """Cosine and relative error of every solver; those that give up, at a direction without a minimum, are 0."""
        found = {}
        for name, solver in solvers(rho).items():
            # the guarded CG knows no damping: it gets the damped matrix
            A = Operator(lambda v: self.A(v).add_(v, alpha=rho)) if isinstance(solver, ClampedCG) else self.A
            try:
                x = solver(A, self.b).x
            except WorkError:
                x = torch.zeros_like(self.b)
            x = torch.where(x.isfinite(), x, 0.0)
            error = float((x - exact).norm() / exact.norm())
            found[name] = float(torch.cosine_similarity(x, exact, 0)), min(error, MOST)
        return found


def system(learner: Bilevel) -> tuple[Inner, Tensor]:
    """H and ∂L_V/∂w at the present weights."""
    A = Inner([lambda: learner.loss(learner.data.train)], learner.params, learner.decay)
    slopes = torch.autograd.grad(learner.loss(learner.data.val), learner.params)
    return A, flat(slopes, learner.params)


def training(folder: Path, data: str, seed: int) -> tuple[dict[str, dict[str, list[float]]], list[float]]:
    """By what is measured and the solver, a number for every checkpoint; and the dampings there."""
    few = sets(data, SIDE, IMAGES, 0.5, IMAGES, seed)
    learner = Bilevel(few, hidden=HIDDEN, seed=seed, dtype=torch.float64)
    schedule, solver = MetaSchedule(INNER, INNER), CG(10)
    found: dict[str, dict[str, list[float]]] = {}
    dampings, done = [], 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the solvers say what the table shows
        for checkpoint in CHECKPOINTS:
            steps = (checkpoint - done) * INNER
            learn(learner, solver, schedule, steps, steps, updates=checkpoint - done - 1)
            compared = Compared(*system(learner))
            for damping, solved in (("ρ = 0", compared.undamped()), ("ρ > |λmin|", compared.damped())):
                for name, (cosine, error) in compared.nearness(*solved).items():
                    found.setdefault(f"cosine, {damping}", {}).setdefault(name, []).append(cosine)
                    found.setdefault(f"error, {damping}", {}).setdefault(name, []).append(error)
            dampings.append(solved[0])
            learner.meta_update(solver)
            done = checkpoint
    return found, dampings


@dataclass
class Panels(Table):
    """Rows are "measure: solver", columns meta-updates; a panel for every measure, a line for every solver."""

    def drawings(self) -> list[Drawing]:
        """One figure of four panels, with one legend."""
        solvers = list(dict.fromkeys(c.row.partition(": ")[2] for c in self.cells))
        kinds = {solver: series(i) for i, solver in enumerate(solvers)}
        panels = []
        for measure in dict.fromkeys(c.row.partition(": ")[0] for c in self.cells):
            mine = {solver: [c for c in self.cells if c.row == f"{measure}: {solver}"] for solver in solvers}
            drawn = [
                Line(solver, [(float(c.column), c.ours) for c in cells], kinds[solver], dotted=True)
                for solver, cells in mine.items()
            ]
            y = Axis(kind="symlog" if measure.startswith("error") else "linear")
            panel = lines(measure, drawn, Axis("meta-updates", "log"), y, size=(440, 260), named=False)
            panels += [panel] if panel else []
        title = f"{self.paper}: solvers against the exact inverse"
        return [beside(panels, 2, title, ". ".join(panel.says for panel in panels), list(kinds.items()))]


def run(name: str, seeds: range, data_dir: Path | None, each: Runs) -> Panels:
    """The figure."""
    at, done = each(training, {("seed", seed): (source(data_dir, "mnist"), seed) for seed in seeds})
    found = [at["seed", seed] for seed in done]
    order = ("cosine, ρ = 0", "cosine, ρ > |λmin|", "error, ρ = 0", "error, ρ > |λmin|")
    cells: list[Cell] = [
        cell(f"{measure}: {solver}", str(checkpoint), None, [values[measure][solver][i] for values, _ in found], 0)
        for measure in order
        for solver in found[0][0][measure]
        for i, checkpoint in enumerate(CHECKPOINTS)
    ]
    dampings = ", ".join(
        f"{math.fsum(rho[i] for _, rho in found) / len(done):.3g} at {checkpoint}"
        for i, checkpoint in enumerate(CHECKPOINTS)
    )
    used = "digits" if data_dir is None else f"mnist at {SIDE}×{SIDE}"
    remarks = [
        f"{used}, {IMAGES} images, {HIDDEN} hidden units, float64; columns are meta-updates.",
        f"ρ is {dampings}; a solver that finds no minimum along ∂L_V/∂w has the cosine 0; errors end at {MOST:g}.",
    ]
    return Panels(name, "Implicit meta-learning, figure 4.1", cells, unit="cosine or error", remarks=remarks)
