"""An experiment while it runs: a live table on a terminal, a line for each finished run elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fallow.cli import display
from fallow.cli.display import duration, say

if TYPE_CHECKING:
    from fallow.experiment import Outcome, State


def line(outcome: Outcome) -> str:
    """A run that ended, in words."""
    how = f"failed: {outcome.reason}" if outcome.reason is not None else "done"
    return f"{outcome.run.name}: {how} in {outcome.seconds:.1f} s"


def table(state: State) -> Any:
    """The runs at work."""
    from rich.table import Table
    from rich.text import Text

    shown = Table(title=title(state), title_justify="left", box=None, show_header=False)
    for name, share in state.progress.items():
        shown.add_row(Text(name), f"{100 * share:.0f} %" if share else "")
    failed = sum(outcome.reason is not None for outcome in state.outcomes.values())
    counts = f"{len(state.outcomes)} of {len(state.runs)} runs ended"
    shown.add_row(counts + (f", {failed} of them failed" if failed else ""))
    return shown


def title(state: State) -> str:
    """How much is done, since when, and what is left."""
    done, total = state.cost()
    return f"{100 * done / max(total, 1e-12):.0f} % done in {duration(state.seconds())}{left(state)}"


def left(state: State) -> str:
    """The time left, once there is a pace."""
    seconds = state.seconds_left()
    return "" if seconds is None else f", {duration(seconds)} left"


class Live:
    """Shown on standard error, so that standard output holds the result alone; ``show`` watches an experiment."""

    def __init__(self, line: Callable[[Outcome], str] = line, table: Callable[[State], Any] = table) -> None:
        self.line, self.table = line, table
        self.live: Any = None
        self.begun = False
        self.seen: set[str] = set()  # the runs that were told of

    def __enter__(self) -> Live:
        return self

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            self.live.stop()

    def show(self, state: State) -> None:
        """Show where the experiment stands."""
        if not self.begun:
            self._begin(state)
        if self.live is not None:
            self.live.update(self.table(state), refresh=True)
            return
        for name, outcome in state.outcomes.items():
            if name not in self.seen:
                self.seen.add(name)
                done, total = state.cost()
                told = f"[{100 * done / total:3.0f} %{left(state)}] {self.line(outcome)}"
                say(told)

    def say(self, words: str, once: str | None = None) -> None:
        """Show what else is being done: ``words`` on a terminal, ``once`` as a line elsewhere."""
        if self.live is not None:
            from rich.text import Text

            self.live.update(Text(words), refresh=True)
        elif once is not None:
            say(once)

    def _begin(self, state: State) -> None:
        self.begun, self.seen = True, set(state.outcomes)
        if self.seen:
            say(f"{len(self.seen)} {'run is' if len(self.seen) == 1 else 'runs are'} done already")
        if display.live():
            from rich.console import Console
            from rich.live import Live as RichLive

            self.live = RichLive(console=Console(stderr=True), transient=True, auto_refresh=False)
            self.live.start()
