"""``fallow transfer RUN… --to DATA``: what networks are worth on other data, by probes and few-shot episodes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fallow.base.errors import RequestError
from fallow.base.names import slug
from fallow.cli import options
from fallow.cli.wrapper import answer, working

if TYPE_CHECKING:
    from fallow.transfers.transfer import Transfer


def transfer(
    runs: Annotated[
        list[str], typer.Argument(help="folders of runs or comparisons, or pretrained networks: lite0, hf:…, timm:…")
    ],
    to: Annotated[list[str] | None, typer.Option("--to", help="data to transfer to; may be repeated")] = None,
    protocol: Annotated[
        str | None,
        typer.Option(
            help="logistic (default), ridge (default of numbers), nearest, neighbours or seal; with --shots cdfsl "
            "(default), ridge, logistic or nearest"
        ),
    ] = None,
    shots: Annotated[
        str | None, typer.Option(help="few-shot episodes with this many examples per class: 1,5,20,50")
    ] = None,
    ways: Annotated[int, typer.Option(help="classes per episode")] = 5,
    queries: Annotated[int, typer.Option(help="query examples per class of an episode")] = 15,
    episodes: Annotated[int | None, typer.Option(help="number of episodes (600; 40 with --adapt)")] = None,
    adapt: Annotated[str | None, typer.Option(help="affine: also fine-tune the scales and shifts of the norms")] = None,
    layer: Annotated[
        str | None, typer.Option(help="probe the output of this block; several separated by commas, or all")
    ] = None,
    weights: Annotated[Path | None, typer.Option(help="weights for the one model that is given by name")] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="a run's own module:factory, named again to be trusted; may be repeated")
    ] = None,
    score: Annotated[str, typer.Option(help="which weights of a run: the last, or the best on validation")] = "last",
    input_size: options.InputSize = None,
    keep: options.Train = None,
    val: options.Val = 0.2,
    size: options.Size = None,
    as_: options.As = None,
    target: options.Target = None,
    groups: options.Groups = None,
    drop: options.Drop = None,
    seed: Annotated[int, typer.Option(help="for the split, the episodes and what learns in them")] = 0,
    out: Annotated[Path | None, typer.Option(help="the folder; default: transfers/NAME")] = None,
    engine: options.Engine = "local",
    address: options.Address = None,
    workers: options.Workers = None,
    device: options.Device = "auto",
    as_json: options.Json = False,
) -> None:
    """Measure what the features of networks are worth on other data.

    Features are computed once and kept in the folder. Interrupted, the same command resumes it; asked for more
    networks, data or shots, it computes what is missing.
    """
    if not to:
        raise RequestError("there is no data to transfer to: fallow transfer RUN --to DATA")
    from fallow.cli.display import say, typed
    from fallow.cli.live import Live
    from fallow.transfers.page import write
    from fallow.transfers.transfer import transfer

    folder = out or Path("transfers") / (slug(Path(runs[0]).resolve().name) or "networks")
    with working(folder), Live() as live:
        found = transfer(
            runs, to, protocol=protocol, shots=_shots(shots), ways=ways, queries=queries, episodes=episodes,
            adapt=adapt, layer=layer, weights=weights, models=model or (), score=score, input_size=input_size,
            train=keep, val=val, size=size, as_=as_, target=target, groups=groups, drop=drop,
            seed=seed, out=folder, engine=engine, address=address,
            workers=workers, device=device, watch=live.show if sys.stderr.isatty() else None,
        )  # fmt: skip
    for name, understood in found.data.items():
        say(f"{name}: {understood}")
    for note in found.notes:
        say(f"note: {note}")
    page = write(found, typed())

    def report() -> None:
        _report(found)
        print(f"report: {page}")

    answer(found.describe(), as_json, report)


def _shots(text: str | None) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in (text or "").replace(",", " ").split())
    except ValueError:
        raise RequestError(f"shots is {text!r}: whole numbers with commas between them, as in 1,5,20") from None


def _report(found: Transfer) -> None:
    """A table for every data set and number of shots, and one sentence."""
    from fallow.transfers.page import head, heading, row, sentences

    findings = found.findings
    for column in findings.columns:
        rows = [head(findings), *(row(findings, entry) for entry in findings.of(column))]
        widths = [max(len(line[i]) for line in rows) for i in range(len(rows[0]))]
        print(f"\n{heading(findings, column)}")
        for line in rows:
            cells = [
                text.ljust(width) if i in (0, len(widths) - 1) else text.rjust(width)
                for i, (text, width) in enumerate(zip(line, widths, strict=True))
            ]
            print("  ".join(cells).rstrip())
    print("", *sentences(findings), sep="\n")
