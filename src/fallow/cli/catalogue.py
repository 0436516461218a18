"""``fallow list methods|models|data``: the catalogue."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from fallow.base.errors import unknown
from fallow.cli import options
from fallow.cli.wrapper import answer

KINDS = ("methods", "models", "data")


def catalogue(
    what: Annotated[str, typer.Argument(help="methods, models or data")],
    as_json: options.Json = False,
) -> None:
    """List the methods, models or data sets that fallow knows."""
    if what not in KINDS:
        raise unknown("catalogue", what, KINDS)
    entries = _entries(what)
    answer({what: entries}, as_json, lambda: _report(entries))


def _report(entries: dict[str, dict[str, Any]]) -> None:
    width = max(len(name) for name in entries)
    for name, entry in entries.items():
        print(f"{name:<{width}}  {entry['summary']}")
        if entry.get("settings"):
            listed = ", ".join(
                f"{key}={value if value != '' else repr(value)}" for key, value in entry["settings"].items()
            )
            print(f"{'':<{width}}  settings: {listed}")


def _entries(what: str) -> dict[str, dict[str, Any]]:
    if what == "methods":
        from fallow.methods import REGISTRY

        return {name: {"summary": kind.summary, "settings": kind().settings()} for name, kind in REGISTRY.items()}
    if what == "models":
        from fallow.models import MODELS

        return {name: {"summary": entry.description} for name, entry in MODELS.items()}
    from fallow.data import BUNDLED

    return {name: {"summary": entry.summary} for name, entry in BUNDLED.items()}
