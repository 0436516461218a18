"""``fallow``: the verbs, and what every one of them does with errors."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import redirect_stdout
from io import TextIOWrapper
from typing import Annotated

import typer

from fallow.base.errors import FallowError, plain_warnings
from fallow.base.names import visible
from fallow.cli import display
from fallow.cli.atlas import atlas
from fallow.cli.catalogue import catalogue
from fallow.cli.compare import compare
from fallow.cli.diagnose import diagnose
from fallow.cli.export import export
from fallow.cli.fewshot import fewshot
from fallow.cli.predict import predict
from fallow.cli.reproduce import reproduce
from fallow.cli.semi import semi
from fallow.cli.train import train
from fallow.cli.transfer import transfer
from fallow.cli.tune import tune

app = typer.Typer(
    name="fallow",
    help="Train networks that generalise when data is scarce.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("compare")(compare)
app.command("atlas")(atlas)
app.command("train")(train)
app.command("semi")(semi)
app.command("predict")(predict)
app.command("export")(export)
app.command("diagnose")(diagnose)
app.command("transfer")(transfer)
app.command("tune")(tune)
app.command("fewshot")(fewshot)
app.command("reproduce")(reproduce)
app.command("list")(catalogue)


def _version(asked: bool) -> None:
    if asked:
        from fallow import __version__

        print(f"fallow {__version__}")
        raise typer.Exit


@app.callback()
def fallow(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="print the version and exit")
    ] = False,
    quiet: Annotated[
        bool,
        typer.Option("--quiet", help="no progress and no remarks on standard error; may come anywhere in the command"),
    ] = False,
) -> None:
    """Train networks that generalise when data is scarce."""
    display.QUIET = quiet


def main() -> None:
    """Run the command line: exit code 0 done, 1 the work failed, 2 the request was wrong."""
    plain_warnings()
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started us; the next file would take its number
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show "…" is no reason to fail
    try:
        words = sys.argv[1:] or ["--help"]
        if "--quiet" in words:
            words = ["--quiet", *(word for word in words if word != "--quiet")]
        with redirect_stdout(display.Visible(sys.stdout)):
            code = app(words, prog_name="fallow", standalone_mode=False)
        if code == 130:  # typer has caught the Ctrl-C itself
            _say("stopped")
    except FallowError as error:
        _say(str(error))
        code = error.exit_code
    except BrokenPipeError:
        os._exit(0)  # whoever read our output has seen enough
    except OSError as error:
        long = error.errno == errno.ENAMETOOLONG  # only a request has such names
        _say(f"{str(error.filename or 'the system')[:200]}: {error.strerror or error}")
        code = 2 if long else 1
    except Exception as error:
        message = getattr(error, "format_message", None)  # typer's own errors: a wrong option or argument
        if message is None:
            raise
        verb = getattr(getattr(error, "ctx", None), "command_path", "fallow")
        _say(f"{message().rstrip('.')} (see {verb} --help)")
        code = 2
    sys.exit(code or 0)


def _say(text: str) -> None:
    print("fallow:", visible(" ".join(text.split())), file=sys.stderr)
