"""LW's figures 4 to 6 at the size of a laptop: the smallest margins, robustness to noise on the weights, their size.

fallow reproduce lw-figure4 [--data-dir DIR]      a few minutes on two cores, 3 seeds
fallow reproduce lw-figure5 [--data-dir DIR]
fallow reproduce lw-figure6 [--data-dir DIR]

The paper has four architectures on six data sets; here a narrow scnn has learned 500 digits (or 500 images of
DIR/fashion_mnist.npz), without label smoothing, which would cap margins. The methods spend the same compute. The paper
finds the smallest margins of LW largest, the change of training accuracy under noise of LW smallest, and the size of
LW's weights that of the baseline: the norm of what the head takes from 256 training examples times the norm of its
weights, over the same of the baseline (appendix D).
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from fallow.diagnose import margins, noise
from fallow.reproduce.curves import Curves
from fallow.reproduce.runs import Runs
from fallow.reproduce.seal_diagnosed import trained
from fallow.reproduce.table import Table, cell

SEEDS = 3
METHODS = {"BL": "long", "WELSR": "welsr", "DSD": "dsd", "WELS": "wels", "FC": "fc", "LW": "lw"}
TRAIN, RANKS = 500, (1, 5, 10, 25, 50, 100, 200, 400)
SIGMAS = (0.002, 0.005, 0.01, 0.02, 0.05)
DRAWS = 10
SAMPLE = 256  # training examples that show the size


def smallest(folder: Path, data: str, train: int, method: str, seed: int) -> dict[str, float]:
    """The margins by rank, the smallest first."""
    model, (x, y), _ = trained(data, train, method, seed, smoothing=0.0)
    values = margins(model, x, y, n=max(RANKS)).smallest
    return {str(rank): float(values[rank - 1]) for rank in RANKS if rank <= len(values)}


def fall(folder: Path, data: str, train: int, method: str, seed: int) -> dict[str, float]:
    """By how many points the training accuracy falls under noise of each σ."""
    model, (x, y), _ = trained(data, train, method, seed, smoothing=0.0)
    found = noise(model, "cross_entropy", x, y, sigmas=SIGMAS, draws=DRAWS, seed=seed)
    assert found.accuracies is not None
    return {f"{sigma:g}": -100 * float(changes.mean()) for sigma, changes in zip(SIGMAS, found.accuracies, strict=True)}


def size(folder: Path, data: str, train: int, method: str, seed: int) -> dict[str, float]:
    """The norm of the head's inputs on 256 training examples times that of its weights."""
    model, (x, _), _ = trained(data, train, method, seed, smoothing=0.0)
    taken: list[Tensor] = []
    head = model.get_submodule("head")
    handle = head.register_forward_pre_hook(lambda _, inputs: taken.append(inputs[0]))
    model.eval()
    with torch.no_grad():
        model(x[:SAMPLE])
    handle.remove()
    return {"size": float(taken[0].norm() * head.weight.detach().norm())}


def run(name: str, seeds: range, data_dir: Path | None, each: Runs) -> Table:
    """The figure: one curve a method, or one size."""
    data = "digits" if data_dir is None else str(data_dir / "fashion_mnist.npz")
    measure = {"lw-figure4": smallest, "lw-figure5": fall, "lw-figure6": size}[name]
    jobs = {(row, seed): (data, TRAIN, method, seed) for seed in seeds for row, method in METHODS.items()}
    at, done = each(measure, jobs)
    if name == "lw-figure6":
        ratios = {row: [at[row, s]["size"] / at["BL", s]["size"] for s in done] for row in METHODS}
        sizes = [cell(row, "size over the baseline's", None, values, 0) for row, values in ratios.items()]
        remark = f"{data}, {TRAIN} training examples; the paper's ratios of LW lie around 1."
        return Table(name, "LW, figure 6", sizes, unit="parts of one", remarks=[remark])
    columns = next(iter(at.values()))
    cells = [cell(row, c, None, [at[row, s][c] for s in done], 0) for row in METHODS for c in columns]
    remarks = [f"{data}, {TRAIN} training examples; means over {len(done)} seeds. The paper's figures have no numbers."]
    if name == "lw-figure4":
        return Curves(name, "LW, figure 4", cells, unit="softmax margin", remarks=remarks, along="rank", log_x=True)
    return Curves(
        name, "LW, figure 5", cells, unit="points of training accuracy lost", remarks=remarks, along="σ", log_x=True
    )
