"""LEO alone and with L2F (L2F's supplement, section E.1), on features of a network that fallow trained.

fallow reproduce l2f-leo --data-dir DIR      on CIFAR-FS, see fallow reproduce l2f-cifarfs

The papers have features of a wide residual network on miniImageNet; here four convolutions learn to classify the 64
training classes of CIFAR-FS (``baseline``), and LEO learns on their features, 5-way 5-shot. The supplement's numbers
for LEO are not in its text: what is claimed is that L2F adds to it. "Constant γ" is the control, a γ for each dimension
that is learned but the same for all tasks. All rows of a seed have the same features, and all are judged by the same
episodes of classes that neither has seen. All are inductive: the features' norms have learned their statistics.
"""

from __future__ import annotations

from pathlib import Path
from statistics import mean

from safetensors.torch import save_file

from fallow.experiment import heed
from fallow.reproduce.fewshot_images import MODEL, SAYS, ahead, sources, tasks_of
from fallow.reproduce.runs import Runs
from fallow.reproduce.table import Table, cell
from fallow.training.meta import fewshot

SEEDS = 3
SHOTS = 5
TASKS, TABLE = "cifar-fs", "l2f-cifarfs"
FEATURES = 1500  # iterations of the network whose features are taken
ITERATIONS = 3000
LOOKS = 5
METHODS = {"LEO": "leo", "LEO+L2F": "leo+l2f", "LEO, constant γ": "leo+l2f:gamma=constant"}
BODY = "Baseline, its own head"


def accuracies(folder: Path, images: str, splits: str, seed: int) -> dict[str, list[float]]:
    """Accuracy in % on every held-out episode, of every method on the same features."""
    tasks = tasks_of(TASKS, images, splits, SHOTS)
    body = fewshot(MODEL, tasks, "baseline", iterations=FEATURES, every=max(1, FEATURES // LOOKS), seed=seed,
                   observer=heed)  # fmt: skip
    kept = folder / "features.safetensors"
    save_file(body.model.state_dict(), kept)
    found = {BODY: body}
    for row, method in METHODS.items():
        found[row] = fewshot(
            MODEL, tasks, method, iterations=ITERATIONS, every=max(1, ITERATIONS // LOOKS), seed=seed,
            observer=heed, weights=kept,
        )  # fmt: skip
    return {row: (100 * result.test.accuracies[-1]).tolist() for row, result in found.items()}  # type: ignore[union-attr,index]


def run(name: str, seeds: range, data_dir: Path | None, each: Runs) -> Table:
    """The table: every row's accuracy, and what L2F adds to LEO."""
    images, splits = sources(TABLE, data_dir)
    at, done = each(accuracies, {("LEO", seed): (images, splits, seed) for seed in seeds})
    by_seed = {row: [at["LEO", seed][row] for seed in done] for row in (BODY, *METHODS)}
    cells = [cell(row, "accuracy", None, [mean(scores) for scores in runs], 0.0) for row, runs in by_seed.items()]
    for other in ("LEO", "LEO, constant γ"):
        cells += ahead("LEO+L2F", other, "accuracy", by_seed["LEO+L2F"], by_seed[other])
    remarks = [f"{MODEL}, 5-way {SHOTS}-shot, {ITERATIONS:,} iterations of 4 tasks. {SAYS}"]
    return Table(name, "L2F, supplement, section E.1", cells, remarks=remarks)
