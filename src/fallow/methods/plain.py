"""Ordinary training, and the controls that spend the same compute without forgetting anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fallow.core.context import Context
from fallow.core.method import Method
from fallow.core.ranges import choice
from fallow.weights import reset_state


class Normal(Method):
    """Ordinary training for the epochs of one generation ("Normal" in SEAL, table 2)."""

    name = "normal"
    summary = "ordinary training for the epochs of one generation"

    shards = True

    def plan(self, generations: int, epochs: int) -> tuple[int, int]:
        """One generation, however many were asked for."""
        return 1, epochs


class Long(Method):
    """One schedule over the epochs of all generations ("Normal (long)" in SEAL, table 2): as much compute."""

    name = "long"
    summary = "one schedule over the epochs of all generations: the compute-matched control"

    shards = True

    def plan(self, generations: int, epochs: int) -> tuple[int, int]:
        """All epochs in one generation."""
        return 1, generations * epochs


@dataclass(eq=False)
class Restart(Method):
    """Warm restarts (Loshchilov & Hutter 2017, equation 5): the schedule starts again, the weights go on.

    This is what a forgetting method does besides forgetting, so it is the control that isolates the
    forgetting itself.
    """

    name = "restart"
    summary = "the schedule restarts with every generation, nothing else: the control for forgetting itself"
    shards = True
    generational = True
    ranges: ClassVar = {"reset_optimizer": choice(False, True)}

    reset_optimizer: bool = False  # forget momentum and averages too

    def begin_generation(self, ctx: Context) -> None:
        if self.reset_optimizer and ctx.clock.generation > 0:
            reset_state(ctx.optimizer, [p for group in ctx.optimizer.param_groups for p in group["params"]])
