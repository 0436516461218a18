"""``diagnosis.html``: the numbers and pictures of a diagnosis in one file that opens offline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from markupsafe import Markup

from fallow.base import files
from fallow.diagnose.figures import draw
from fallow.diagnose.measures import MEASURES, QUICK
from fallow.diagnose.run import Diagnosis


def write(folder: Path, found: Diagnosis) -> Path:
    """Write diagnosis.json, figures/*.svg and diagnosis.html; the path of the last."""
    from jinja2 import Environment, PackageLoader

    (folder / "figures").mkdir(parents=True, exist_ok=True)
    files.write_json(folder / "diagnosis.json", json.loads(json.dumps(found.describe())))
    sections = [_section(folder, name, found) for name in MEASURES if name in found.records or name in found.failures]
    examples = {subject.name: len(subject.train[0]) for subject in found.subjects}
    pace = "a quick look, on part of the examples" if found.quick else f"{max(examples.values())} training examples"
    page = Environment(loader=PackageLoader("fallow.diagnose", "."), autoescape=True).get_template("page.html.j2")
    text = page.render(
        about=f"{len(found.subjects)} models, {pace}, {found.seconds:.0f} s",
        subjects=found.subjects,
        numbers=found.numbers(),
        orders=found.orders(),
        sections=sections,
    )
    files.write(folder / "diagnosis.html", text.encode())
    return folder / "diagnosis.html"


def pictures(found: Diagnosis) -> list[dict[str, Any]]:
    """Title, how to read it, and the figure of every measure."""
    return [
        {"title": MEASURES[name].title, "reading": MEASURES[name].reading, "svg": _inline(draw(name, records))}
        for name, records in found.records.items()
    ]


def _inline(svg: str) -> Markup:
    """For a page, without what only files need; matplotlib escapes the names that it draws."""
    return Markup(svg[svg.index("<svg") :])


def _section(folder: Path, name: str, found: Diagnosis) -> dict[str, Any]:
    records = found.records.get(name, {})
    svg = draw(name, records) if records else ""
    if svg:
        files.write(folder / "figures" / f"{name}.svg", svg.encode())
    return {
        "title": MEASURES[name].title,
        "reading": MEASURES[name].reading,
        "svg": _inline(svg) if svg else "",
        "failures": found.failures.get(name, {}),
        "remark": _remark(name, records),
    }


def _remark(name: str, records: dict[str, Any]) -> str:
    """How it was measured."""
    if not records:
        return ""
    first = next(iter(records.values()))
    if name == "spectrum":
        late = [who for who, record in records.items() if not record.converged]
        doubt = f" Not converged for {', '.join(late)}." if late else ""
        return (
            f"Lanczos with {first.steps} products for both ends of the first; {first.probes} probes of "
            f"{first.probe_steps} steps for density, trace and mass; {first.examples} examples, "
            f"{first.mode} mode.{doubt}"
        )
    if name == "depth":
        return (
            f"{first.k} neighbours among {first.train_points} training examples, {first.distance} distance, "
            f"pooling {first.pooling}, normalisation {first.normalisation}."
        )
    if name == "flatness":
        count = sum(not layer.exact for layer in first.layers.values())
        how = f"; {count} of {len(first.layers)} layers of the first by {first.probes} probes" if count else ""
        return f"On {QUICK} to {2 * QUICK} training examples at most{how}."
    if name == "noise":
        return f"{first.draws} draws for every σ, the same for every model; bands are one standard deviation."
    return ""
