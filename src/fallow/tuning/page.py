"""``tuned.html``: the decay of every layer, what each way to find one cost and gave, and one sentence."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from fallow.core.record import versions
from fallow.hypergradients.implicit import FAR
from fallow.report.intervals import Bar, forest
from fallow.report.page import Page, Section
from fallow.report.pieces import Column, figure, paragraph, table
from fallow.report.shown import PLAIN, Shown
from fallow.report.words import many, number

if TYPE_CHECKING:
    from fallow.tuning.tune import Arm, Tuned

NAMES = {"none": "no decay", "grid": "grid of {n}", "equal": "grid, equal cost", "learned": "learned"}
BESIDE = {"tuned.toml": "settings for fallow train --settings", "tuned.json": "every number", "runs/": "the trainings"}


def write(tuned: Tuned, per: str, grid: int, command: str = "") -> Path:
    """Write ``tuned.html`` into the folder; its path."""
    bars = [Bar(layer, decay, None, None, [], "plain", number(decay, 3)) for layer, decay in tuned.decay.items()]
    says = "Weight decay by layer: " + ", ".join(f"{bar.label} {bar.words}" for bar in bars)
    mean = "" if per == "layer" else " (geometric mean over its weights)"
    drawn = forest(bars, "", f"weight decay{mean}", says, shown=PLAIN, kind="log", filled=True)
    learned = paragraph(
        "Learned on validation by implicit gradients while the network trained; the mean over the second half of the "
        "training, and over the seeds."
    )
    shown = Shown.of(tuned.metric)
    test = f"Test {shown.words}"
    ways = paragraph(
        "Decays are chosen on validation, and only the chosen ones are tested. Cost is in ordinary trainings. “Grid, "
        "equal cost” tries as many evenly spread points of the grid as learning the decay costs."
    )
    columns: list[Column] = ["Decay", "Cost in trainings", "Validation loss", test, ("Chosen", "")]
    caption = f"Means over {many(len(tuned.arms[0].passes), 'seed')}; {shown.axis('test')}."
    worth = table(caption, columns, rows(tuned, grid))
    doubts = [paragraph(note, kind="note") for note in notes(tuned)]
    page = Page(
        title=f"A weight decay per {per}",
        verb="fallow tune",
        sentence=sentence(tuned),
        sections=[
            Section("The decay of every layer", [learned, figure(drawn)], "decay"),
            Section("What it gains", [ways, worth, *doubts], "worth"),
        ],
        facts=[
            many(len(tuned.decay), "layer"), many(len(tuned.arms[0].passes), "seed"), f"grid of {grid} decays",
        ],
        command=command,
        settings={"kept in": tuned.file, "train with it": f"fallow train DATA --settings {tuned.file}"},
        versions=versions(),
        beside=BESIDE,
    )  # fmt: skip
    return page.write(tuned.folder / "tuned.html")


def sentence(tuned: Tuned) -> str:
    """What learning the decay gains, in words."""
    shown = Shown.of(tuned.metric)
    by = {arm.name: fmean(arm.test) for arm in tuned.arms}
    to_grid, to_none = (shown.difference(by["learned"] - by[other], 2) for other in ("grid", "none"))
    sure, points = "", " points" if shown.share else ""
    if (found := tuned.against_grid) is not None:
        low, high = shown.difference(found.low, 2), shown.difference(found.high, 2)
        sure = f" (95 % interval {low} to {high}, {many(len(tuned.arms[0].passes), 'seed')})"
    return (
        f"With the learned decay, test {shown.words} is {to_grid}{points} compared with the best of the grid{sure}, at "
        f"{100 * tuned.share:.0f} % of the grid's cost, and {to_none} compared with no decay."
    )


def notes(tuned: Tuned) -> list[str]:
    """What a reader must know before believing it."""
    found = []
    if tuned.unsettled > FAR:
        found.append(
            f"note: at the last meta-update the training gradient was {tuned.unsettled:.1f} times the validation "
            "gradient: far from a minimum, where the decay means little; more --epochs would help"
        )
    if len(tuned.arms[0].passes) == 1:
        found.append("note: one seed gives no interval; --seeds 3 does")
    return found


def rows(tuned: Tuned, grid: int) -> list[list[str]]:
    """The arms: what each cost in plain trainings, and what it gave."""
    unit, shown = tuned.arms[0].passes[0], Shown.of(tuned.metric)  # of one plain training
    return [
        [
            NAMES[arm.name].format(n=grid),
            f"{fmean(arm.passes) / unit:.1f}",
            f"{fmean(arm.val_loss):.4f}",
            shown.full(fmean(arm.test), 2),
            _chosen(arm),
        ]
        for arm in tuned.arms
    ]


def _chosen(arm: Arm) -> str:
    """What validation chose, seed by seed."""
    if arm.name not in ("grid", "equal"):
        return ""
    return ", ".join(dict.fromkeys(name.removeprefix("decay-") for name in arm.decay))
