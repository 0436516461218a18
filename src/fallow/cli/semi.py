"""``fallow semi DATA``: few labels, many images; which of them the network learned to trust."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fallow.base.errors import RequestError, Stopped, WorkError
from fallow.cli.train import free_folder, percent

if TYPE_CHECKING:
    from fallow.semi import Study


def semi(
    data: Annotated[str, typer.Argument(help="labelled images: a bundled name (digits) or a path")],
    labels: Annotated[
        int | None, typer.Option(help="keep this many, balanced over the classes; the other images become unlabelled")
    ] = None,
    method: Annotated[
        str, typer.Option(help="supervised, fixmatch or confidence, with settings: fixmatch:threshold=0.9")
    ] = "fixmatch",
    val: Annotated[int, typer.Option(help="validation labels; the confidence network learns from them")] = 300,
    images: Annotated[int | None, typer.Option(help="keep this many of DATA's images as unlabelled ones")] = None,
    unlabelled: Annotated[
        str | None, typer.Option(help="more unlabelled images: a folder of PNG or JPEG, a .npz file")
    ] = None,
    ood: Annotated[str | None, typer.Option(help="images of other classes to mix in: a folder, .npz or name")] = None,
    ood_classes: Annotated[
        str | None, typer.Option(help="or classes of DATA, by commas, that are to be foreign ones")
    ] = None,
    ood_share: Annotated[float, typer.Option(help="of the unlabelled images that are foreign")] = 0.5,
    size: Annotated[int | None, typer.Option(help="side of the images of a folder, in pixels")] = None,
    model: Annotated[
        str, typer.Option(help="the classifier; for a GPU: wideresnet --steps 512 --epochs 200")
    ] = "scnn:width=8,dense=64",
    network: Annotated[str, typer.Option(help="the confidence network; default: like the model")] = "",
    epochs: Annotated[int, typer.Option()] = 20,
    steps: Annotated[int, typer.Option(help="in an epoch")] = 50,
    batch_size: Annotated[int, typer.Option(help="labelled images in a step")] = 64,
    lr: Annotated[float, typer.Option()] = 0.03,
    weight_decay: Annotated[float, typer.Option()] = 5e-4,
    baseline: Annotated[
        bool, typer.Option("--baseline/--no-baseline", help="train on the labels alone too, to compare with")
    ] = True,
    controls: Annotated[
        bool, typer.Option("--controls", help="what the number of a confidence network must be compared with")
    ] = False,
    engine: Annotated[str, typer.Option(help="local, ray or dask")] = "local",
    address: Annotated[str | None, typer.Option(help="of the cluster; without one, it is started here")] = None,
    workers: Annotated[int | None, typer.Option(help="trainings side by side; default: one per GPU or core")] = None,
    seed: Annotated[int, typer.Option()] = 0,
    out: Annotated[Path | None, typer.Option(help="the study's folder; default: the next free one in runs/")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="go on with the study in --out, as it does anyway")] = False,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, mps or auto")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object on standard output")] = False,
) -> None:
    """Train on a few labels of DATA and many images without, and see what the unlabelled ones brought."""
    if resume and out is None:
        raise RequestError("--resume needs --out: the folder of the study to go on with")
    import torch

    from fallow.cli.live import Live
    from fallow.semi import Plan, study

    plan = Plan(
        data=data, method=method, labels=labels, val=val, images=images, unlabelled=unlabelled, ood=ood,
        ood_classes=ood_classes, ood_share=ood_share, size=size, model=model, network=network, epochs=epochs,
        steps=steps, batch_size=batch_size, lr=lr, weight_decay=weight_decay, seed=seed,
    )  # fmt: skip
    if controls and plan.kind != "confidence":
        raise RequestError(f"--controls are those of --method confidence, and this is {plan.kind}")
    folder = out or free_folder(plan.data, plan.kind, seed)
    gpus = 0 if device == "cpu" else torch.cuda.device_count()
    try:
        with Live() as live:
            done = study(
                plan, folder, baseline=baseline, controls=controls, engine=engine, address=address,
                workers=gpus if workers is None and gpus else workers, device=device,
                watch=live.show if sys.stderr.isatty() else None,
            )  # fmt: skip
    except KeyboardInterrupt:
        raise Stopped(f"stopped: the same command with --out {folder} goes on") from None
    if as_json:
        print(json.dumps(done.describe() | {"out": str(folder)}, ensure_ascii=False))
    else:
        _report(done)
    if done.failed:
        name, reason = next(iter(done.failed.items()))
        raise WorkError(f"trainings that failed: {len(done.failed)}, first {name}: {reason}")
    if done.main.ran_away:
        raise WorkError(
            "the confidence weights ran away: the meta-updates ended there and the best network was kept, "
            f"with everything else, in {folder}; form=cosine or a smaller rate would do"
        )


def _report(done: Study) -> None:
    """What was trained, and what came out."""
    from fallow.semi.page import sentence

    sizes = done.data.describe()["sizes"]
    print(
        f"{done.data.name}: {sizes['train']} labels, {sizes['val']} validation labels, {sizes['unlabelled']} "
        f"unlabelled images of {len(done.data.classes)} classes; {done.plan.model}"
    )
    for note in done.data.notes:
        print(f"note: {note}")
    width = max(map(len, [*done.outcomes, *done.failed]))
    print(f"\n{'training':{width}}    test  validation  AUROC   time")
    for name, o in done.outcomes.items():
        told = "-" if o.auroc is None else f"{o.auroc:.2f}"
        print(f"{name:{width}}  {percent(o.test):>6}  {percent(o.val):>10}  {told:>5}  {o.seconds:>3.0f} s")
    for name, reason in done.failed.items():
        print(f"{name:{width}}  failed: {reason}")
    if done.controlled:
        rows = done.controls()
        width = max(len(row["weights"]) for row in rows)
        print(f"\n{'weights from':{width}}   joint  frozen  AUROC")
        for row in rows:
            told = "-" if row["auroc"] is None else f"{row['auroc']:.2f}"
            print(f"{row['weights']:{width}}  {percent(row['joint']):>6}  {percent(row['frozen']):>6}  {told:>5}")
        print("Without weights, joint means: the validation labels are trained on too.")
    print(f"\n{sentence(done)}\nreport: {done.folder / 'semi.html'}")
