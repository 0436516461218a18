"""Live progress on a terminal; silence elsewhere."""

from __future__ import annotations

import shlex
import sys
import time
from typing import TYPE_CHECKING, Any, TextIO

from fallow.base.names import visible

if TYPE_CHECKING:
    from fallow.core.context import Context


QUIET = False  # set by --quiet


def say(text: str) -> None:
    """A remark for whoever watches."""
    if not QUIET:
        print(visible(text), file=sys.stderr, flush=True)


class Visible:
    """Standard output, with control characters written out: only progress, on standard error, needs them itself."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Write what a terminal may show."""
        return self.stream.write(visible(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def live() -> bool:
    """Whether somebody watches a terminal, and wants to."""
    return sys.stderr.isatty() and not QUIET


class Progress:
    """One line on standard error: generation, epoch, loss, accuracy, time left."""

    def __init__(self) -> None:
        self.live = live()
        self.bar: Any = None
        self.task: Any = None
        self.since: tuple[float, float] | None = None  # when this process began, and how much was done then

    def __enter__(self) -> Progress:
        if self.live:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            self.bar = Progress(
                TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[left]}"),
                console=Console(stderr=True), transient=True,
            )  # fmt: skip
            self.task = self.bar.add_task("preparing", total=1.0, left="")
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def show(self, ctx: Context) -> None:
        """Show where the training stands."""
        clock, done = ctx.clock, ctx.clock.overall
        if self.since is None:
            self.since = (time.monotonic(), done)
        spent, gained = time.monotonic() - self.since[0], done - self.since[1]
        left = f"{duration(spent / gained * (1 - done))} left" if gained > 0 else ""
        row = ctx.history[-1] if ctx.history else {}
        loss = row.get("train_loss")
        accuracy = row.get("val_accuracy")
        words = [
            f"generation {clock.generation + 1}/{clock.generations}",
            f"epoch {clock.epoch + 1}/{clock.epochs}",
            "climbing" if ctx.disturbed else "",
            f"loss {loss:.3f}" if loss is not None else "",
            f"validation {100 * accuracy:.1f} %" if accuracy is not None else "",
        ]
        self.bar.update(self.task, description="  ".join(filter(None, words)), completed=done, left=left)


def typed() -> str:
    """The command as it was typed, for the page that says how to repeat it."""
    return shlex.join(["fallow", *sys.argv[1:]])


def duration(seconds: float) -> str:
    """Minutes and seconds, with hours where there are any."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
