"""``fallow fewshot navigation``: meta-train a policy on tasks of an environment, and judge it by new ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fallow.base.errors import RequestError
from fallow.base.numbers import require_whole
from fallow.cli.wrapper import AGAIN, answer, free_folder, needs_out, working

if TYPE_CHECKING:
    from fallow.training.control import ControlResult

COUNTS = {"shots": "shots", "val_tasks": "val_tasks", "episodes": "test_tasks"}  # our options → an environment's
OPTIONS = ("iterations", "meta_batch", "lr", "every", "weights", "checkpoint_every", "device", "devices")
OWN = ("tasks", "method", "model", "steps", "rate", "seed", "out", "resume", "threads", "as_json")


def control(given: dict[str, Any]) -> None:
    """Train and judge a policy; ``given`` are the options of ``fallow fewshot`` that were typed."""
    source, method, seed = given["tasks"], given.get("method", "maml"), given.get("seed", 0)
    out: Path | None = given.get("out")
    needs_out(given.get("resume", False), out)
    for name in given:
        if name not in (*COUNTS, *OPTIONS, *OWN):
            raise RequestError(f"{source} is an environment and has no {name.replace('_', '-')}: leave it out")
    for name in ("episodes", "val_tasks"):
        require_whole(name, given.get(name, 1))
    from fallow.cli.display import Progress, typed
    from fallow.data.environments.load import load_environment
    from fallow.diagnose.control import write
    from fallow.training.control import reinforce

    environment = load_environment(source, **{COUNTS[name]: given[name] for name in COUNTS if name in given})
    folder = out or free_folder(source, method, seed, "fewshot-")
    chosen = with_inner(method, **{name: given[name] for name in ("steps", "rate") if name in given})
    with working(folder, threads=given.get("threads"), resumes=AGAIN), Progress() as progress:
        result = reinforce(
            given.get("model"), environment, chosen, seed=seed, out=folder, resume=given.get("resume", False),
            observer=progress.show if progress.live else None,
            **{name: given[name] for name in OPTIONS if name in given},
        )  # fmt: skip
    if result.folder is None:  # another process than the first
        return
    record = json.loads((result.folder / "run.json").read_text("utf-8"))
    page = write(result.folder, result, record, typed())

    def report() -> None:
        _report(result, record)
        print(f"report: {page}")

    answer(result.describe() | {"out": str(result.folder), "run": record}, given.get("as_json", False), report)


def with_inner(method: str, **settings: Any) -> Any:
    """The method, with the inner loop's settings given to its learner."""
    import dataclasses

    from fallow import methods
    from fallow.core.method import Together
    from fallow.methods.fewshot.piece import Piece
    from fallow.methods.fewshot.trpo import MAMLTRPO
    from fallow.training.control import spelled

    built = methods.build(spelled(method))
    parts = built.parts
    if all(isinstance(part, Piece) for part in parts):
        parts = (MAMLTRPO(), *parts)
    changed = [dataclasses.replace(part, **settings) if part.control else part for part in parts]  # type: ignore[type-var]
    return Together(*changed) if len(changed) > 1 else changed[0]


def _report(result: ControlResult, record: dict[str, Any]) -> None:
    """What was trained, and the returns of the test tasks of every place along the inner steps."""
    data, tested = record["data"], result.tested
    lived = f"{data['shots']} trajectories of {data['horizon']} steps a task"
    print(f"{data['name']}: {lived}; {record['model']}, {record['method']}")
    for note in record["notes"]:
        print(f"note: {note}")
    places = tested["places"]
    widths = [max(18, len(place)) for place in places]
    print(f"\n{'inner step':>10}  " + "  ".join(f"{place:>{w}}" for place, w in zip(places, widths, strict=True)))
    for step in range(len(result.returns())):
        shown = [f"{_interval(places[place][step]):>{w}}" for place, w in zip(places, widths, strict=True)]
        print(f"{step:>10}  " + "  ".join(shown))
    print(f"\nmean return and 95 % interval over {tested['tasks']} test tasks")
    print(f"{result.steps} iterations in {result.seconds:.1f} s; kept in {result.folder}")


def _interval(found: dict[str, Any]) -> str:
    if found["low"] is None:
        return f"{found['mean']:.2f}"
    return f"{found['mean']:.2f} ± {(found['high'] - found['low']) / 2:.2f}"
