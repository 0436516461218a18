"""How much was forgotten: without this number nobody knows what a forgetting method did."""

from __future__ import annotations

from fallow.core.context import Context

EXAMPLES = 2048  # enough for half a point; more would slow small trainings down


def log_forgetting(ctx: Context) -> float:
    """Log, as ``forgot_to``, the training accuracy right after the forgetting."""
    accuracy = ctx.score(ctx.train, limit=EXAMPLES).accuracy
    ctx.log(forgot_to=accuracy)
    return accuracy if accuracy is not None else 0.0
