"""Run what a policy wants, side by side; killed anywhere, the same call resumes it."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fallow.experiment import folder as place
from fallow.experiment.engines import Pool, check
from fallow.experiment.engines import engine as _engine
from fallow.experiment.runs import Outcome, Outcomes, Policy, Run, grid, identity, values
from fallow.experiment.store import Record, Store
from fallow.experiment.worker import RUNS, TOKEN, Task, outcome, perform

WATCH = 0.25  # seconds between two looks at the runs that are at work
ATTEMPTS = 3  # how often a run's process may be killed before the run is tried alone
KILLED = "its process was killed again and again: perhaps for want of memory"

Progress = Callable[[Run, Path], float]  # the share of a run at work that is done, by what is in its folder


@dataclass
class State:
    """An experiment as it stands, for whoever watches."""

    runs: dict[str, Run] = field(default_factory=dict)  # those that ended, are at work or are wanted
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    progress: dict[str, float] = field(default_factory=dict)  # of those at work: the share that is done
    started: float = field(default_factory=time.monotonic)
    before: float = 0.0  # cost of what was done when this call began

    def cost(self) -> tuple[float, float]:
        """Of what is done, and of everything."""
        ended = sum(found.run.cost for found in self.outcomes.values())
        at_work = sum(self.runs[name].cost * share for name, share in self.progress.items())
        return ended + at_work, sum(run.cost for run in self.runs.values())

    def seconds(self) -> float:
        """Since this call began."""
        return time.monotonic() - self.started

    def seconds_left(self) -> float | None:
        """By the pace of this call; None before there is one."""
        done, total = self.cost()
        gained = done - self.before
        return self.seconds() / gained * (total - done) if gained > 0 else None


Watch = Callable[[State], None]


def run(
    policy: Policy,
    folder: Path | None = None,
    *,
    identity: dict[str, Any] | None = None,
    engine: str = "local",
    address: str | None = None,
    workers: int | None = None,
    device: str = "auto",
    watch: Watch | None = None,
    progress: Progress | None = None,
    what: str = "experiment",
) -> Outcomes:
    """Run what a policy wants until it wants nothing more, and give all outcomes.

    Parameters
    ----------
    policy : from the outcomes so far to the runs wanted; asked again whenever a run ends.
    folder : of the experiment; the same folder goes on where a call before was stopped. None: one for this call only.
    identity : plain values; a folder that holds an experiment of another identity is refused.
    engine, address, workers : where runs work, ``local``, ``ray`` or ``dask``, and how many side by side.
    device : for the runs; with ``auto``, the GPUs of a machine in turn.
    watch : called with the :class:`State` before the first run and several times a second.
    progress : the share of a run at work that is done.
    what : the name of such an experiment, for messages.

    """
    check(engine, address, workers)
    with _given(folder) as home, opened(home, what) as experiment:
        place.same(experiment.store, home, what, identity or {})
        return experiment.run(
            policy, engine=engine, address=address, workers=workers, device=device, watch=watch, progress=progress
        )


def each(
    function: Callable[..., Any],
    jobs: Mapping[str, dict[str, Any]],
    folder: Path | None = None,
    *,
    paths: dict[str, str] | None = None,
    identity: dict[str, Any] | None = None,
    engine: str = "local",
    address: str | None = None,
    workers: int | None = None,
    device: str = "auto",
    watch: Watch | None = None,
    progress: Progress | None = None,
    what: str = "experiment",
) -> dict[str, Any]:
    """The values of ``function(folder, **arguments, **paths)`` for the arguments of every job, by the job's name.

    The function stands in a module of fallow; every call has a folder of its own. ``paths`` are the same for all and
    do not make another run of it. For the options see :func:`run`.
    """
    work = f"{function.__module__}:{function.__name__}"
    runs = [Run(name, work, arguments, paths=paths or {}) for name, arguments in jobs.items()]
    found = values(
        run(
            grid(runs), folder, identity=identity, engine=engine, address=address, workers=workers, device=device,
            watch=watch, progress=progress, what=what,
        )
    )  # fmt: skip
    return {name: found[name] for name in jobs}


@contextmanager
def opened(folder: Path, what: str = "experiment") -> Iterator[Experiment]:
    """An experiment's folder, locked, before anything runs: for plans that look at what they find there."""
    with place.home(folder, what) as store:
        place.say_drift(store, folder)
        yield Experiment(folder, store)


def epochs_done(folder: Path, epochs: int) -> float:
    """The share of a training's epochs that are in its metrics."""
    try:
        with open(folder / "metrics.jsonl", "rb") as file:
            return min(1.0, sum(1 for _ in file) / epochs)
    except OSError:
        return 0.0


class Experiment:
    """A folder with a store, ours for the time being."""

    def __init__(self, folder: Path, store: Store) -> None:
        self.folder, self.store = folder, store
        self.state = State()
        self.wanted: Sequence[Run] = ()  # by the last answer of the policy
        self.at_work: dict[Future, Run] = {}
        self.killed: Counter[str] = Counter()  # how often each run's process was
        self.identities: dict[str, str] = {}
        self.begun = 0

    def run(
        self,
        policy: Policy,
        *,
        engine: str = "local",
        address: str | None = None,
        workers: int | None = None,
        device: str = "auto",
        watch: Watch | None = None,
        progress: Progress | None = None,
    ) -> Outcomes:
        """See :func:`run`."""
        self.policy, self.device, self.progress = policy, device, progress or (lambda run, folder: 0.0)
        watch = watch or (lambda state: None)
        with place.stoppable(self.folder) as flag:
            self._replay()
            self.state.started, self.state.before = time.monotonic(), self.state.cost()[0]
            watch(self.state)
            if self._waiting():
                with _engine(engine, address, workers) as found:
                    self._loop(found, flag, watch)
        return self.state.outcomes

    def _loop(self, engine: Pool, flag: Path, watch: Watch) -> None:
        try:
            while True:
                if not flag.exists():
                    self._fill(engine)
                if not self.at_work:
                    return
                done, _ = wait(self.at_work, timeout=WATCH, return_when=FIRST_COMPLETED)
                for future in [future for future in self.at_work if future in done]:
                    self._settle(future, engine)
                for run in self.at_work.values():
                    self.state.progress[run.name] = self.progress(run, self.folder / RUNS / run.name)
                watch(self.state)
        except Exception:  # of the display, or of a machine that cannot work here: the others stop too
            flag.touch()
            wait(self.at_work)
            flag.unlink(missing_ok=True)
            raise

    # ---- what is wanted ---------------------------------------------------------------------------------

    def _ask(self) -> None:
        """Ask the policy what it wants now."""
        answer = self.policy(self.state.outcomes)
        if answer is self.wanted:
            return
        self.wanted = answer
        ended, at_work = (found.run for found in self.state.outcomes.values()), self.at_work.values()
        runs: dict[str, Run] = {}
        for run in (*answer, *ended, *at_work):
            if runs.setdefault(run.name, run) != run:
                raise ValueError(f"the policy wants two different runs named {run.name!r}")
        for run in answer:
            if missing := [name for name in run.after if name not in runs]:
                raise ValueError(f"{run.name} comes after {missing[0]}, which the policy does not want")
        self.state.runs = runs

    def _waiting(self) -> list[Run]:
        """Wanted, and neither ended nor at work."""
        at_work = {run.name for run in self.at_work.values()}
        return [run for run in self.wanted if run.name not in self.state.outcomes and run.name not in at_work]

    def _replay(self) -> None:
        """Tell the policy what ended before, in that order, as far as it asks for those very runs.

        Failed runs are tried again, and those whose folder is gone: others may need what was in it.
        """
        self.store.forget_failures()
        self._ask()
        left = self.store.records()
        while found := {
            run.name: run
            for run in self._waiting()
            if run.name in left
            and left[run.name]["identity"] == self._identity(run)
            and (self.folder / RUNS / run.name).is_dir()
        }:
            name = next(name for name in left if name in found)
            self._tell(found[name], left.pop(name))
        self._collect()

    def _collect(self) -> None:
        """A call that was killed may not have seen what its workers left."""
        seen: set[str] = set()
        while fresh := [run for run in self._waiting() if run.name not in seen]:  # the policy may want others then
            for run in fresh:
                seen.add(run.name)
                record = outcome(self.folder / RUNS / run.name, self._identity(run))
                if record is not None:
                    self._end(run, record)

    def _identity(self, run: Run) -> str:
        if run.name not in self.identities:
            self.identities[run.name] = identity(run, self.state.runs)
        return self.identities[run.name]

    # ---- what happens to a run ----------------------------------------------------------------------------

    def _fill(self, engine: Pool) -> None:
        """Start what there is room for: long ones first, and those that kill their processes alone and last."""
        outcomes = self.state.outcomes
        failed = {name for name, found in outcomes.items() if found.reason is not None}
        while doomed := [run for run in self._waiting() if failed & set(run.after)]:
            for run in doomed:
                self._fail(run, f"it comes after {min(failed & set(run.after))}, which failed")
                failed.add(run.name)
        ready = [run for run in self._waiting() if all(name in outcomes for name in run.after)]
        for run in sorted(ready, key=lambda run: (self._suspect(run), -run.cost)):
            crowded = self._suspect(run) or any(map(self._suspect, self.at_work.values()))
            if len(self.at_work) >= (1 if crowded else engine.slots):
                return
            self._start(run, engine)

    def _suspect(self, run: Run) -> bool:
        return self.killed[run.name] >= ATTEMPTS

    def _start(self, run: Run, engine: Pool) -> None:
        home = self.folder.resolve()
        token = (home / TOKEN).read_text()
        task = Task(run, self._identity(run), home, token, self.device, self.begun, engine.parent)
        self.begun += 1
        self.at_work[engine.submit(perform, task)] = run
        self.state.progress[run.name] = 0.0

    def _settle(self, future: Future, engine: Pool) -> None:
        run = self.at_work.pop(future)
        self.state.progress.pop(run.name, None)
        try:
            record = future.result()
        except engine.lost:
            alone = self._suspect(run)
            self.killed[run.name] += 1
            if alone:
                self._fail(run, KILLED)
            return
        except Exception as error:
            raise getattr(error, "cause", error) from None  # Ray's carries a page of traceback
        if record is not None:  # or it was asked to stop
            self._end(run, record)

    def _fail(self, run: Run, reason: str) -> None:
        self._end(run, {"identity": self._identity(run), "value": None, "reason": reason, "seconds": 0.0})

    def _end(self, run: Run, record: Record) -> None:
        self.store.add(run.name, record)
        self._tell(run, record)

    def _tell(self, run: Run, record: Record) -> None:
        self.state.outcomes[run.name] = Outcome(run, record["value"], record["reason"], record["seconds"])
        self._ask()


@contextmanager
def _given(folder: Path | None) -> Iterator[Path]:
    if folder is not None:
        yield Path(folder)
        return
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)
