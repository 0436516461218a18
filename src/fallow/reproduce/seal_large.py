"""SEAL's tables 2 and 7 at a size where a ResNet fits thousands of images: hours on two cores.

fallow reproduce seal-table2-large --data-dir DIR --out reproduced/seal-large      three hours on two cores, 3 seeds
fallow reproduce seal-scale-large --data-dir DIR --out reproduced/seal-large       the same controls, found again
fallow reproduce seal-table7-large --data-dir DIR --out reproduced/seal-large      and again
fallow reproduce seal-kept-large --data-dir DIR --out reproduced/seal-large        what table 2's networks know

resnet18:width=8 learns 5,000 images of DIR/cifar100_sub.npz for 5 generations of 40 epochs, late layers from layer3 on
as in the paper; mirrored and shifted, so that ordinary training is no straw man. SEAL's S is chosen for the steps
(``scale=auto``), .1 and .3: the printed .01 forgets nothing in so few. Beside long training stands ``restart``, which
has the schedule of the generations and forgets nothing. Cells are differences in points to long training of as many
epochs, paired by seed, and the training accuracies: a row that has not relearned says nothing about forgetting.

The trained networks stay in the folder, and of those of table 2 is asked what the paper asks of its own: the largest
eigenvalue of the Hessian and its negative part (table 6), what five neighbours know on its blocks (figure 2), linear
probes (table 1) and episodes of 1 and 5 shots (table 4) of those of pets32, fashion_mnist, omniglot28 and cifar10_sub
that are in DIR.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fallow.base.errors import RequestError
from fallow.experiment import Run, heed
from fallow.reproduce.runs import Key, Runs, named
from fallow.reproduce.seal_kept import questions
from fallow.reproduce.seal_tables import direction
from fallow.reproduce.seal_transfer import sources_of
from fallow.reproduce.table import Cell, Table, cell
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


def training(folder: Path, data: str, method: str, seed: int, generations: int, **_: str) -> list[list[float]]:
    """Train and keep the network; test and training accuracy in % after the last epoch of each generation."""
    result = fit(
        MODEL, data, method, train=TRAIN, seed=seed, generations=generations, epochs=EPOCHS, split=SPLIT, lr=RATE,
        batch_size=BATCH, schedule="one-cycle", nesterov=True, augment="flip+crop", evaluate_every=EPOCHS, out=folder,
        resume=(folder / "run.json").exists(), observer=heed,
    )  # fmt: skip
    return [[100 * record["last"][f"{part}_accuracy"] for part in ("test", "train")] for record in result.generations]


def run(name: str, seeds: range, data_dir: Path | None, each: Runs) -> Table:
    """Any of the tables; all want the same controls."""
    if data_dir is None:
        raise RequestError("there is nothing to train on: --data-dir is a folder with cifar100_sub.npz in it")
    data, targets = sources_of(data_dir, "cifar100_sub")
    kept = name == "seal-kept-large"
    rows = {row: method for row, (method, _) in ROWS["seal-table2-large" if kept else name].items()}
    controls = [(CONTROL, generations) for generations in LATE.values()]
    runs: dict[Key, Run] = {}
    for seed in seeds:
        for method, generations in [*controls, *((method, GENERATIONS) for method in rows.values())]:
            label = (method, generations, seed) if method == CONTROL else (method, seed)
            arguments = {"method": method, "seed": seed, "generations": generations}
            paths = {"data": data, **targets}  # all targets, whichever table asks for them
            trained = Run(named(label), f"{__name__}:training", arguments, float(generations), paths=paths)
            runs[method, generations, seed] = trained
            if kept and generations == GENERATIONS:
                asked = questions(trained.name, data, targets, seed)
                runs |= {(*key, method, seed): question for key, question in asked.items()}
    at, done = each.all(runs)
    cells = _known(rows, at, done) if kept else _gained(name, at, done)
    for row, method in [(CONTROL, CONTROL), *rows.items()]:
        ends = [at[method, GENERATIONS, s] for s in done]
        cells.append(cell(row, "test, %", None, [end[-1][0] for end in ends], 0))
        cells.append(cell(row, "training, %", None, [end[-1][1] for end in ends], 0))
        if kept:
            cells.append(cell(row, "its lowest", None, [min(fitted for _, fitted in end) for end in ends], 0))
        else:  # of every generation but the last
            before = enumerate(zip(*(end[:-1] for end in ends), strict=True), 1)
            cells += [cell(row, f"training, gen. {g}", None, [fitted for _, fitted in held], 0) for g, held in before]
    remarks = [
        f"Gen=3 and last: differences in points to long training of as many epochs. {TRAIN} images of cifar100_sub, "
        f"{MODEL}, late layers from {SPLIT} on, {GENERATIONS} generations of {EPOCHS} epochs up to {RATE} (the paper's "
        "last is generation 10). Training accuracy at the end of the last generation, and of those before.",
    ]
    if kept:
        remarks = [
            f"{TRAIN} images of cifar100_sub, {MODEL}, {GENERATIONS} generations of {EPOCHS} epochs. Neighbours, "
            "probes and shots in %: five neighbours on the first half of the blocks and on the last; linear probes, "
            "their rate chosen on validation; episodes of 5 ways, the same for all networks.",
        ]
        return Table(name, "SEAL, tables 1, 4, 6, figure 2", cells, unit="the columns' units", remarks=remarks)
    return Table(name, f"SEAL, table {7 if 'table7' in name else 2}", cells, remarks=remarks)


def _gained(name: str, at: dict[Key, Any], seeds: list[int]) -> list[Cell]:
    """Differences to long training of as many epochs, beside the paper's."""
    cells = []
    for row, (method, paper) in ROWS[name].items():
        for column, generation in LATE.items():
            gains = [at[method, GENERATIONS, s][generation - 1][0] - at[CONTROL, generation, s][-1][0] for s in seeds]
            cells.append(direction(row, column, paper.get(column), gains))
    return cells


def _known(rows: dict[str, str], at: dict[Key, Any], seeds: list[int]) -> list[Cell]:
    """What was asked of every network."""
    cells = []
    for row, method in [(CONTROL, CONTROL), *rows.items()]:
        for key in [key[:-2] for key in at if key[-2:] == (method, seeds[0])]:
            found = [at[each] for each in ((*key, method, seed) for seed in seeds)]
            if key[0] in ("curvature", "depth"):
                cells += [cell(row, what, None, [each[what] for each in found], 0) for what in found[0]]
            else:  # a probe's rate is chosen
                values = [each["chosen"] if isinstance(each, dict) else each for each in found]
                cells.append(cell(row, ", ".join(key), None, values, 0))
    return cells
