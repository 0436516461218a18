"""A comparison while it runs: a live table on a terminal, a line for each finished run elsewhere."""

from __future__ import annotations

import statistics
import sys
import time
from typing import TYPE_CHECKING, Any

from fallow.cli.display import duration

if TYPE_CHECKING:
    from fallow.comparison.run import Comparison


class Live:
    """Shown on standard error, so that standard output holds the result alone."""

    def __init__(self) -> None:
        self.terminal = sys.stderr.isatty()
        self.live: Any = None
        self.seen: set[str] = set()

    def __enter__(self) -> Live:
        return self

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            self.live.stop()

    def began(self, comparison: Comparison) -> None:
        """Say what will be compared."""
        plan, cells = comparison.plan, comparison.cells
        for source, data in comparison.loaded.items():
            here = [cell for cell in cells if cell.data == source]
            sizes = data.describe()["sizes"]
            settings = comparison.settings(source)
            print(
                f"{comparison.labels[source]}: {sizes['train']} train, {sizes['val']} validation, {sizes['test']} test "
                f"examples of {len(data.classes)} classes; {len(plan.methods)} methods × {plan.seeds} seeds of "
                f"{settings['generations']} × {settings['epochs']} epochs; "
                f"{' and '.join(dict.fromkeys(cell.model for cell in here))}",
                file=sys.stderr,
            )
            for note in data.notes:
                print(f"note: {note}", file=sys.stderr)
        self.seen = set(comparison.outcomes)
        if self.seen and len(self.seen) < len(cells):
            print(f"{len(self.seen)} of {len(cells)} runs are done already", file=sys.stderr)
        if self.terminal:
            from rich.console import Console
            from rich.live import Live as RichLive

            self.live = RichLive(console=Console(stderr=True), transient=True, auto_refresh=False)
            self.live.start()

    def show(self, comparison: Comparison) -> None:
        """Show where the comparison stands."""
        if self.live is not None:
            self.live.update(_table(comparison), refresh=True)
            return
        for folder, found in comparison.outcomes.items():
            if folder in self.seen:
                continue
            self.seen.add(folder)
            how = f"failed: {found.reason}" if found.reason else f"test {100 * (found.test_accuracy or 0):.2f} %"
            done, total = comparison.passes()
            print(
                f"[{100 * done / total:3.0f} %{_left(comparison)}] {comparison.labels[found.data]} {found.model} "
                f"{found.method} seed {found.seed}: {how} in {found.seconds:.1f} s",
                file=sys.stderr, flush=True,
            )  # fmt: skip

    def diagnosing(self, now: str, done: float) -> None:
        """Show what is being measured."""
        if self.live is not None:
            from rich.text import Text

            self.live.update(Text(f"diagnosing: {100 * done:.0f} % done, {now}"), refresh=True)
        elif done == 0:
            print("diagnosing the models of the first seed", file=sys.stderr, flush=True)


def _table(comparison: Comparison) -> Any:
    from rich.table import Table
    from rich.text import Text

    done, total = comparison.passes()
    spent = duration(time.monotonic() - comparison.started)
    table = Table(
        title=f"{100 * done / total:.0f} % done in {spent}{_left(comparison)}", title_justify="left", box=None
    )
    table.add_column("method")
    for name in ("seeds", "running", "test accuracy so far", "a run takes"):
        table.add_column(name, justify="right")
    for source in comparison.plan.data:
        if len(comparison.plan.data) > 1:
            table.add_row(Text(comparison.labels[source], "bold"))  # no text from the data is markup
        for method in comparison.plan.methods:
            cells = [cell for cell in comparison.cells if (cell.data, cell.method) == (source, method)]
            found = [comparison.outcomes[cell.folder] for cell in cells if cell.folder in comparison.outcomes]
            scores = [o.test_accuracy for o in found if o.test_accuracy is not None]
            failed = sum(o.reason is not None for o in found)
            running = [
                comparison.progress[cell.folder]
                for cell in cells
                if cell.folder not in comparison.outcomes and comparison.progress.get(cell.folder)
            ]
            table.add_row(
                Text(method),
                f"{len(scores)}/{len(cells)}" + (f" ({failed} failed)" if failed else ""),
                " ".join(f"{100 * share:.0f} %" for share in running),
                f"{100 * statistics.fmean(scores):.2f} %" if scores else "",
                duration(statistics.fmean(o.seconds for o in found)) if found else "",
            )
    return table


def _left(comparison: Comparison) -> str:
    left = comparison.seconds_left()
    return "" if left is None else f", {duration(left)} left"
