"""``fallow fewshot TASKS``: meta-train on tasks, judge by new ones, keep it with its record and pictures."""

from __future__ import annotations

import json
from os.path import isdir  # unlike Path.is_dir, no error for a name that is too long
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fallow.base.errors import RequestError
from fallow.base.numbers import require_whole
from fallow.cli import options
from fallow.cli.control import control
from fallow.cli.wrapper import AGAIN, answer, free_folder, needs_out, working

if TYPE_CHECKING:
    from fallow.data.tasks import Tasks
    from fallow.training.meta import FewShotResult


def fewshot(
    context: typer.Context,
    tasks: Annotated[
        str,
        typer.Argument(
            help="sinusoid, omniglot, cifar-fs, navigation, halfcheetah-direction, a .npz or a folder of classes"
        ),
    ],
    method: Annotated[
        str,
        typer.Option(help="a name with settings, or a sum: l2f:start=0.95+multi-step-loss (see: fallow list methods)"),
    ] = "maml",
    model: options.Model = None,
    ways: Annotated[int, typer.Option(help="classes per task")] = 5,
    shots: Annotated[int, typer.Option(help="support examples per class, or points of a curve")] = 5,
    queries: Annotated[
        int | None, typer.Option(help="query examples per class; default 5, for curves as many as shots")
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="a folder with the images of omniglot, cifar-fs or fc100")
    ] = None,
    splits: Annotated[str | None, typer.Option(help="JSON file of class splits (FILE.json or FILE.json:NAME)")] = None,
    rotations: Annotated[
        bool, typer.Option("--rotations", help="count rotated images as further classes (Omniglot)")
    ] = False,
    size: options.Size = None,
    weights: options.Weights = None,
    steps: Annotated[
        int | None, typer.Option(help="gradient steps of the inner loop; same as maml:steps=5; default by the tasks")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(help="learning rate of the inner loop; same as maml:rate=0.01; default by the tasks")
    ] = None,
    compile: Annotated[
        bool, typer.Option("--compile", help="compile the meta-gradient: slow start, then fast")
    ] = False,
    iterations: Annotated[int | None, typer.Option(help="meta-updates; default by the tasks")] = None,
    minutes: Annotated[
        float | None, typer.Option(help="time limit, instead of iterations: as many as fit into it")
    ] = None,
    meta_batch: Annotated[int | None, typer.Option(help="tasks per meta-update; default 4")] = None,
    lr: Annotated[
        float | None, typer.Option(help="learning rate of the meta-optimiser, Adam; default by the tasks")
    ] = None,
    schedule: Annotated[str | None, typer.Option(help="constant, cosine or plateau; default by the tasks")] = None,
    clip: options.Clip = None,
    every: Annotated[
        int | None,
        typer.Option(help="iterations between two evaluations on validation tasks; default: ten evaluations"),
    ] = None,
    val_tasks: Annotated[int, typer.Option(help="validation tasks")] = 100,
    episodes: Annotated[int, typer.Option(help="test tasks")] = 600,
    seed: options.Seed = 0,
    out: Annotated[Path | None, typer.Option(help="the run's folder; default: the next free one in runs/")] = None,
    resume: options.Resume = False,
    checkpoint_every: options.Checkpoints = 15.0,
    device: options.Device = "auto",
    devices: Annotated[
        int | None,
        typer.Option(help="processes that share the tasks, by Lightning Fabric; default: a core each, for images"),
    ] = None,
    threads: options.Threads = None,
    as_json: options.Json = False,
) -> None:
    """Meta-train on TASKS, test on new tasks, and keep the model with its record."""
    from fallow.data.environments.load import is_environment

    if is_environment(tasks):  # it has defaults of its own
        sources = {name: context.get_parameter_source(name) for name in context.params}
        return control({n: context.params[n] for n, source in sources.items() if source and source.name != "DEFAULT"})
    needs_out(resume, out)
    from fallow.cli.display import Progress
    from fallow.data.tasks.load import load_tasks
    from fallow.training.meta import fewshot as meta_train

    if data_dir is not None and not isdir(data_dir):  # also where the tasks need none: it was not meant so
        raise RequestError(f"--data-dir {data_dir} is not a folder: give the one that holds the data, or leave it out")
    require_whole("episodes", episodes)
    require_whole("val_tasks", val_tasks)
    loaded = load_tasks(
        tasks, data_dir=data_dir, ways=ways, shots=shots, queries=queries, splits=splits, rotations=rotations,
        size=size, val_tasks=val_tasks, test_tasks=episodes,
    )  # fmt: skip
    if not loaded.test_tasks:
        raise RequestError("the splits name no classes for test: the trained model is judged by tasks of these")
    chosen = with_inner(method, steps=steps, rate=rate, compile=compile or None)
    folder = out or free_folder(tasks, method, seed, "fewshot-")
    with working(folder, threads=threads, resumes=AGAIN), Progress() as progress:
        result = meta_train(
            model, loaded, chosen, iterations=iterations, minutes=minutes, meta_batch=meta_batch, lr=lr, every=every,
            schedule=schedule, clip=clip, weights=weights, seed=seed, out=folder, resume=resume,
            checkpoint_every=checkpoint_every, device=device,
            devices=processes(loaded, meta_batch, device, threads) if devices is None else devices,
            observer=progress.show if progress.live else None,
        )  # fmt: skip
    if result.folder is None:  # another process than the first
        return
    from fallow.cli.display import typed
    from fallow.diagnose.adaptation import write

    record = json.loads((result.folder / "run.json").read_text("utf-8"))
    page = write(result.folder, result, loaded, record, typed())

    def report() -> None:
        _report(result, record)
        print(f"report: {page}")

    answer(result.describe() | {"out": str(result.folder), "run": record}, as_json, report)


def processes(tasks: Tasks, meta_batch: int | None, device: str, threads: int | None) -> int:
    """How many to share the tasks of a meta-batch: one for each core where tasks are large and Fabric is there.

    Several threads of one process gain little on convolutions as small as a task's; on curves, processes would wait for
    one another most of the time.
    """
    from importlib.util import find_spec

    import torch

    from fallow.core.engine import find_device

    small = not tasks.pictures or min(tasks.shape[1:]) < 16
    if small or threads is not None or find_device(device).type != "cpu" or find_spec("lightning") is None:
        return 1
    return max(1, min(torch.get_num_threads(), meta_batch or tasks.recipe.meta_batch))


def with_inner(method: str, **settings: Any) -> Any:
    """The method, with the inner loop's settings given to its MAML; one that has none refuses them."""
    import dataclasses

    from fallow import methods
    from fallow.core.method import Together
    from fallow.methods.fewshot.maml import MAML, complete

    built = complete(methods.build(method))
    given = {key: value for key, value in settings.items() if value is not None}
    if not given:
        return built
    parts = built.parts
    if not any(isinstance(part, MAML) for part in parts):
        raise RequestError(f"{built.name} has no inner loop: leave {' and '.join(given)} out")
    changed = [dataclasses.replace(part, **given) if isinstance(part, MAML) else part for part in parts]
    return Together(*changed) if len(changed) > 1 else changed[0]


def _report(result: FewShotResult, record: dict[str, Any]) -> None:
    """What was trained, and how the test tasks were learned."""
    data = record["data"]
    kind = f"{data['ways']}-way {data['shots']}-shot" if "ways" in data else f"{data['shots']}-shot"
    print(f"{data['name']}: {kind} tasks; {record['model']}, {record['method']}")
    for note in record["notes"]:
        print(f"note: {note}")
    accuracy = "accuracy" in result.tested
    print(f"\n{'inner step':>10}  {'accuracy' if accuracy else 'loss':>20}")
    for step, found in enumerate(result.tested["steps"]):
        print(f"{step:>10}  {_interval(found, accuracy):>20}")
    what = "test accuracy" if accuracy else "test loss"
    last = result.tested["accuracy" if accuracy else "loss"]
    print(f"\n{what} {_interval(last, accuracy)} (95 % interval over {result.tested['tasks']} tasks)")
    if "inductive" in result.tested:
        print("norms saw all queries of a task together (transductive); each query on its own, normalised as the")
        print(f"support is (inductive): {_interval(result.tested['inductive'], accuracy)}")
    print(f"{result.steps} iterations in {result.seconds:.1f} s; kept in {result.folder}")


def _interval(found: dict[str, Any], share: bool) -> str:
    if found["low"] is None:
        return f"{100 * found['mean']:.2f} %" if share else f"{found['mean']:.4f}"
    half = (found["high"] - found["low"]) / 2
    return f"{100 * found['mean']:.2f} ± {100 * half:.2f} %" if share else f"{found['mean']:.4f} ± {half:.4f}"
