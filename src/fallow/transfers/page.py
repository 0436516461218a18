"""The page of a transfer, and its words for the terminal."""

from __future__ import annotations

from pathlib import Path

from fallow.core.record import versions
from fallow.report.charts import Axis, Line, lines
from fallow.report.intervals import Bar, forest
from fallow.report.page import Page, Section
from fallow.report.pieces import Column, figure, figures, paragraph, said, table
from fallow.report.style import series
from fallow.report.words import capitalised, listed, many, p_value
from fallow.transfers.findings import Answer, TransferColumn, TransferFindings
from fallow.transfers.transfer import Transfer

BESIDE = {"features/": "features, by content", "runs/": "what every network gave", "experiment.db": "the outcomes"}


def write(found: Transfer, command: str = "") -> Path:
    """Write ``transfer.html`` into the folder; its path."""
    assert found.folder is not None
    findings = found.findings
    sections = [section(findings, column) for column in findings.columns]
    if curves := _curves(findings):
        sections.insert(0, curves)
    page = Page(
        title=f"What the features are worth on {', '.join(found.data)}",
        verb="fallow transfer",
        sentence=" ".join(sentences(findings)),
        sections=sections,
        facts=[found.asked.words, many(len(findings.rows), "row"), many(len(found.data), "data set")],
        command=command,
        notes=[*(f"{name}: {words}." for name, words in found.data.items()), *found.notes],
        settings=found.asked.describe(),
        versions=versions(),
        beside=BESIDE,
    )
    return page.write(found.folder / "transfer.html")


def section(findings: TransferFindings, column: TransferColumn) -> Section:
    """The table of a column, and its figure."""
    entries = findings.of(column)
    columns: list[Column] = [*head(findings)[:-1], (head(findings)[-1], "")]
    cells = [row(findings, entry) for entry in entries]
    rows = [
        [*c[:-1], said(e.verdict or "control", c[-1]) if c[-1] else ""] for c, e in zip(cells, entries, strict=True)
    ]
    bars = [
        Bar(
            entry.row, entry.estimate.mean, entry.estimate.low, entry.estimate.high, list(entry.means.values()),
            entry.verdict or "plain", findings.shown.full(entry.estimate.mean),
        )
        for entry in entries
    ]  # fmt: skip
    drawn = forest(
        bars,
        "",
        findings.shown.axis("test"),
        "; ".join(f"{bar.label} {bar.words}" for bar in bars),
        shown=findings.shown,
    )
    caption = f"{capitalised(findings.shown.axis('test'))}; intervals of 95 % over {_over(entries)}."
    words = [paragraph(_pairs(findings))] if findings.reference else []
    return Section(heading(findings, column), [*words, figure(drawn), table(caption, columns, rows)])


def _over(entries: list[Answer]) -> str:
    """What their intervals are over: rows of several seeds may stand beside a network that has none."""
    kinds: dict[str, list[str]] = {}
    for entry in entries:
        kinds.setdefault(entry.over, []).append(entry.row)
    several = len(kinds) > 1
    return listed([f"{over} ({', '.join(rows)})" if several else over for over, rows in kinds.items()])


def _pairs(findings: TransferFindings) -> str:
    units = "episodes" if findings.asked.shots else "test examples"
    return (
        f"Differences from {findings.reference} are paired by the seeds that both rows have, if there are two or more, "
        f"otherwise over the same {units}. p-values have Holm's correction over the rows"
        f"{' and blocks' if len({column.layer for column in findings.columns}) > 1 else ''}."
    )


def _curves(findings: TransferFindings) -> Section | None:
    """Accuracy over the blocks, where there are several."""
    layers = list(dict.fromkeys(column.layer for column in findings.columns))
    if len(layers) < 2:
        return None
    drawn = []
    for data, shots in dict.fromkeys((column.data, column.shots) for column in findings.columns):
        at = {(e.row, e.column.layer): e for e in findings.entries if (e.column.data, e.column.shots) == (data, shots)}
        drawn.append(
            lines(
                str(TransferColumn(data, "", shots)),
                [
                    Line(
                        name,
                        [
                            (i, findings.shown.factor * at[name, x].estimate.mean)
                            for i, x in enumerate(layers)
                            if (name, x) in at
                        ],
                        series(n),
                        dotted=True,
                    )
                    for n, name in enumerate(findings.rows)
                ],
                Axis("block", names=layers),
                Axis(findings.shown.axis("test")),
            )
        )
    words = paragraph("Blocks from input to output, averaged over space; the last is what the network's head looks at.")
    return Section("Which layer", [words, figures(drawn)], "layers")


def heading(findings: TransferFindings, column: TransferColumn) -> str:
    """What a table is of."""
    layer = f", block {column.layer}" if column.layer else ""
    return f"{column}{layer}: {findings.asked.words}"


def head(findings: TransferFindings) -> list[str]:
    """The heads of a table's columns."""
    optimist = ["best on test"] if findings.asked.protocol == "seal" else []
    against = [f"vs {findings.reference}", "p (Holm)"] if findings.reference else []
    return ["network", "networks", f"test {findings.shown.words}", "95 % interval", *optimist, *against, "verdict"]


def row(findings: TransferFindings, entry: Answer) -> list[str]:
    """An entry's cells."""
    estimate, difference = entry.estimate, entry.difference
    ends = (
        "" if estimate.low is None else f"{findings.shown.value(estimate.low)} to {findings.shown.value(estimate.high)}"
    )
    optimist = [findings.shown.full(entry.best_on_test, 2)] if findings.asked.protocol == "seal" else []
    against = ["", ""] if findings.reference else []
    if difference is not None and entry.corrected is not None:
        low, high = findings.shown.difference(difference.low), findings.shown.difference(difference.high)
        against = [f"{findings.shown.difference(difference.mean, 2)} ({low} to {high})", p_value(entry.corrected)]
    shown = [entry.row, str(entry.networks), findings.shown.full(estimate.mean, 2), ends]
    return [*shown, *optimist, *against, entry.verdict or ("reference" if findings.reference == entry.row else "")]


def sentences(findings: TransferFindings) -> list[str]:
    """What was found, a sentence for every data set and number of shots, of the layer that serves best."""
    best: dict[tuple[str, int | None], Answer] = {}
    for entry in findings.entries:
        key = entry.column.data, entry.column.shots
        if key not in best or entry.estimate.mean > best[key].estimate.mean:
            best[key] = entry
    return [_sentence(findings, entry) for entry in best.values()]


def _sentence(findings: TransferFindings, best: Answer) -> str:
    where = f"On {best.column}"
    layer = f" at block {best.column.layer}" if best.column.layer else ""
    if len(findings.rows) == 1:
        return f"{where}, {best.row} reaches {findings.shown.full(best.estimate.mean)}{layer}."
    lead = f"{where}, {best.row} transfers best, {findings.shown.full(best.estimate.mean)}{layer}"
    if best.row == findings.reference:
        return f"{lead}: no row is shown to be better than it."
    assert best.difference is not None
    points = f"{findings.shown.difference(best.difference.mean)}{' points' * findings.shown.share}"
    doubt = "shown to be better" if best.verdict == "better" else "which may be chance"
    return f"{lead}: {points} compared with {findings.reference}{' there' if layer else ''}, {doubt}."
