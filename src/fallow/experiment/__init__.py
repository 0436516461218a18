"""Many pieces of work, side by side: whatever trains more than once is an experiment.

An experiment is a policy, a pure function from the outcomes so far to the runs that are wanted, asked again whenever
a run ends. The folder is locked while a call works in it; killed or stopped anywhere, the same call goes on, and
nothing is done twice; failed runs become outcomes with a reason and are tried again by the next call.

>>> from fallow.experiment import Run, each, grid, heed, run
>>> def accuracy(folder, method, seed):  # in a module of fallow; the folder is the run's own
...     result = fit("mlp", "digits", method, seed=seed, out=folder, resume=(folder / "run.json").exists(),
...                  observer=heed, device=device())
...     return result.last["val_accuracy"]  # any plain value
>>> jobs = {f"{m}-seed{s}": {"method": m, "seed": s} for m in ("llf", "ema") for s in range(5)}
>>> found = each(accuracy, jobs, Path("out"), workers=2)  # doctest: +SKIP
>>> found["llf-seed0"]  # doctest: +SKIP
0.97
>>> runs = [Run("teacher", "fallow.x:teach", {"seed": 0}, cost=3), Run("student", "fallow.x:learn", after=("teacher",))]
>>> outcomes = run(grid(runs), Path("out"), identity={"epochs": 5}, engine="ray")  # doctest: +SKIP
>>> outcomes["student"].value, outcomes["student"].reason, outcomes["student"].seconds  # doctest: +SKIP

``Run(name, work, arguments={}, cost=1.0, after=(), paths={})``
    ``paths`` are arguments that say where things are; a run that finds them elsewhere is still the same run.
``each(function, jobs, folder=None, *, paths, identity, engine, address, workers, device, watch, progress, what)``
    the values by name; a WorkError if a run failed.
``run(policy, folder=None, *, identity, engine, address, workers, device, watch, progress, what)``
    the outcomes by name, failures among them; ``values(outcomes)`` raises if there are any.
``opened(folder, what)``
    a context with an :class:`Experiment`: ``.store.read(key)``, ``.store.write(key, value)``, ``.run(policy, …)``, for
    plans that look at what a folder holds before they run.
``heed()``, ``device()``
    inside the work: stop if asked; the device to use.
``epochs_done(folder, epochs)``
    for ``progress(run, folder)``: the share of the epochs in ``metrics.jsonl``.

``watch(state)`` is called before the first run and several times a second; ``fallow.cli.live.Live().show`` is one.
Without a folder an experiment lives in a temporary one. With one worker on this machine runs are in this process.
"""

from fallow.experiment.engines import ENGINES, check
from fallow.experiment.runner import Experiment, State, each, epochs_done, opened, run
from fallow.experiment.runs import Outcome, Outcomes, Policy, Run, grid, values
from fallow.experiment.worker import device, heed

__all__ = [
    "ENGINES", "Experiment", "Outcome", "Outcomes", "Policy", "Run", "State", "check", "device", "each", "epochs_done",
    "grid", "heed", "opened", "run", "values",
]  # fmt: skip
