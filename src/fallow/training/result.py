"""What a training gives back."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from fallow.base import notebook
from fallow.core.context import Context
from fallow.evaluate.metrics import Metric
from fallow.evaluate.score import key_of
from fallow.models.reading import Reading
from fallow.models.scaled import Scaled
from fallow.training.layout import is_sharded, lay


@dataclass(repr=False)
class Result:
    """What a training gave.

    ``model`` takes examples as the data hold them: the scaling of its inputs is inside, and so it is in the weights
    that are kept; ``network`` is the module that was trained. ``last`` and ``best`` hold the validation and test
    scores after the last epoch and at the best epoch by validation; ``generations`` holds the same for each
    generation, and what it forgot.
    """

    model: nn.Module
    last: dict[str, Any]
    best: dict[str, Any] | None
    best_weights: dict[str, Tensor] | None
    generations: list[dict[str, Any]]
    history: list[dict[str, Any]]
    metric: Metric | None  # what judged, where the problem has one
    seconds: float
    steps: int
    passes: float  # forward and backward over a batch: what a comparison at equal compute counts
    folder: Path | None

    @property
    def network(self) -> nn.Module:
        """The module that was trained, without the scaling of its inputs."""
        return self.model.network if isinstance(self.model, Scaled | Reading) else self.model

    def best_state(self) -> dict[str, Tensor]:
        """The weights that were best on validation, as the model's state; without validation the last."""
        if self.best_weights is None:
            return self.model.state_dict()
        inside = "" if self.network is self.model else "network."
        return self.model.state_dict() | {f"{inside}{name}": w for name, w in self.best_weights.items()}

    def __repr__(self) -> str:
        kept = "" if self.folder is None else f"; {self.folder}"
        return f"{type(self).__name__}({self._judged()}; {self.steps} steps in {self.seconds:.1f} s{kept})"

    def _judged(self) -> str:
        """The test score in words, or the validation score where nothing was kept for the test."""
        part = next((part for part in ("test", "val") if self._shown(self.last, part) != "-"), None)
        if part is None or self.metric is None:
            return f"trained for {len(self.history)} epochs"
        best = "" if self.best is None else f" ({self._shown(self.best, part)} at the best epoch by validation)"
        words = {"test": "test", "val": "validation"}[part]
        return f"{words} {self.metric.words} {self._shown(self.last, part)}{best}"

    def _shown(self, scores: dict[str, Any], part: str) -> str:
        value = None if self.metric is None else scores.get(key_of(part, self.metric.name))
        if value is None or self.metric is None:
            return "-"
        return f"{100 * value:.1f} %" if self.metric.share else f"{value:.4g}"

    def _repr_html_(self) -> str:
        """A row for every generation."""
        names = {"train": "training", "val": "validation", "test": "test"}
        head = ["generation", "epochs", *names.values()]
        rows = [
            [str(row["generation"]), str(row["epochs"]), *(self._shown(row["last"], part) for part in names)]
            for row in self.generations
        ]
        return notebook.table(repr(self), head, rows)

    def describe(self) -> dict[str, Any]:
        """As plain values: what ``result.json`` holds."""
        return {
            "last": self.last,
            "best": self.best,
            "generations": self.generations,
            "steps": self.steps,
            "passes": round(self.passes, 3),
            "seconds": round(self.seconds, 3),
        }


def result_of(ctx: Context) -> Result:
    """Gather the outcome and write it down."""
    best = None
    if ctx.best is not None:
        best = {"generation": ctx.best["generation"]} | ctx.generations[ctx.best["generation"] - 1]["best"]
    result = Result(
        model=ctx.problem.finished(ctx.method.evaluated(ctx)).eval(),  # ready to be asked, norms and dropout included
        last=ctx.generations[-1]["last"] if ctx.generations else {},
        best=best,
        best_weights=ctx.best["weights"] if ctx.best else None,
        generations=ctx.generations,
        history=ctx.history,
        metric=ctx.metric,
        seconds=ctx.seconds,
        steps=sum(record["epochs"] for record in ctx.generations) * ctx.clock.steps,
        passes=ctx.passes,
        folder=ctx.folder.path if ctx.folder else None,
    )
    if ctx.folder is not None and (finished := ctx.folder.result()) is not None:
        result.seconds = finished["seconds"]  # reading a finished run takes time too, but did not train it
    elif ctx.folder is not None:
        ctx.folder.save_weights("last", result.model.state_dict())
        ctx.folder.save_weights("best", result.best_state())
        ctx.folder.save_outputs(ctx.outputs)
        ctx.folder.finish(result.describe())
    if not is_sharded(result.model):
        lay(result.model, channels_last=False)  # as anyone expects weights to lie
    return result
