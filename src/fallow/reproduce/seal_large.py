"""SEAL's tables 2 and 7 at a size where a ResNet fits thousands of images: hours on two cores.

fallow reproduce seal-table2-large --data-dir DIR --out reproduced/seal-large      three hours on two cores, 3 seeds
fallow reproduce seal-scale-large --data-dir DIR --out reproduced/seal-large       the same controls, found again
fallow reproduce seal-table7-large --data-dir DIR --out reproduced/seal-large      and again
fallow diagnose reproduced/seal-large/runs/long-5-0 reproduced/seal-large/runs/seal-scale-auto-0     table 6, figure 2
fallow transfer reproduced/seal-large/runs/seal-scale-auto-0 --to DIR/pets32.npz                     tables 1 and 4

resnet18:width=8 learns 5,000 images of DIR/cifar100_sub.npz for 5 generations of 40 epochs, late layers from layer3 on
as in the paper; mirrored and shifted, so that ordinary training is no straw man. SEAL's S is chosen for the steps
(``scale=auto``), .1 and .3: the printed .01 forgets nothing in so few. Beside long training stands ``restart``, which
has the schedule of the generations and forgets nothing. Cells are differences in points to long training of as many
epochs, paired by seed, and the training accuracies: a row that has not relearned says nothing about forgetting. The
trained networks stay in the folder.
"""

from __future__ import annotations

from pathlib import Path

from fallow.base.errors import RequestError
from fallow.experiment import Run, heed
from fallow.reproduce.runs import Key, Runs, named
from fallow.reproduce.seal_tables import direction
from fallow.reproduce.table import Table, cell
from fallow.training.fit import fit

FAMILY = "seal-large"
SEEDS = 3
MODEL, SPLIT, TRAIN = "resnet18:width=8", "layer3", 5000
GENERATIONS, EPOCHS, RATE, BATCH = 5, 40, 0.1, 64
LATE = {"Gen=3": 3, "last": GENERATIONS}  # the paper's columns are generations 3 and 10
CONTROL = "long"
AUTO = "seal:scale=auto"
ROWS = {
    "seal-table2-large": {
        "restart": ("restart", {}),
        "LLF": ("llf", {"Gen=3": 4.96, "last": 7.65}),
        "SEAL (auto)": (AUTO, {"Gen=3": 7.09, "last": 9.95}),
    },
    "seal-scale-large": {
        "SEAL (S = 0.1)": ("seal:scale=0.1", {"Gen=3": 7.09, "last": 9.95}),
        "SEAL (S = 0.3)": ("seal:scale=0.3", {"Gen=3": 7.09, "last": 9.95}),
    },
    "seal-table7-large": {
        "SEAL+Freeze": (f"{AUTO},late=freeze", {"Gen=3": 1.29, "last": 1.90}),
        "SEAL+Reinit": (f"{AUTO},late=redraw", {"Gen=3": 5.66, "last": 9.60}),
        "SEAL+Reverse": (f"{AUTO},reverse=True", {"Gen=3": -0.91, "last": -8.22}),
        "SEAL+Descent": (AUTO, {"Gen=3": 7.09, "last": 9.95}),
    },
}


def training(folder: Path, data: str, method: str, seed: int, generations: int) -> list[list[float]]:
    """Train and keep the network; test and training accuracy in % after the last epoch of each generation."""
    result = fit(
        MODEL, data, method, train=TRAIN, seed=seed, generations=generations, epochs=EPOCHS, split=SPLIT, lr=RATE,
        batch_size=BATCH, schedule="one-cycle", nesterov=True, augment="flip+crop", evaluate_every=EPOCHS, out=folder,
        resume=(folder / "run.json").exists(), observer=heed,
    )  # fmt: skip
    return [[100 * record["last"][f"{part}_accuracy"] for part in ("test", "train")] for record in result.generations]


def run(name: str, seeds: int, data_dir: Path | None, each: Runs) -> Table:
    """Any of the tables; all want the same controls."""
    if data_dir is None:
        raise RequestError("there is nothing to train on: --data-dir is a folder with cifar100_sub.npz in it")
    data = str(data_dir / "cifar100_sub.npz")
    controls = [(CONTROL, generations) for generations in LATE.values()]
    tasks = [*controls, *((method, GENERATIONS) for method, _ in ROWS[name].values())]
    runs: dict[Key, Run] = {}
    for seed in range(seeds):
        for method, generations in tasks:
            label = (method, generations, seed) if method == CONTROL else (method, seed)
            arguments = {"method": method, "seed": seed, "generations": generations}
            runs[method, generations, seed] = Run(
                named(label), f"{__name__}:training", arguments, float(generations), paths={"data": data}
            )
    at, done = each.all(runs)
    cells = []
    for row, (method, paper) in ROWS[name].items():
        for column, generation in LATE.items():
            gains = [at[method, GENERATIONS, s][generation - 1][0] - at[CONTROL, generation, s][-1][0] for s in done]
            cells.append(direction(row, column, paper.get(column), gains))
    for row, method in [(CONTROL, CONTROL), *((row, method) for row, (method, _) in ROWS[name].items())]:
        ends = [at[method, GENERATIONS, s] for s in done]
        cells.append(cell(row, "test, %", None, [end[-1][0] for end in ends], 0))
        cells.append(cell(row, "training, %", None, [end[-1][1] for end in ends], 0))
        cells.append(cell(row, "its lowest", None, [min(fitted for _, fitted in end) for end in ends], 0))
    remarks = [
        f"Gen=3 and last: differences in points to long training of as many epochs. {TRAIN} images of cifar100_sub, "
        f"{MODEL}, late layers from {SPLIT} on, {GENERATIONS} generations of {EPOCHS} epochs up to {RATE} (the paper's "
        "last is generation 10); its lowest: training accuracy at the end of a generation, the lowest of all.",
    ]
    return Table(name, f"SEAL, table {7 if 'table7' in name else 2}", cells, remarks=remarks)
