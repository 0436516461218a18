"""Where runs work: in processes on this machine, on a Ray or on a Dask cluster; the one place that starts processes.

An engine gives a future for each task. With one worker on this machine the task runs in a thread of this process.
"""

from __future__ import annotations

import ctypes
import importlib
import logging
import os
import secrets
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from typing import Any

import joblib
from joblib.externals import loky
from joblib.externals.loky.backend import resource_tracker as loky_tracker
from joblib.externals.loky.process_executor import BrokenProcessPool

from fallow.base.errors import RequestError, unknown
from fallow.base.numbers import MOST, SIDE_BY_SIDE, require_whole

ENGINES = {
    "local": "processes on this machine",
    "ray": "a Ray cluster, or one started here",
    "dask": "a Dask cluster, or one started here",
}
NEEDS = {"ray": ("Ray", "ray"), "dask": ("Dask", "distributed")}
THREADS = ("OMP", "MKL", "OPENBLAS", "BLIS", "VECLIB", "NUMBA", "NUMEXPR")  # libraries that have their own
INSIST = 5.0  # seconds between two attempts to interrupt a thread


@dataclass(frozen=True)
class Pool:
    """What takes tasks."""

    slots: int  # tasks that it does side by side
    submit: Callable[[Callable[[Any], Any], Any], Future]  # (work, task) → the future of work(task)
    lost: tuple[type[BaseException], ...]  # what a future raises when its process was killed
    parent: int | None = None  # the process that its workers must not outlive, where they cannot know


def check(name: str, address: str | None, workers: int | None) -> None:
    """Refuse an engine that cannot be, before anything is done."""
    if name not in ENGINES:
        raise unknown("engine", name, ENGINES)
    if workers is not None:
        require_whole("workers", workers, 1, SIDE_BY_SIDE * (os.cpu_count() or 1) if name == "local" else MOST)
    if name == "local":
        if address is not None:
            raise RequestError("an address is for --engine ray or dask: leave it out, or name one of them")
        return
    product, module = NEEDS[name]
    if name == "ray" and address is None:
        _authenticate()
    try:
        importlib.import_module(module)
        if name == "dask" and address is None:
            importlib.import_module("cryptography")  # for certificates that strangers lack
    except ImportError as error:
        raise RequestError(f"--engine {name} needs {product}: pip install 'fallow[{name}]'") from error


@contextmanager
def engine(name: str, address: str | None, workers: int | None) -> Iterator[Pool]:
    """An engine by name; its workers end with it where it started them."""
    check(name, address, workers)
    if name == "ray":
        with _ray(address, workers) as found:
            yield found
    elif name == "dask":
        with _dask(address, workers) as found:
            yield found
    else:
        count = workers or joblib.cpu_count()
        with _thread() if count == 1 else _processes(count) as found:
            yield found


@contextmanager
def _thread() -> Iterator[Pool]:
    """A thread for each task, one after another; whoever leaves before its end interrupts it."""
    threads: list[threading.Thread] = []

    def submit(work: Callable[[Any], Any], task: Any) -> Future:
        future: Future = Future()

        def fulfil() -> None:
            try:
                future.set_result(work(task))
            except BaseException as error:
                future.set_exception(error)

        threads[:] = [threading.Thread(target=fulfil, daemon=True)]
        threads[0].start()
        return future

    try:
        yield Pool(1, submit, ())
    finally:
        for thread in threads:
            while thread.is_alive():  # again, if it was lost where Python swallows exceptions, as in a destructor
                interrupt = ctypes.py_object(KeyboardInterrupt)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), interrupt)
                thread.join(INSIST)


@contextmanager
def _processes(count: int) -> Iterator[Pool]:
    """Processes, of which a pool that lost one is replaced.

    They wait a few seconds for the next experiment of this process, which then need not start its own (trials, a race
    and the winner's last training follow one another); where one fails or is stopped, they end at once.
    """
    environment = {f"{library}_NUM_THREADS": "1" for library in THREADS}
    pools: list[Any] = []

    def submit(work: Callable[[Any], Any], task: Any) -> Future:
        with deaf():
            while True:
                pools[:] = [loky.get_reusable_executor(count, env=environment)]
                try:
                    return pools[0].submit(work, task)
                except BrokenProcessPool:  # between the two calls
                    continue

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "A worker stopped", UserWarning)  # loky replaces one that has grown
        try:
            yield Pool(count, submit, (BrokenProcessPool,), os.getpid())
        except BaseException:
            for pool in pools:
                pool.shutdown(wait=True, kill_workers=True)
            raise


@contextmanager
def deaf() -> Iterator[None]:
    """Processes that start in here never hear a Ctrl-C, which reaches the whole group: the parent decides.

    The signal is blocked in this thread, and what it starts inherits that.
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
def _ray(address: str | None, workers: int | None) -> Iterator[Pool]:
    import ray
    from ray.exceptions import NodeDiedError, OutOfMemoryError, WorkerCrashedError

    ours = not ray.is_initialized()
    options: dict[str, Any] = {"address": address or "local"}  # no cluster that happens to run here, unless named
    options |= {} if address else {"num_cpus": workers, "include_dashboard": False}
    try:
        if address and ours:
            _knock(address)
        if ours:
            with deaf(), _loopback(address is None):
                ray.init(logging_level=logging.ERROR, log_to_driver=False, **options)
    except (OSError, ValueError, RuntimeError) as error:
        where = f"there is no Ray cluster at {address}" if address else "Ray does not start here"
        raise RequestError(f"{where}: {' '.join(str(error).split())}") from error
    try:
        there = int(ray.cluster_resources().get("CPU", 1))

        def submit(work: Callable[[Any], Any], task: Any) -> Future:
            return ray.remote(max_retries=0)(work).remote(task).future()

        yield Pool(min(workers or there, there), submit, (WorkerCrashedError, OutOfMemoryError, NodeDiedError))
    finally:
        if ours:
            ray.shutdown()


@contextmanager
def _loopback(only: bool) -> Iterator[None]:
    """A cluster that is started for one call is nobody else's: Ray that may not form clusters listens to us alone."""
    from ray._private import ray_constants

    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = before and not only
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


def _authenticate() -> None:
    """Whoever speaks to a cluster of ours must know a token; Ray reads this once, when it is imported.

    Another user of this machine reaches the loopback, too.
    """
    if "ray" not in sys.modules and "RAY_AUTH_MODE" not in os.environ:
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}


@contextmanager
def _dask(address: str | None, workers: int | None) -> Iterator[Pool]:
    import dask
    from distributed import Client, KilledWorker, LocalCluster
    from distributed.security import Security

    cluster = None
    with deaf(), dask.config.set({"distributed.scheduler.allowed-failures": 0}):  # we try again ourselves
        if address is None:
            cluster = LocalCluster(
                n_workers=workers or joblib.cpu_count(), threads_per_worker=1, dashboard_address="127.0.0.1:0",
                silence_logs=logging.ERROR, security=Security.temporary(),  # other users reach the loopback, too
            )  # fmt: skip
        try:
            if address is not None:
                _knock(address)
            client = Client(address or cluster, timeout=10)
        except (OSError, ValueError) as error:
            raise RequestError(f"there is no Dask scheduler at {address}: {' '.join(str(error).split())}") from error
    try:
        jobs = workers or max(1, sum(client.nthreads().values()))
        yield Pool(jobs, client.get_executor(pure=False).submit, (KilledWorker,))
    finally:
        client.close()
        if cluster is not None:
            cluster.close()


def _knock(address: str) -> None:
    """Raise OSError or ValueError if nobody is at ``host:port``: Ray itself would wait for many minutes."""
    host, colon, port = address.rpartition("://")[2].partition("/")[0].rpartition(":")
    if colon:  # "auto" has none
        socket.create_connection((host, int(port)), timeout=10).close()
