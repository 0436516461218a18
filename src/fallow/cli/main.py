"""``fallow``: the verbs, and what every one of them does with errors."""

from __future__ import annotations

import os
import sys

import typer

from fallow.cli.catalogue import catalogue
from fallow.cli.train import train
from fallow.core.errors import FallowError

app = typer.Typer(
    name="fallow",
    help="Train networks that generalise when data is scarce.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("train")(train)
app.command("list")(catalogue)


@app.callback()
def fallow() -> None:
    """Train networks that generalise when data is scarce."""


def main() -> None:
    """Run the command line: exit code 0 done, 1 the work failed, 2 the request was wrong."""
    try:
        code = app(standalone_mode=False)
    except FallowError as error:
        _say(str(error))
        code = error.exit_code
    except KeyboardInterrupt:
        _say("stopped; the same command with --resume goes on from the last checkpoint")
        code = 130
    except BrokenPipeError:
        os._exit(0)  # whoever read our output has seen enough
    except Exception as error:
        message = getattr(error, "format_message", None)  # typer's own errors: a wrong option or argument
        if message is None:
            raise
        words = " ".join(message().split())
        _say(words if words else "this needs more arguments: see fallow --help")
        code = 2
    sys.exit(code or 0)


def _say(line: str) -> None:
    print(f"fallow: {line}", file=sys.stderr)
