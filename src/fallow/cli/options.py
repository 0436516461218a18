"""Options that several verbs share, each with its one meaning and its one line of help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Data = Annotated[str, typer.Argument(help="a bundled name (digits, synthetic:alpha=0.5) or a path")]
Train = Annotated[int | None, typer.Option("--train", help="keep this many training examples")]
Val = Annotated[float, typer.Option(help="share of the training examples for validation")]
Test = Annotated[float, typer.Option(help="share of the examples for testing, where they have no test part")]
As = Annotated[
    str | None, typer.Option("--as", help="what the examples are, if guessed wrong: images, signals, features or texts")
]
Groups = Annotated[
    str | None,
    typer.Option(
        help="what a split keeps together: a column of a table, an array in the .npz, "
        "a separator in file names, or a file"
    ),
]
InputSize = Annotated[int | None, typer.Option(help="pixels per side at which a pretrained network sees images")]
Size = Annotated[int | None, typer.Option(help="resize the images of a folder to this many pixels per side")]
Target = Annotated[
    str | None,
    typer.Option(
        help="for a table, the column to predict, or several, separated by commas; "
        "else classes, numbers, labels or dense, if y leaves it open"
    ),
]
Drop = Annotated[
    str | None,
    typer.Option(
        help="columns of a table to leave out, separated by commas; '' is the one without a name",
        callback=lambda given: "," if given == "" else given,  # to the library, an empty string is no column
    ),
]
Metric = Annotated[
    str | None,
    typer.Option(help="the metric that chooses and judges: balanced-accuracy, auroc, mae, …; default by the target"),
]
Model = Annotated[
    str | None, typer.Option(help="scnn, resnet18:width=16, … or your module:factory; default by the data")
]
Weights = Annotated[Path | None, typer.Option(help="pretrained weights to start from")]
Epochs = Annotated[int, typer.Option(help="epochs of a run")]
BatchSize = Annotated[int, typer.Option(help="examples per step")]
Rate = Annotated[float, typer.Option(help="the initial learning rate")]
Decay = Annotated[float, typer.Option(help="weight decay")]
Smoothing = Annotated[float, typer.Option(help="label smoothing")]
Augment = Annotated[
    str | None,
    typer.Option(help="none, flip, crop, flip+crop, flip+crop+cutout, auto, or try: what helps on validation"),
]
Clip = Annotated[float | None, typer.Option(help="clip the gradient to this norm")]
Split = Annotated[str, typer.Option(help="where late layers begin: layer3, 2 (blocks), 0.5, or auto as in the papers")]
Freeze = Annotated[
    str | None, typer.Option(help="where training begins: head, layer3, 2 (blocks) or 0.5; all before it stays frozen")
]
RedrawFrom = Annotated[
    str, typer.Option(help="what re-drawn parts of a pretrained network become: its weights again, or init (fresh)")
]
Seed = Annotated[int, typer.Option(help="for the split, the initial weights and the order of the batches")]
Resume = Annotated[bool, typer.Option("--resume", help="resume the run in --out")]
Checkpoints = Annotated[float, typer.Option(help="seconds between checkpoints")]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, mps or auto")]
Devices = Annotated[int, typer.Option(help="processes, started by Lightning Fabric")]
Threads = Annotated[int | None, typer.Option(help="CPU threads for torch")]
Engine = Annotated[str, typer.Option(help="where the runs are executed: local, ray or dask")]
Address = Annotated[str | None, typer.Option(help="the address of the cluster; without one, a cluster is started here")]
Workers = Annotated[int | None, typer.Option(help="runs side by side; default: one per core")]
Json = Annotated[bool, typer.Option("--json", help="one JSON object on standard output")]
