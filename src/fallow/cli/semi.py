"""``fallow semi DATA``: few labels, many images; which of them the network learned to trust."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fallow.base.errors import RequestError, WorkError
from fallow.cli import options
from fallow.cli.train import percent
from fallow.cli.wrapper import answer, free_folder, working

if TYPE_CHECKING:
    from fallow.semi import Study


def semi(
    data: Annotated[str, typer.Argument(help="labelled images: a bundled name (digits) or a path")],
    labels: Annotated[
        int | None, typer.Option(help="labels to keep, balanced over the classes; the other images become unlabelled")
    ] = None,
    method: Annotated[
        str, typer.Option(help="supervised, fixmatch or confidence, with settings: fixmatch:threshold=0.9")
    ] = "fixmatch",
    val: Annotated[int, typer.Option(help="validation labels; the confidence network learns from them")] = 300,
    images: Annotated[int | None, typer.Option(help="keep this many of DATA's images as unlabelled ones")] = None,
    unlabelled: Annotated[
        str | None, typer.Option(help="more unlabelled images: a folder of images, a .npz file")
    ] = None,
    ood: Annotated[str | None, typer.Option(help="images of other classes to mix in: a folder, .npz or name")] = None,
    ood_classes: Annotated[
        str | None, typer.Option(help="classes of DATA to treat as foreign instead, separated by commas")
    ] = None,
    ood_share: Annotated[float, typer.Option(help="share of the unlabelled images that are foreign")] = 0.5,
    size: options.Size = None,
    as_: options.As = None,
    groups: options.Groups = None,
    model: Annotated[
        str, typer.Option(help="the classifier; for a GPU: wideresnet --steps 512 --epochs 200")
    ] = "scnn:width=8,dense=64",
    network: Annotated[str, typer.Option(help="the confidence network; default: like the model")] = "",
    epochs: options.Epochs = 20,
    steps: Annotated[int, typer.Option(help="steps per epoch")] = 50,
    batch_size: Annotated[int, typer.Option(help="labelled images per step")] = 64,
    lr: options.Rate = 0.03,
    augment: Annotated[str, typer.Option(help="the weak augmentation: auto (shifts), or flip+reflect")] = "auto",
    weight_decay: options.Decay = 5e-4,
    baseline: Annotated[
        bool, typer.Option("--baseline/--no-baseline", help="also train on the labels alone, for comparison")
    ] = True,
    controls: Annotated[
        bool,
        typer.Option(
            "--controls", help="also run the controls that a confidence network's result must be compared with"
        ),
    ] = False,
    engine: options.Engine = "local",
    address: options.Address = None,
    workers: options.Workers = None,
    seed: options.Seed = 0,
    out: Annotated[Path | None, typer.Option(help="the study's folder; default: the next free one in runs/")] = None,
    device: options.Device = "auto",
    as_json: options.Json = False,
) -> None:
    """Train on a few labelled images of DATA and many unlabelled ones, and show what the unlabelled ones added."""
    import torch

    from fallow.cli.display import say
    from fallow.cli.live import Live
    from fallow.semi import StudyPlan, study

    plan = StudyPlan(
        data=data, method=method, labels=labels, val=val, images=images, unlabelled=unlabelled, ood=ood,
        ood_classes=ood_classes, ood_share=ood_share, size=size, as_=as_, groups=groups, model=model,
        network=network, epochs=epochs, steps=steps, batch_size=batch_size, lr=lr,
        weight_decay=weight_decay, augment=augment, seed=seed,
    )  # fmt: skip
    if controls and plan.kind != "confidence":
        raise RequestError(f"--controls is for --method confidence, and this is {plan.kind}: leave it out")
    if network and plan.kind != "confidence":
        raise RequestError(f"--network is for --method confidence, and this is {plan.kind}: leave it out")
    folder = out or free_folder(plan.data, plan.kind, seed)
    gpus = 0 if device == "cpu" else torch.cuda.device_count()
    with working(folder, resumes="the same command with --out {folder} resumes it"), Live() as live:
        done = study(
            plan, folder, baseline=baseline, controls=controls, engine=engine, address=address,
            workers=gpus if workers is None and gpus else workers, device=device,
            watch=live.show if sys.stderr.isatty() else None, told=say,
        )  # fmt: skip
    answer(done.describe() | {"out": str(folder)}, as_json, lambda: _report(done))
    if done.failed:
        name, reason = next(iter(done.failed.items()))
        raise WorkError(f"{len(done.failed)} of the runs failed, first {name}: {reason}")
    if done.main.ran_away:
        raise WorkError(
            "the confidence weights diverged: the meta-updates ended there and the best network was kept, "
            f"with everything else, in {folder}; try form=cosine or a smaller rate"
        )


def _report(done: Study) -> None:
    """What was trained, and what came out."""
    from fallow.semi.page import doubt, sentence

    sizes = done.data.describe()["sizes"]
    print(
        f"{done.data.name}: {sizes['train']} labels, {sizes['val']} validation labels, {sizes['unlabelled']} "
        f"unlabelled images of {len(done.data.classes)} classes; {done.plan.model}"
    )
    for note in done.data.notes:
        print(f"note: {note}")
    width = max(map(len, [*done.outcomes, *done.failed]))
    print(f"\n{'trained':{width}}    test  validation  training  AUROC   time")
    for name, o in done.outcomes.items():
        told = "-" if o.auroc is None else f"{o.auroc:.2f}"
        scores = f"{percent(o.test):>6}  {percent(o.val):>10}  {percent(o.train):>8}"
        print(f"{name:{width}}  {scores}  {told:>5}  {o.seconds:>3.0f} s")
    for name, reason in done.failed.items():
        print(f"{name:{width}}  failed: {reason}")
    if done.controlled:
        rows = done.controls()
        width = max(len(row["weights"]) for row in rows)
        print(f"\n{'weights from':{width}}   joint  frozen  AUROC")
        for row in rows:
            told = "-" if row["auroc"] is None else f"{row['auroc']:.2f}"
            print(f"{row['weights']:{width}}  {percent(row['joint']):>6}  {percent(row['frozen']):>6}  {told:>5}")
        print("Without weights, joint means that the validation labels are trained on too.")
    print("", *filter(None, [sentence(done), doubt(done)]), f"report: {done.folder / 'semi.html'}", sep="\n")
