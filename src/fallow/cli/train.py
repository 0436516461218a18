"""``fallow train DATA``: one model, kept with its record; stops and resumes anywhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fallow.base import toml
from fallow.base.errors import RequestError, unknown
from fallow.cli import options
from fallow.cli.wrapper import AGAIN, answer, free_folder, needs_out, working

if TYPE_CHECKING:
    from fallow.core.context import Context
    from fallow.evaluate.metrics import Metric
    from fallow.training.result import Result

_DECAYS = "fallow.weight_decay"  # where a file's decay per layer waits: the flag has room for one number


def _read(ctx: typer.Context, path: Path | None) -> Path | None:
    """Let a file give what no flag gives: its values become the defaults."""
    if path is not None:
        found = toml.read(path, "settings file")
        names = {flag.lstrip("-").replace("-", "_"): p.name for p in ctx.command.params for flag in p.opts}
        for key in found:
            if key not in names or key in ("data", "settings"):
                raise unknown(f"setting in {path}", key, set(names) - {"data", "settings"})
        decays = found.get("weight_decay")
        if isinstance(decays, dict):
            ctx.meta[_DECAYS] = found.pop("weight_decay")
        ctx.default_map = {names[key]: value for key, value in found.items()}
    return path


def train(
    ctx: typer.Context,
    data: options.Data,
    settings: Annotated[
        Path | None,
        typer.Option(is_eager=True, callback=_read, help="a TOML file of these options, such as fallow tune writes"),
    ] = None,
    method: Annotated[
        str, typer.Option(help="a name with settings, or a sum: seal:scale=0.1 or llf+sagd (see: fallow list methods)")
    ] = "normal",
    model: options.Model = None,
    split: options.Split = "auto",
    freeze: options.Freeze = None,
    weights: options.Weights = None,
    redraw_from: options.RedrawFrom = "weights",
    keep: options.Train = None,
    val: options.Val = 0.2,
    test: options.Test = 0.2,
    size: options.Size = None,
    input_size: options.InputSize = None,
    as_: options.As = None,
    groups: options.Groups = None,
    target: options.Target = None,
    drop: options.Drop = None,
    metric: options.Metric = None,
    minutes: Annotated[float | None, typer.Option(help="time limit: as many epochs as fit into it")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="a first look: a quarter of the epochs")] = False,
    generations: Annotated[
        int | None, typer.Option(help="number of generations, the first, ordinary one included")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="epochs per generation")] = None,
    batch_size: Annotated[int | None, typer.Option(help="examples per step, over all processes")] = None,
    optimizer: Annotated[str | None, typer.Option(help="sgd or adamw")] = None,
    lr: Annotated[float | None, typer.Option(help="the initial learning rate, or the peak of a one-cycle")] = None,
    momentum: Annotated[float | None, typer.Option(help="SGD's momentum; default by the data")] = None,
    nesterov: Annotated[bool | None, typer.Option(help="use Nesterov momentum with SGD")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="weight decay; default by the data")] = None,
    schedule: Annotated[
        str | None,
        typer.Option(help="one-cycle, cosine, constant, or plateau (halve when validation stalls)"),
    ] = None,
    warmup: Annotated[float | None, typer.Option(help="epochs of warm-up in each generation")] = None,
    label_smoothing: Annotated[float | None, typer.Option(help="label smoothing; default by the data")] = None,
    loss: Annotated[str | None, typer.Option(help="of masks: cross-entropy, dice or dice+cross-entropy")] = None,
    clip: options.Clip = None,
    accumulate: Annotated[int | None, typer.Option(help="micro-batches per batch")] = None,
    precision: Annotated[str | None, typer.Option(help="float32, bf16 or float64")] = None,
    patience: Annotated[
        int | None, typer.Option(help="end a generation after this many evaluations without a lower validation loss")
    ] = None,
    augment: options.Augment = None,
    evaluate_every: Annotated[int | None, typer.Option(help="epochs between two evaluations on validation")] = None,
    seed: options.Seed = 0,
    out: Annotated[Path | None, typer.Option(help="the run's folder; default: the next free one in runs/")] = None,
    resume: options.Resume = False,
    checkpoint_every: options.Checkpoints = 15.0,
    keep_generations: Annotated[
        bool, typer.Option("--keep-generations", help="keep the weights after every generation, to diagnose them")
    ] = False,
    device: options.Device = "auto",
    devices: options.Devices = 1,
    workers: Annotated[
        int | None, typer.Option(help="processes that load images when they do not fit into memory")
    ] = None,
    threads: options.Threads = None,
    track: Annotated[str | None, typer.Option(help="tensorboard or mlflow: also log the metrics to track/")] = None,
    as_json: options.Json = False,
) -> None:
    """Train one model on DATA and keep it with its record."""
    needs_out(resume, out)
    import torch

    from fallow import methods
    from fallow.cli.display import Progress, say
    from fallow.core import loop
    from fallow.data import load
    from fallow.report.words import roughly
    from fallow.training import recipes
    from fallow.training.pace import seconds_per_pass
    from fallow.training.prepare import prepare
    from fallow.training.result import result_of
    from fallow.training.track import Tracker

    if settings is not None:
        _refuse_foreign(ctx, settings, model, method)
    folder = out or free_folder(data, method, seed)
    alone = torch.random.fork_rng(devices=range(torch.cuda.device_count()))
    with working(folder, threads=threads, resumes=AGAIN), Progress() as progress, alone, ExitStack() as ends:
        watchers: list[Callable[[Context], None]] = [progress.show] if progress.live else []
        if track is not None:
            watchers.append(ends.enter_context(closing(Tracker(track, folder / "track"))))

        def observe(ctx: Context) -> None:
            for watch in watchers:
                watch(ctx)

        loaded = load(
            data, train=keep, val=val, test=test, size=size, target=target, as_=as_, groups=groups, seed=seed,
            drop=drop or "",
        )  # fmt: skip
        flags = {
            "generations": generations, "epochs": epochs, "batch_size": batch_size, "optimizer": optimizer, "lr": lr,
            "momentum": momentum, "nesterov": nesterov, "schedule": schedule, "warmup": warmup,
            "weight_decay": weight_decay if _given(ctx, "weight_decay") else ctx.meta.get(_DECAYS, weight_decay),
            "label_smoothing": label_smoothing, "clip": clip, "accumulate": accumulate, "precision": precision,
            "loss": loss, "patience": patience, "augment": augment, "evaluate_every": evaluate_every, "metric": metric,
            "freeze": None if freeze is None else as_split(freeze), "input_size": input_size,
            "redraw_from": redraw_from,
        }  # fmt: skip
        given = {name: value for name, value in flags.items() if value is not None}
        network, settled = recipes.training(
            loaded, methods.build(method), model, given, minutes=minutes, quick=quick
        )  # what is not given follows from the data
        chosen = settled | {
            "weights": weights, "device": device, "workers": workers, "split": as_split(split), "seed": seed,
        }  # fmt: skip
        training = prepare(
            network, loaded, method, out=folder, resume=resume, checkpoint_every=checkpoint_every,
            keep_generations=keep_generations, devices=devices, observer=observe if watchers else None, **chosen,
        )  # fmt: skip
        ends.enter_context(closing(training))
        if training.engine.is_global_zero:
            say(training.problem.understood(training.settings))
            say(recipes.said(network, settled, training.method))
        if training.engine.world_size == 1 and training.clock.overall < 1:
            clock = training.clock
            passes = clock.generations * clock.epochs * clock.steps * training.method.passes * (1 - clock.overall)
            say(f"this takes {roughly(passes * seconds_per_pass(network, loaded, **chosen))}")
        loop.run(training)
        result = result_of(training)
    if result.folder is None:  # another process than the first
        return
    record = json.loads((result.folder / "run.json").read_text("utf-8"))
    found = result.describe() | {"out": str(result.folder), "run": record}
    answer(found, as_json, lambda: _report(result, record))


def _refuse_foreign(ctx: typer.Context, path: Path, model: str | None, method: str) -> None:
    """Refuse networks out of a file that are not fallow's own: importing them runs code, and it may be anybody's."""
    from fallow import methods, models

    beside = [] if _given(ctx, "method") else [n for part in methods.build(method).parts for n in part.networks]
    for name in ([] if model is None or _given(ctx, "model") else [model]) + beside:
        if not models.catalogued(name):
            raise RequestError(
                f"{path} names the model {name!r}, which is not fallow's own: name it in the command, too"
            )


def _given(ctx: typer.Context, name: str) -> bool:
    """Whether the command line names an option."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _report(result: Result, record: dict[str, Any]) -> None:
    """What was done, generation by generation."""
    from fallow.data.targets import Target
    from fallow.evaluate.score import key_of
    from fallow.report.words import number

    data = record["data"]
    sizes = ", ".join(f"{data['sizes'][part]} {part}" for part in ("train", "val", "test") if data["sizes"].get(part))
    many = len(data["target"]["names"])
    kind = {"classes": f"{many} classes", "dense": f"{many} classes of pixels", "labels": f"{many} labels"}.get(
        data["target"]["kind"], data["target"]["kind"]
    )
    print(f"{data['name']}: {sizes} examples of {kind}; {record['model']}, {record['method']}")
    for note in record["notes"]:
        print(f"note: {note}")
    if record["pretrained"]:
        print(record["pretrained"])
    if record.get("partition_table"):
        print(record["partition_table"])
    metric = Target.of(data["target"]).metric(record["metric"])
    keys = [key_of(part, metric.name) for part in ("train", "val", "test")]
    show = percent if metric.share else number
    kept = [row["forgot_to"] for row in result.generations if row.get("forgot_to") is not None]
    aside = " (forgot to: accuracy)" if kept else ""
    print("" if metric.name == "accuracy" else f"\n{metric.words}{aside}:")
    print("generation  epochs  forgot to  training   validation (best)         test (best)")
    for row in result.generations:
        last, best = row["last"], row.get("best", {})
        forgot = percent(row.get("forgot_to"))
        val, test = (f"{show(last.get(key))} ({show(best.get(key))})" for key in keys[1:])
        fitted = show(last.get(keys[0]))
        print(f"{row['generation']:>10}  {row['epochs']:>6}  {forgot:>9}  {fitted:>8}  {val:>18}  {test:>18}")
    if kept and min(kept) > 0.9:
        print("note: nothing was forgotten: the training accuracy right after forgetting was", percent(min(kept)))
    if note := not_relearned([row["last"].get(keys[0]) for row in result.generations], metric):
        print(f"note: {note}")
    print(f"\n{result.steps} steps in {result.seconds:.1f} s; kept in {result.folder}")


def not_relearned(ends: list[float | None], metric: Metric) -> str:
    """What to say where a generation fits its training examples worse than the first, by more than a point.

    >>> from fallow.evaluate.metrics import CLASSES
    >>> not_relearned([1.0, 0.995, 0.44], CLASSES["balanced-accuracy"])[:64]
    'generation 3 ended with a training balanced accuracy of 44.0 %, '
    >>> not_relearned([1.0, 0.995], CLASSES["accuracy"])
    ''
    """
    from fallow.evaluate.relearning import failed_generation

    worst = failed_generation(ends, metric)
    if worst is None:
        return ""
    first = next(end for end in ends if end is not None)
    return (
        f"generation {worst} ended with a training {metric.words} of {percent(ends[worst - 1])}, the first with "
        f"{percent(first)}: its relearning failed, which says nothing about forgetting; try longer generations, or "
        "forget less"
    )


def percent(value: float | None) -> str:
    """A share, or a dash."""
    return "-" if value is None else f"{100 * value:.1f} %"


def as_split(text: str) -> str | int | float:
    """2 is a number of blocks, 0.5 a share of them, anything else a path."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
