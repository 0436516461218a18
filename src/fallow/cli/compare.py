"""``fallow compare DATA``: which method generalises best on this data, with evidence."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fallow.base.errors import RequestError, WorkError
from fallow.cli import options
from fallow.cli.wrapper import answer, working

if TYPE_CHECKING:
    from fallow.comparison.run import Comparison


def compare(
    data: Annotated[
        list[str] | None, typer.Argument(help="bundled names (digits, synthetic:alpha=0.5) or paths, one or more")
    ] = None,
    methods: Annotated[
        str | None, typer.Option(help="names with settings, separated by commas or spaces: 'llf,seal:scale=0.1'")
    ] = None,
    models: Annotated[
        str | None, typer.Option(help="names with settings: auto,lite0; auto is chosen by the data")
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="at most this many per method (default 20; 4 with --quick)")] = None,
    seed: Annotated[int | None, typer.Option(help="the first seed")] = None,
    same: Annotated[
        float | None,
        typer.Option(help="differences up to this count as none, in points or the metric's unit (0.5 points)"),
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="plan the race to fit into this time")] = None,
    prove_worse: Annotated[
        bool, typer.Option("--prove-worse", help="keep running losers until they are proven worse")
    ] = False,
    tune: Annotated[
        int | None,
        typer.Option(help="try this many settings for each runner, controls included, on validation (0: none)"),
    ] = None,
    folds: Annotated[
        int | None,
        typer.Option(help="cross-validation with this many folds; default: a random test part for each seed"),
    ] = None,
    labels: Annotated[
        bool,
        typer.Option("--labels", help="also train on 25, 50 and 75 % of the labels: what would more of them bring?"),
    ] = False,
    no_refit: Annotated[
        bool,
        typer.Option(
            "--no-refit", help="keep the winner as judged; by default it is retrained on all labels at the end"
        ),
    ] = False,
    plan: Annotated[Path | None, typer.Option(help="a TOML file; flags override it")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="a first look: four seeds, a quarter of the epochs")] = False,
    budget: Annotated[
        str | None, typer.Option(help="what is equal: passes (forward-backward, default) or steps")
    ] = None,
    score: Annotated[str | None, typer.Option(help="which epoch counts: the last, or the best on validation")] = None,
    train: options.Train = None,
    val: Annotated[float | None, typer.Option(help="share of the training examples for validation (0.2)")] = None,
    size: options.Size = None,
    input_size: options.InputSize = None,
    as_: options.As = None,
    groups: options.Groups = None,
    target: options.Target = None,
    drop: options.Drop = None,
    strict: Annotated[bool, typer.Option("--strict", help="refuse a folder with unreadable images")] = False,
    weights: Annotated[Path | None, typer.Option(help="pretrained weights from which every method starts")] = None,
    tasks: Annotated[
        str | None, typer.Option(help="for methods that learn from tasks: 'ways=5,shots=1,per_epoch=500'")
    ] = None,
    generations: Annotated[
        int | None, typer.Option(help="number of generations, the first, ordinary one included (4)")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="epochs per generation; default by the data")] = None,
    batch_size: Annotated[int | None, typer.Option(help="examples per step; default by the data")] = None,
    optimizer: Annotated[str | None, typer.Option(help="sgd or adamw")] = None,
    lr: Annotated[float | None, typer.Option(help="the initial learning rate; default by the data")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="weight decay; default by the data")] = None,
    metric: options.Metric = None,
    label_smoothing: Annotated[float | None, typer.Option(help="label smoothing; default by the data")] = None,
    augment: options.Augment = None,
    split: Annotated[str | None, typer.Option(help="where late layers begin: auto, layer3, 2 (blocks) or 0.5")] = None,
    freeze: options.Freeze = None,
    redraw_from: options.RedrawFrom = "weights",
    settings: Annotated[
        str | None, typer.Option("--set", help="other training settings: 'clip=1,schedule=constant'")
    ] = None,
    engine: options.Engine = "local",
    address: options.Address = None,
    workers: options.Workers = None,
    device: options.Device = "auto",
    transfer_to: Annotated[
        list[str] | None, typer.Option(help="other data on which every method's features are probed; may be repeated")
    ] = None,
    diagnose: Annotated[
        bool, typer.Option("--diagnose", help="also say why in the report: curvature, depth, margins, flatness")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="the comparison's folder; default: comparisons/NAME[-quick]")] = None,
    as_json: options.Json = False,
) -> None:
    """Compare methods on DATA at equal compute, and say with statistics which helps.

    A race over seeds: a method that is decided stops running. Interrupted, the same command resumes it; asked for
    more methods or seeds, it runs what is missing.
    """
    from fallow.base.spec import parse
    from fallow.cli.train import as_split
    from fallow.comparison.plan import QUICK_SEEDS, Plan, default_folder, networks, split_names

    named = None if models is None else split_names(models)
    entered = None if methods is None else split_names(methods)
    asked: dict[str, Any] = Plan.read(plan, [*(named or ()), *networks(entered or ())]) if plan is not None else {}
    flags = {
        "data": data, "methods": entered, "models": named, "seeds": seeds,
        "seed": seed, "same": same, "minutes": minutes, "prove_worse": prove_worse or None, "tune": tune,
        "folds": folds, "labels": labels or None, "refit": False if no_refit else None, "quick": quick or None,
        "budget": budget, "score": score, "train": train, "val": val, "size": size, "strict": strict or None,
        "as_": as_, "groups": groups, "target": target, "drop": drop,
        "weights": None if weights is None else str(weights),
        "tasks": None if tasks is None else parse(f"tasks:{tasks}")[1],
    }  # fmt: skip
    asked |= {key: value for key, value in flags.items() if value is not None}
    if quick or minutes is not None or train is not None:
        asked.pop("recipes", None)  # the file's were for another length
    training = {
        "generations": generations, "epochs": epochs, "batch_size": batch_size, "optimizer": optimizer, "lr": lr,
        "weight_decay": weight_decay, "label_smoothing": label_smoothing, "augment": augment, "metric": metric,
        "input_size": input_size,
        "redraw_from": None if redraw_from == "weights" else redraw_from,
        **{key: as_split(given) for key, given in (("split", split), ("freeze", freeze)) if given is not None},
        **({} if settings is None else parse(f"set:{settings}")[1]),
    }  # fmt: skip
    changed = {key: value for key, value in training.items() if value is not None}
    if changed and isinstance(asked.setdefault("settings", {}), dict):
        asked["settings"] |= changed
    if "data" not in asked:
        raise RequestError("there is no data to compare on: fallow compare DATA, or --plan FILE with data in it")
    if asked.get("quick") and "seeds" not in asked:
        asked["seeds"] = QUICK_SEEDS
    whole = Plan.of(**asked)
    folder = out or default_folder(whole)

    import joblib

    from fallow import comparison as package
    from fallow.cli import comparing
    from fallow.cli.display import say
    from fallow.cli.live import Live
    from fallow.cli.verdicts import verdicts
    from fallow.comparison.run import describe

    with working(folder), Live() as live:

        def began(comparison: Comparison) -> None:
            comparing.introduce(comparison, (workers or joblib.cpu_count()) if engine == "local" else None)
            live.line = lambda outcome: comparing.line(comparison, outcome.run)
            live.table = lambda _: comparing.table(comparison)

        def diagnosing(now: str, share: float) -> None:
            once = None if share else "diagnosing the models of the first seed"
            live.say(f"diagnosing: {100 * share:.0f} % done, {now}", once)

        done = package.execute(
            whole, folder, engine=engine, address=address, workers=workers, device=device, diagnose=diagnose,
            transfer_to=transfer_to or (),
            began=began, told=say, watch=live.show, diagnosing=diagnosing,
        )  # fmt: skip
    findings = done.findings()
    answer(describe(done, findings), as_json, lambda: verdicts(done, findings))
    entries = done.entries.values()
    if failed := [entry.reason for entry in entries if entry.reason is not None]:
        many = "every run" if len(failed) == len(entries) else f"{len(failed)} of {len(entries)} runs"
        raise WorkError(f"{many} failed, the first because: {failed[0]}")
