"""LW's figures 4 and 5 at the size of a laptop: the smallest margins, and robustness to noise on the weights.

fallow reproduce lw-figure4 [--data-dir DIR]      a few minutes on two cores, 3 seeds
fallow reproduce lw-figure5 [--data-dir DIR]

The paper has four architectures on six data sets; here a narrow scnn has learned 500 digits (or 500 images of
DIR/fashion_mnist.npz). The methods spend the same compute. The paper finds the smallest margins of LW largest, and the
change of training accuracy under noise of LW smallest.
"""

from __future__ import annotations

from pathlib import Path

from fallow.diagnose import margins, noise
from fallow.reproduce.curves import Curves
from fallow.reproduce.runs import Runs
from fallow.reproduce.seal_diagnosed import trained
from fallow.reproduce.table import cell

SEEDS = 3
METHODS = {"BL": "long", "WELSR": "welsr", "DSD": "dsd", "WELS": "wels", "FC": "fc", "LW": "lw"}
TRAIN, RANKS = 500, (1, 5, 10, 25, 50, 100, 200, 400)
SIGMAS = (0.002, 0.005, 0.01, 0.02, 0.05)
DRAWS = 10


def smallest(folder: Path, data: str, train: int, method: str, seed: int) -> dict[str, float]:
    """The margins by rank, the smallest first."""
    model, (x, y), _ = trained(data, train, method, seed)
    values = margins(model, x, y, n=max(RANKS)).smallest
    return {str(rank): float(values[rank - 1]) for rank in RANKS if rank <= len(values)}


def fall(folder: Path, data: str, train: int, method: str, seed: int) -> dict[str, float]:
    """By how many points the training accuracy falls under noise of each σ."""
    model, (x, y), _ = trained(data, train, method, seed)
    found = noise(model, "cross_entropy", x, y, sigmas=SIGMAS, draws=DRAWS, seed=seed)
    assert found.accuracies is not None
    return {f"{sigma:g}": -100 * float(changes.mean()) for sigma, changes in zip(SIGMAS, found.accuracies, strict=True)}


def run(name: str, seeds: int, data_dir: Path | None, each: Runs) -> Curves:
    """The figure: one curve a method."""
    data = "digits" if data_dir is None else str(data_dir / "fashion_mnist.npz")
    measure = smallest if name == "lw-figure4" else fall
    jobs = {(row, seed): (data, TRAIN, method, seed) for seed in range(seeds) for row, method in METHODS.items()}
    at, done = each(measure, jobs)
    columns = next(iter(at.values()))
    cells = [cell(row, c, None, [at[row, s][c] for s in done], 0) for row in METHODS for c in columns]
    remarks = [f"{data}, {TRAIN} training examples; means over {len(done)} seeds. The paper's figures have no numbers."]
    if name == "lw-figure4":
        return Curves(name, "LW, figure 4", cells, unit="softmax margin", remarks=remarks, along="rank", log_x=True)
    return Curves(
        name, "LW, figure 5", cells, unit="points of training accuracy lost", remarks=remarks, along="σ", log_x=True
    )
