"""Half of the unlabelled images are foreign: does a learned weight know them, and does it help? Beside every control.

fallow reproduce semi-ood --data-dir DIR      DIR/fashion_mnist.npz with digits of DIR/mnist.npz among its images
fallow reproduce semi-ood                     on the bundled digits, of which three classes are foreign
fallow reproduce semi-ood-centred …           the signal by the whole gradients instead of the last layer's cosines
fallow reproduce semi-ood-plain …             the network as the thesis has it

The thesis (section 5.5) wishes for this setting and has no numbers of it. Joint: the classifier trained while the
weights were learned, which has seen the validation labels through them; where there are no weights, the validation
labels are trained on instead. Frozen: a fresh classifier with the weights as they were kept, on the labels alone. The
AUROC is the median over the seeds, of the network that was kept and of the one after the last epoch; where there are
no weights, it is that of the classifier's own confidence. A learned weight means something only where it beats every
other row of its column.
"""

from __future__ import annotations

import statistics
from pathlib import Path

from fallow.reproduce.runs import Runs
from fallow.reproduce.table import Cell, Table, cell
from fallow.semi import StudyPlan, gather, outcome, runs
from fallow.semi.training import ORACLE, ROWS, controls

SEEDS = 5
FIRST = 10  # the form was chosen on seeds 0 to 2, which therefore cannot judge it
METHODS = {
    "semi-ood": "confidence:ratio=3",
    "semi-ood-centred": "confidence:form=centred,ratio=3",
    "semi-ood-plain": "confidence:form=plain,ratio=3",
}
LABELS, VALIDATION, IMAGES = 40, 300, 2500
EPOCHS, STEPS = 6, 50
MODEL = "scnn:width=8,dense=64"
OURS = next(iter(ROWS))


def plan(method: str, data_dir: Path | None, seed: int) -> StudyPlan:
    """What is trained with one seed."""
    how = {"method": method, "labels": LABELS, "model": MODEL, "epochs": EPOCHS, "steps": STEPS, "seed": seed}
    if data_dir is None:
        return StudyPlan("digits", val=100, ood_classes="7,8,9", **how)  # type: ignore[arg-type]
    fashion, mnist = (str(data_dir / f"{name}.npz") for name in ("fashion_mnist", "mnist"))
    return StudyPlan(fashion, val=VALIDATION, images=IMAGES, ood=mnist, **how)  # type: ignore[arg-type]


def run(name: str, seeds: range, data_dir: Path | None, each: Runs) -> Table:
    """The table: accuracy joint and frozen, AUROC kept and last."""
    plans = [plan(METHODS[name], data_dir, FIRST + seed) for seed in seeds]
    trainings = {
        (key, asked.seed): one for asked in plans for key, one in runs(asked, controls(asked), f"-{asked.seed}").items()
    }
    at, done = each.all(trainings)
    where, every = each.folder / "runs", trainings.items()
    found = [{key: outcome(key, where / one.name, at[key, s]) for (key, s), one in every if s == seed} for seed in done]
    cells, values = [], {}
    for row, pair in ROWS.items():
        for column, key in zip(("joint", "frozen"), pair, strict=True):
            if key is not None:
                values[row, column] = [100 * (one[key].test or 0.0) for one in found]
                cells.append(cell(row, column, None, values[row, column], 0))
        shown = next(key for key in pair if key is not None) if row.startswith(("conf", "const", "shuf")) else pair[1]
        if shown is None or shown == ORACLE:
            continue
        values[row, "AUROC"] = [100 * (one[shown].auroc or 0.0) for one in found]
        cells.append(_median(row, "AUROC, kept", values[row, "AUROC"]))
        last = [end["auroc"] for one in found if "auroc" in (end := one[shown].history[-1])]
        if last:
            cells.append(_median(row, "AUROC, last", [100 * value for value in last]))
    told = ", ".join(f"{value:.0f}" for value in values[OURS, "AUROC"])
    data = gather(plans[0]).describe()["sizes"]
    remarks = [
        f"AUROC is in %, the median over {len(done)} seeds; of the kept confidence network by seed: {told}.",
        f"{plans[0].data.rpartition('/')[2]}: {data['train']} labels, {data['val']} validation labels, "
        f"{data['unlabelled']} unlabelled images, half of them foreign; {MODEL}, {EPOCHS * STEPS} steps, "
        f"{METHODS[name]}.",
        *_verdict(values),
        *_turned(values),
    ]
    return Table(name, "Thesis, section 5.5", cells, remarks=remarks)


def _median(row: str, column: str, values: list[float]) -> Cell:
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return Cell(row, column, None, round(statistics.median(values), 2), round(spread, 2), len(values), None)


def _rivals(values: dict[tuple[str, str], list[float]], column: str) -> list[str]:
    """The controls of a column; the oracle is no control but a bound."""
    return [row for row, of in values if of == column and row not in (OURS, ORACLE)]


def _verdict(values: dict[tuple[str, str], list[float]]) -> list[str]:
    """Against which controls the learned weights are ahead, column by column, and in how many seeds."""
    lines = []
    for column in ("joint", "frozen", "AUROC"):
        middle = statistics.median if column == "AUROC" else statistics.mean
        ours, told = values[OURS, column], []
        for row in _rivals(values, column):
            theirs = values[row, column]
            wins = sum(a > b for a, b in zip(ours, theirs, strict=True))
            told.append(f"{middle(ours) - middle(theirs):+.1f} against {row} ({wins} of {len(ours)} seeds)")
        lines.append(f"{column}: {'; '.join(told)}.")
    return lines


def _turned(values: dict[tuple[str, str], list[float]]) -> list[str]:
    """What is the wrong way round tells as much the other way: a weight could be learned from it alone."""
    own = {row: statistics.median(values[row, "AUROC"]) for row in _rivals(values, "AUROC")}
    return [
        f"AUROC of {row}: turned round it is {100 - median:.0f}, which a weight that only opposes it would reach too."
        for row, median in own.items()
        if median < 30
    ]
