"""Where the runs of a comparison work: joblib on this machine, on a Ray or on a Dask cluster."""

from __future__ import annotations

import importlib
import logging
import signal
import socket
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import resource_tracker
from typing import Any

import joblib
from joblib.externals.loky.backend import resource_tracker as loky_tracker
from joblib.externals.loky.process_executor import TerminatedWorkerError

from fallow.base.errors import RequestError, unknown

ENGINES = {
    "local": "processes on this machine",
    "ray": "a Ray cluster, or one started here",
    "dask": "a Dask cluster, or one started here",
}
NEEDS = {"ray": ("Ray", "ray.util.joblib"), "dask": ("Dask", "distributed")}
ATTEMPTS = 3  # rounds in which a worker may be killed before the runs are tried one by one

RunAll = Callable[[Sequence[Any], Any], None]
Errors = tuple[type[Exception], ...]


def check(name: str, address: str | None, workers: int | None) -> None:
    """Refuse an engine that cannot be, before anything is done."""
    if name not in ENGINES:
        raise unknown("engine", name, ENGINES)
    if workers is not None and workers < 1:
        raise RequestError(f"workers is {workers}: one or more are needed")
    if name == "local":
        if address is not None:
            raise RequestError("an address is for --engine ray or dask: leave it out, or name one of them")
        return
    product, module = NEEDS[name]
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise RequestError(f"--engine {name} needs {product}: pip install 'fallow[{name}]'") from error


@contextmanager
def engine(name: str, address: str | None, workers: int | None) -> Iterator[RunAll]:
    """A function that runs ``work(task)`` for every task and returns when all have ended."""
    check(name, address, workers)
    if name == "local":
        wanted = workers or joblib.cpu_count()
        with joblib.parallel_config(backend="loky", inner_max_num_threads=1):
            yield lambda tasks, work: _persist(tasks, work, min(wanted, max(1, len(tasks))), (TerminatedWorkerError,))
        return
    with (_ray if name == "ray" else _dask)(address, workers) as (jobs, lost):
        yield lambda tasks, work: _persist(tasks, work, jobs, lost)


def _persist(tasks: Sequence[Any], work: Any, jobs: int, lost: Errors) -> None:
    """Run the tasks; when a worker is lost, what is left is tried again.

    A run that kills its worker every time (for want of memory, say) must not keep the others from ending: after
    some rounds every run gets a process of its own, and the culprits leave no outcome.
    """
    from fallow.comparison.work import outcome

    left = list(tasks)
    for _ in range(ATTEMPTS):
        try:
            return _all(left, work, jobs)
        except lost:
            left = [task for task in left if outcome(task.folder) is None]
    for task in left:
        try:
            _all([task], work, 2)  # one job would be no process of its own
        except lost:
            continue


def _all(tasks: Sequence[Any], work: Any, jobs: int) -> None:
    with deaf(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "A worker stopped", UserWarning)  # loky replaces one that has grown
        joblib.Parallel(n_jobs=jobs, batch_size=1, pre_dispatch="all")(joblib.delayed(work)(task) for task in tasks)


@contextmanager
def deaf() -> Iterator[None]:
    """Processes that start in here never hear a Ctrl-C, which reaches the whole group: the parent decides.

    The signal is blocked in this thread, and what it starts inherits that; our other threads still take it.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    for tracker in (resource_tracker, loky_tracker):  # the first process starts these, which would unblock it
        tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _ray(address: str | None, workers: int | None) -> Iterator[tuple[int, Errors]]:
    import ray
    from ray.exceptions import RayActorError, WorkerCrashedError
    from ray.util.joblib import register_ray

    register_ray()
    ours = not ray.is_initialized()
    options: dict[str, Any] = {"address": address} if address else {"num_cpus": workers, "include_dashboard": False}
    try:
        if address and ours:
            _knock(address)
        if ours:
            with deaf():
                ray.init(logging_level=logging.ERROR, log_to_driver=False, **options)
    except (OSError, ValueError, RuntimeError) as error:
        where = f"there is no Ray cluster at {address}" if address else "Ray does not start here"
        raise RequestError(f"{where}: {' '.join(str(error).split())}") from error
    try:
        there = int(ray.cluster_resources().get("CPU", 1))
        with joblib.parallel_config(backend="ray"):
            yield min(workers or there, there), (RayActorError, WorkerCrashedError)
    finally:
        if ours:
            ray.shutdown()


def _knock(address: str) -> None:
    """Raise OSError or ValueError if nobody is at ``host:port``: Ray itself would wait for many minutes."""
    host, colon, port = address.rpartition("://")[2].partition("/")[0].rpartition(":")
    if colon:  # "auto" has none
        socket.create_connection((host, int(port)), timeout=10).close()


@contextmanager
def _dask(address: str | None, workers: int | None) -> Iterator[tuple[int, Errors]]:
    from distributed import Client, KilledWorker, LocalCluster

    cluster = None
    with deaf():
        if address is None:
            cluster = LocalCluster(
                n_workers=workers or joblib.cpu_count(), threads_per_worker=1, dashboard_address=None,
                silence_logs=logging.ERROR,
            )  # fmt: skip
        try:
            if address is not None:
                _knock(address)
            client = Client(address or cluster, timeout=10)
        except (OSError, ValueError) as error:
            raise RequestError(f"there is no Dask scheduler at {address}: {' '.join(str(error).split())}") from error
    try:
        jobs = workers or max(1, sum(client.nthreads().values()))
        with joblib.parallel_config(backend="dask", wait_for_workers_timeout=30):
            yield jobs, (KilledWorker,)
    finally:
        client.close()
        if cluster is not None:
            cluster.close()
