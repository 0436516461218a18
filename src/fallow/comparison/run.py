"""Run a plan: what is missing, side by side; killed anywhere, the same call goes on."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fallow.base import files
from fallow.base.errors import RequestError
from fallow.base.lock import locked
from fallow.comparison.engines import engine
from fallow.comparison.findings import BASELINE, CONTROLS, Findings, Outcome, find
from fallow.comparison.plan import Cell, Plan, cells
from fallow.comparison.store import Store
from fallow.comparison.work import OUTCOME, STOP, Task, absolute, outcome, work

WATCH = 0.25  # seconds between two looks at the runs' folders


@dataclass
class Comparison:
    """A comparison as it stands, for the terminal and the report."""

    folder: Path
    plan: Plan
    cells: list[Cell]
    loaded: dict[str, Any]  # source → Data, of the first seed
    outcomes: dict[str, Outcome] = field(default_factory=dict)  # by the run's folder
    progress: dict[str, float] = field(default_factory=dict)  # by the run's folder: the share of its passes
    started: float = field(default_factory=time.monotonic)
    before: float = 0.0  # passes that were done when this process began

    @property
    def labels(self) -> dict[str, str]:
        """Source → the name to show: the data's own, or the source itself where two have the same."""
        names = [data.name for data in self.loaded.values()]
        return {s: data.name if names.count(data.name) == 1 else s for s, data in self.loaded.items()}

    def named(self, outcome: Outcome) -> Outcome:
        """An outcome with the name of its data to show."""
        return dataclasses.replace(outcome, data=self.labels[outcome.data])

    def settings(self, source: str) -> dict[str, Any]:
        """The settings of the training on a data set, as ordinary training has them."""
        return next(cell.settings for cell in self.cells if (cell.data, cell.method) == (source, BASELINE))

    def data_of(self, outcome: Outcome) -> Any:
        """The data of an outcome, named or not."""
        return next(self.loaded[cell.data] for cell in self.cells if cell.folder == outcome.folder)

    def passes(self) -> tuple[float, float]:
        """Forward-backward passes done, and in all."""
        done = sum(
            cell.passes * (1.0 if cell.folder in self.outcomes else self.progress.get(cell.folder, 0.0))
            for cell in self.cells
        )
        return done, sum(cell.passes for cell in self.cells)

    def seconds_left(self) -> float | None:
        """By the pace of this process; None before there is one."""
        done, total = self.passes()
        gained = done - self.before
        return (time.monotonic() - self.started) / gained * (total - done) if gained > 0 else None

    def findings(self) -> Findings:
        """The verdicts on what is done so far."""
        labels = self.labels
        named = [self.named(self.outcomes[cell.folder]) for cell in self.cells if cell.folder in self.outcomes]
        described = {labels[source]: data.describe() for source, data in self.loaded.items()}
        overlaps = {labels[source]: data.overlap for source, data in self.loaded.items()}
        return find(named, described, overlaps, self.plan.budget)


@contextmanager
def opened(plan: Plan, folder: Path, device: str = "auto") -> Iterator[tuple[Comparison, Store, list[Task]]]:
    """A comparison with what is left to run; nothing is written before the request is known to be right."""
    from fallow.data import load

    options = load_options(plan)
    loaded = {source: load(source, seed=plan.seed, **dict(options)) for source in plan.data}
    _check(plan, loaded, folder)
    with _home(folder):
        store = Store(folder / "comparison.db")
        try:
            stored = store.read("plan")
            if stored is not None:
                plan = plan.merged(stored, folder)
                loaded = {s: loaded.get(s) or load(s, seed=plan.seed, **dict(options)) for s in plan.data}
            _check_unchanged(store, plan, loaded, folder)
            store.write("plan", plan.describe())
            files.write(folder / "plan.toml", plan.toml().encode())
            comparison = Comparison(folder, plan, cells(plan, loaded), loaded)
            collect(comparison, store)  # a parent that was killed may not have seen what its workers left
            _restart_failures(store, folder)
            collect(comparison, store)
            yield comparison, store, _tasks(comparison, store.read("data"), device, options)
        finally:
            store.close()


def run(
    comparison: Comparison,
    store: Store,
    tasks: list[Task],
    *,
    engine_name: str = "local",
    address: str | None = None,
    workers: int | None = None,
    watch: Callable[[Comparison], None] | None = None,
) -> None:
    """Run the tasks on an engine; the folders are watched, and what is done goes to the store at once."""
    comparison.before, comparison.started = comparison.passes()[0], time.monotonic()
    if not tasks:
        return
    if engine_name != "local":
        tasks = [dataclasses.replace(task, parent=None) for task in tasks]
    failure: list[BaseException] = []
    with _stoppable(comparison.folder / STOP), engine(engine_name, address, workers) as run_all:
        stop = threading.Event()

        def watching() -> None:
            mine = Store(store.path)  # SQLite wants a connection for each thread; this is the only one that writes
            try:
                while not stop.wait(WATCH):
                    collect(comparison, mine)
                    if watch is not None:
                        watch(comparison)
            except BaseException as error:
                failure.append(error)
            finally:
                mine.close()

        watcher = threading.Thread(target=watching, daemon=True)
        watcher.start()
        try:
            run_all(tasks, work)
        finally:
            stop.set()
            watcher.join()
    if failure:
        raise failure[0]
    collect(comparison, store)
    for task in tasks:
        if task.cell.folder not in comparison.outcomes:
            store.add(task.cell, {"reason": "its process was killed again and again: perhaps for want of memory"})
    collect(comparison, store)
    if watch is not None:
        watch(comparison)


@contextmanager
def _stoppable(flag: Path) -> Iterator[None]:
    """A first Ctrl-C asks the workers to stop, on whatever machine; a second one does not wait for them."""
    flag.unlink(missing_ok=True)
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ask(*_: object) -> None:
        signal.signal(signal.SIGINT, before)
        flag.touch()

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        asked = flag.exists()
        flag.unlink(missing_ok=True)
    if asked:
        raise KeyboardInterrupt


def collect(comparison: Comparison, store: Store) -> None:
    """Bring the store, and the comparison, to what the folders of the runs say."""
    known = store.outcomes(comparison.plan.score)
    fresh = False
    for cell in comparison.cells:
        if cell.folder in known:
            continue
        record = outcome(comparison.folder / cell.folder)
        if record is not None:
            store.add(cell, record)
            fresh = True
        else:
            comparison.progress[cell.folder] = _progress(comparison.folder / cell.folder, cell)
    comparison.outcomes = store.outcomes(comparison.plan.score) if fresh else known


def _progress(folder: Path, cell: Cell) -> float:
    """The share of a running cell's epochs that are in its metrics."""
    try:
        with open(folder / "metrics.jsonl", "rb") as file:
            epochs = sum(1 for _ in file)
    except OSError:
        return 0.0
    return min(1.0, epochs / cell.epochs)


def load_options(plan: Plan) -> tuple[tuple[str, Any], ...]:
    """How to load a data set, besides its seed."""
    options: dict[str, Any] = {"train": plan.train, "val": plan.val, "size": plan.size, "strict": plan.strict}
    return tuple(options.items())


def _check(plan: Plan, loaded: dict[str, Any], folder: Path) -> None:
    """What would fail in every run is refused before the first."""
    import torch

    from fallow.training.fit import prepare

    for source in loaded:
        if folder.resolve().is_relative_to(absolute(source)):
            raise RequestError(f"{folder} is inside the data {source}: choose another --out")
    fine: set[str] = set()
    refusals: list[RequestError] = []
    for cell in cells(dataclasses.replace(plan, seeds=1), loaded):
        if cell.method in fine and cell.method != BASELINE:
            continue
        try:
            with torch.random.fork_rng():
                prepare(
                    cell.model, loaded[cell.data], cell.method, weights=plan.weights, device="cpu", workers=0,
                    **cell.settings,
                )  # fmt: skip
            fine.add(cell.method)
        except RequestError as error:
            if cell.method == BASELINE:
                raise
            refusals.append(error)
    asked = {method for method in plan.methods if method not in (BASELINE, *CONTROLS)}
    if asked and not asked & fine:  # one that fits another data set, or is one of many, fails there with its reason
        raise refusals[0]


def _check_unchanged(store: Store, plan: Plan, loaded: dict[str, Any], folder: Path) -> None:
    """The data, or the file of pretrained weights, may have changed since the comparison began."""
    from fallow.data.examples import digest
    from fallow.training.fit import digest as digest_of

    weights = digest_of(Path(plan.weights)) if plan.weights else None
    if store.read("plan") is None:
        store.write("weights", weights)
    elif store.read("weights") != weights:
        raise RequestError(f"{folder} holds a comparison that began from other weights: choose another --out")
    known = store.read("data") or {}
    for source, data in loaded.items():
        parts = " ".join(digest(part) for part in (data.train, data.val, data.test) if part is not None)
        found = hashlib.sha256(parts.encode()).hexdigest()
        if known.setdefault(source, found) != found:
            raise RequestError(f"{source} has changed since the comparison in {folder} began: choose another --out")
    store.write("data", known)


@contextmanager
def _home(folder: Path) -> Iterator[None]:
    """The folder of a comparison, ours alone while we work."""
    if folder.exists() and not folder.is_dir():
        raise RequestError(f"{folder} is a file: --out needs a folder")
    token, locks = folder / "token", folder / "locks"
    # a process that was killed as it began left its locks at most
    strangers = [path for path in folder.glob("*") if path != locks and not files.is_leftover(path)]
    if strangers and not token.exists():
        raise RequestError(f"{folder} holds other files and no comparison: choose an empty or a new folder")
    locks.mkdir(parents=True, exist_ok=True)
    busy = f"another process is at work in {folder}: wait for it, or choose another --out"
    with locked(locks / "comparison", wait=False, busy=busy):
        files.sweep(folder)
        if not token.exists():
            files.write(token, uuid.uuid4().hex.encode())
        yield


def _restart_failures(store: Store, folder: Path) -> None:
    """Failed runs are tried again, from their last checkpoint."""
    for found in store.outcomes("last").values():
        if found.reason is not None:
            (folder / found.folder / OUTCOME).unlink(missing_ok=True)
    store.forget_failures()


def _tasks(
    comparison: Comparison, versions: dict[str, str], device: str, options: tuple[tuple[str, Any], ...]
) -> list[Task]:
    """What is left to run."""
    import torch

    plan, home = comparison.plan, comparison.folder.resolve()
    token = (home / "token").read_text()
    weights = str(Path(plan.weights).resolve()) if plan.weights else None
    gpus = torch.cuda.device_count() if device == "auto" else 0
    left = [cell for cell in comparison.cells if cell.folder not in comparison.outcomes]
    return [
        Task(
            cell, home / cell.folder, token, absolute(cell.data), options, versions[cell.data], weights,
            f"cuda:{i % gpus}" if gpus > 1 else device, os.getpid(),
        )
        for i, cell in enumerate(left)
    ]  # fmt: skip


def describe(comparison: Comparison, findings: Findings) -> dict[str, Any]:
    """Everything as plain values, for ``--json``."""
    rows = [
        {
            "data": setting.data, "model": setting.model, "method": row.method, "verdict": row.verdict,
            "accuracy": {str(seed): value for seed, value in row.accuracy.items()},
            "mean": row.estimate.mean if row.estimate else None,
            "interval": [row.estimate.low, row.estimate.high] if row.estimate else None,
            "validation": row.validation, "passes": row.passes, "seconds": row.seconds,
            "failed": {str(seed): reason for seed, reason in row.failed.items()},
            **{
                key: None if against is None else {
                    "method": against.method, **against.difference._asdict(), "corrected_p": against.corrected,
                }
                for key, against in (("to_normal", row.to_normal), ("to_control", row.to_control))
            },
        }
        for setting in findings.settings
        for row in setting.rows
    ]  # fmt: skip
    across = None
    if findings.across is not None:
        across = {
            "settings": findings.across.settings,
            "beats": [[column, row, mark] for (row, column), mark in findings.across.marks.items() if mark],
            "tree": str(findings.across.tree) if findings.across.tree else None,
        }
    return json.loads(
        json.dumps(
            {
                "sentence": findings.sentence,
                "out": str(comparison.folder),
                "plan": comparison.plan.describe(),
                "rows": rows,
                "across": across,
                "winner": dataclasses.asdict(findings.winner) if findings.winner else None,
            }
        )
    )
