"""The import graph: a package imports only from those above it; nothing hides in a function what it may not say."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "fallow"
ORDER = (  # from the ground up: what stands in a line may import what stands in the lines before it
    "base", "weights", "evaluate", "data", "flatness", "hypergradients", "adaptation", "control", "models", "core",
    "methods", "problems", "training", "experiment", "report", "diagnose", "transfers", "comparison", "atlas", "tuning",
    "semi", "reproduce", "adapters", "cli",
)  # fmt: skip
FAMILIES = ("baselines", "fewshot", "flat", "forget", "hyper", "semi")  # of methods: none imports another
TYPES_ONLY = {("core", "problems"), ("methods", "problems")}  # a problem is handed to them: they only name its type


def imported(path: Path) -> set[tuple[str, bool]]:
    """Every module of fallow that a file imports, wherever in the file; and whether it is for types only."""
    tree = ast.parse(path.read_text("utf-8"))
    guarded = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {(alias.name, id(node) in guarded) for alias in node.names if alias.name.startswith("fallow.")}
        elif isinstance(node, ast.ImportFrom) and node.module == "fallow":
            found |= {(f"fallow.{alias.name}", id(node) in guarded) for alias in node.names if alias.name in ORDER}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fallow."):
            found.add((str(node.module), id(node) in guarded))
    return found


FILES = [path for path in sorted(SOURCE.rglob("*.py")) if path.parent != SOURCE]


def test_every_package_has_its_place() -> None:
    assert {path.relative_to(SOURCE).parts[0] for path in FILES} <= set(ORDER)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_upwards_in_the_tree(path: Path) -> None:
    here = path.relative_to(SOURCE).parts
    for name, types_only in imported(path):
        there = name.split(".")[1:]
        if types_only and (here[0], there[0]) in TYPES_ONLY:
            continue
        assert ORDER.index(there[0]) <= ORDER.index(here[0]), f"{here[0]} imports {name}, which stands on it"
        if here[0] == there[0] == "methods" and here[1] in FAMILIES and len(there) > 1 and there[1] in FAMILIES:
            assert here[1] == there[1], f"{'.'.join(here)} imports another family: {name}"
