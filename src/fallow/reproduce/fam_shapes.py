"""FAM's table 2: shapes of which a part is missing, made whole by an autoencoder; on adrenal glands instead of skulls.

fallow reproduce fam-shapes --data-dir DIR          DIR/adrenalmnist3d_64.npz: 64³ voxels, the paper's 64×8 layer
fallow reproduce fam-shapes-small --data-dir DIR    the same shapes at 32³, halved four times, so the same layer

100 shapes to learn from and 100 to judge by, as in the paper; 98 more to choose λ on. From each a cube is cut, centred
on a voxel of its own; the second set to judge by loses a ball instead, larger and elsewhere. A network that sees the
rest gives the whole through a code of eight numbers, by Dice loss and Adam at a constant rate; κ is that of the
matrix which decodes the code. The paper has a network of four times this width, a rate of a tenth, and 200 epochs,
and the simplified measure; here κ is estimated without bias by a product a step (form=probe), and stands
in the remarks exactly. Its skulls are not public, so that levels cannot agree: a cell of FAM or SAM is its gain on the
baseline, of DSC in points and of HD95 in voxels, paired by seed, and agrees when it has the paper's sign and lies two
standard errors from 0.
"""

from __future__ import annotations

import statistics
from contextlib import closing
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fallow.base.errors import RequestError
from fallow.core import loop
from fallow.data.dice import dice_loss
from fallow.evaluate.metrics import dice, hausdorff95
from fallow.experiment import heed
from fallow.flatness import relative_flatness
from fallow.models import build
from fallow.reproduce.runs import Runs
from fallow.reproduce.seal_tables import direction
from fallow.reproduce.table import Table, cell
from fallow.training.prepare import prepare
from fallow.training.result import result_of

SEEDS = 2
SIZES = {  # voxels a side, network, epochs
    "fam-shapes": (64, "autoencoder3d:width=8", 50),
    "fam-shapes-small": (32, "autoencoder3d:width=8,depth=4", 30),
}
COUNT, BATCH, RATE = 100, 4, 1e-3
CUBE, BALL = 0.3, 0.25  # the cube's side and the ball's radius, as shares of the volume's side
THEIRS = 0.02  # the λ that the paper finds best
TRIED = (THEIRS, 0.002, 0.0002)
LAYER = "decode.linear"
LOOKED = 16  # training examples for the exact κ in the remarks
METHODS = {
    "baseline": ("normal", 0.0),
    "L2": ("normal", 0.1),
    "SAM": ("sam", 0.0),
} | {f"FAM, λ = {strength:g}": (f"fam:strength={strength:g},layer={LAYER},form=probe", 0.0) for strength in TRIED}
PAPER = {"DSC": 7.12, "HD95": -0.2425}  # of λ = 0.02 against the baseline: .7176 − .6464, 1.8210 − 2.0635


def run(name: str, seeds: range, data_dir: Path | None, each: Runs) -> Table:
    """Every method, on shapes with cubes and with balls cut out."""
    if data_dir is None:
        raise RequestError(f"{name} needs --data-dir: a folder with adrenalmnist3d_64.npz")
    side, model, epochs = SIZES[name]
    jobs = {
        (row, seed): (str(data_dir / "adrenalmnist3d_64.npz"), side, model, method, decay, epochs, seed)
        for seed in seeds
        for row, (method, decay) in METHODS.items()
    }
    at, done = each(judged, jobs)

    def of(row: str, what: str) -> list[float]:
        return [at[row, seed][what] for seed in done]

    fams = [row for row in METHODS if row.startswith("FAM")]
    best = max(fams, key=lambda row: statistics.mean(of(row, "val")))
    cells = []
    for row in METHODS:
        for what, sign in (("DSC", 100.0), ("HD95", 1.0)):
            values = [sign * value for value in of(row, what)]
            if row != "baseline":
                gains = [a - sign * b for a, b in zip(values, of("baseline", what), strict=True)]
                paper = PAPER[what] if row == f"FAM, λ = {THEIRS:g}" else None
                cells.append(direction(row, f"{what}, gain", paper, gains))
            cells.append(cell(row, what, None, values, 0))
        cells.append(cell(row, "DSC, balls", None, [100 * value for value in of(row, "DSC ball")], 0))
        cells.append(cell(row, "HD95, balls", None, of(row, "HD95 ball"), 0))
        cells.append(cell(row, "training DSC", None, [100 * value for value in of(row, "train")], 0))
    remarks = [
        f"{COUNT} shapes of {side}³ voxels to learn, {model}, {epochs} epochs of {COUNT // BATCH} steps at {RATE:g}. "
        "DSC in %, HD95 in voxels; gains are against the baseline, paired by seed.",
        "The paper's skulls: DSC 64.64 → 71.76 and HD95 2.06 → 1.82 (λ = 0.02, 64³); no SAM and no L2 there.",
        f"By validation, λ is {best.partition('= ')[2]}: "
        + ", ".join(f"{row} {100 * statistics.mean(of(row, 'val')):.1f} %" for row in METHODS) + ".",
        "Exact κ of the decoding matrix, mean of all seeds, at the start and at the end: "
        + ", ".join(f"{row} {_mean(of(row, 'first'))} → {_mean(of(row, 'last'))}" for row in METHODS) + ".",
        f"With torch's own initialisation it would start at {_mean(of('baseline', 'faint'))}: there λκ is "
        f"{THEIRS * statistics.mean(of('baseline', 'faint')):.0g} beside a Dice loss of about 1, and does nothing yet.",
    ]  # fmt: skip
    return Table(name, "FAM, table 2", cells, unit="% or voxels", remarks=remarks)


def judged(
    folder: Path, source: str, side: int, model: str, method: str, decay: float, epochs: int, seed: int
) -> dict[str, float]:
    """DSC and HD95 of one training on both kinds of defects, DSC on validation and training, κ at both ends."""
    whole = {part: shapes(source, part, side) for part in ("train", "val", "test")}
    cut = {part: defective(shape, seed, ball=False) for part, shape in whole.items()}
    x, y = torch.from_numpy(255 * cut["train"])[:, None], torch.from_numpy(whole["train"].astype(np.int64))
    with torch.random.fork_rng(devices=[]):
        ctx = prepare(
            model, (x, y), method, target="dense", loss="dice", seed=seed, val=0.0, test=0.0, generations=1,
            epochs=epochs, batch_size=BATCH, optimizer="adamw", lr=RATE, weight_decay=decay, schedule="constant",
            augment="none", evaluate_every=epochs, observer=heed,
        )  # fmt: skip
        first = flatness(ctx.problem.finished(ctx.model), x, y)
        default = build(f"{model},init=torch", shape=(1, side, side, side), classes=2)
        faint = flatness(ctx.problem.finished(default), x, y)
        with closing(ctx):
            loop.run(ctx)
            result = result_of(ctx)
    network = result.model.eval()
    found = {part: masks(network, cut[part]) for part in whole}
    ball = masks(network, defective(whole["test"], seed, ball=True))
    truth = {part: shape.astype(np.int64) for part, shape in whole.items()}
    return {
        "train": dice(found["train"], truth["train"]), "val": dice(found["val"], truth["val"]),
        "DSC": dice(found["test"], truth["test"]), "HD95": hausdorff95(found["test"], truth["test"]),
        "DSC ball": dice(ball, truth["test"]), "HD95 ball": hausdorff95(ball, truth["test"]),
        "faint": faint, "first": first, "last": flatness(network, x, y),
    }  # fmt: skip


def shapes(source: str, part: str, side: int) -> NDArray[np.uint8]:
    """The first shapes of a part, N × side³ of 0 and 1; a voxel of a smaller one is there if half of its own are."""
    with np.load(source, allow_pickle=False) as archive:
        whole = (archive[f"x_{part}"][:COUNT] > 0).astype(np.float32)
    by = whole.shape[1] // side
    blocks = whole.reshape(len(whole), side, by, side, by, side, by).mean((2, 4, 6))
    return (blocks >= 0.5).astype(np.uint8)


def defective(whole: NDArray[np.uint8], seed: int, *, ball: bool) -> NDArray[np.uint8]:
    """The shapes without a cube, or a ball, around one of their voxels."""
    draw = np.random.default_rng([seed, int(ball)])
    side = whole.shape[1]
    grid = np.stack(np.meshgrid(*[np.arange(side)] * 3, indexing="ij"))
    found = whole.copy()
    for shape in found:
        centre = draw.choice(np.argwhere(shape))
        away = np.abs(grid - centre[:, None, None, None])
        gone = np.square(away).sum(0) <= (BALL * side) ** 2 if ball else away.max(0) <= CUBE * side / 2
        if (shape[~gone] > 0).any():  # something has to be left to go by
            shape[gone] = 0
    return found


@torch.no_grad()
def masks(network: nn.Module, cut: NDArray[np.uint8]) -> NDArray[np.int64]:
    """What the network takes the whole shapes to be."""
    parts = torch.from_numpy(255 * cut)[:, None].split(BATCH)
    return torch.cat([network(part).argmax(1) for part in parts]).numpy()


def flatness(network: nn.Module, x: Tensor, y: Tensor) -> float:
    """Exact κ on some training examples."""
    return float(relative_flatness(network, f"network.{LAYER}", x[:LOOKED], y[:LOOKED], dice_loss).detach())


def _mean(values: list[float]) -> str:
    return f"{statistics.mean(values):.2g}"
