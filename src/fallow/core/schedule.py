"""How the learning rate moves through a generation, as a factor of the initial rate."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from fallow.core.clock import Clock

SCHEDULES = ("cosine", "cosine-7/16", "one-cycle", "constant", "plateau", "multistep")
RISE, LOW = 0.3, 1 / 25  # "one-cycle": the share of the steps in which the rate rises, and where it starts
DROPS, DROP = (0.3, 0.6, 0.8), 0.2  # "multistep": FAM's on SVHN and Fashion-MNIST (section 4.1.3)


@dataclass
class Schedule:
    """The factor at the clock's present step.

    >>> clock = Clock(generations=1, epochs=4, steps=10)
    >>> schedule = Schedule("cosine", warmup=1)
    >>> schedule(clock)
    0.1
    >>> clock.epoch = 2
    >>> round(schedule(clock), 3)
    0.5
    """

    kind: str
    warmup: float = 0.0  # epochs
    plateau: int = 5  # losses observed without a better one before "plateau" halves the rate
    factor: float = field(default=1.0, init=False)
    lowest: float = field(default=math.inf, init=False)
    waited: int = field(default=0, init=False)

    def __call__(self, clock: Clock) -> float:
        """½(1 + cos πt) for cosine, cos(7πt/16) for FixMatch's, 1 for constant, 2⁻ⁿ after n plateaus, and for
        multistep 5⁻ⁿ after n of 30, 60 and 80 % of the epochs.

        Rising linearly in the warm-up. One-cycle (Smith & Topin 2019) has a warm-up of its own: half a cosine up from
        1/25 in the first 30 % of the steps, half a cosine down to 0 in the others.
        """
        factor = self.factor
        if self.kind == "cosine":
            factor = 0.5 * (1 + math.cos(math.pi * clock.progress))
        elif self.kind == "cosine-7/16":
            factor = math.cos(7 / 16 * math.pi * clock.progress)
        elif self.kind == "one-cycle":
            up, down = clock.progress / RISE, (clock.progress - RISE) / (1 - RISE)
            rising = LOW + (1 - LOW) * 0.5 * (1 - math.cos(math.pi * up))
            factor = rising if up < 1 else 0.5 * (1 + math.cos(math.pi * down))
        elif self.kind == "multistep":
            factor = DROP ** sum(clock.epoch >= round(share * clock.epochs, 9) for share in DROPS)
        steps = self.warmup * clock.steps
        done = clock.epoch * clock.steps + clock.step + 1
        return factor * done / steps if done < steps else factor

    def restart(self) -> None:
        """Start again, as at the beginning of a generation."""
        self.factor, self.lowest, self.waited = 1.0, math.inf, 0

    def observe(self, loss: float) -> None:
        """Note the validation loss of an epoch: "plateau" halves the rate when it stops falling."""
        if loss < self.lowest:
            self.lowest, self.waited = loss, 0
        else:
            self.waited += 1
        if self.kind == "plateau" and self.waited >= self.plateau:
            self.factor, self.waited = self.factor / 2, 0

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"factor": self.factor, "lowest": self.lowest, "waited": self.waited}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take it back."""
        self.factor, self.lowest, self.waited = state["factor"], state["lowest"], state["waited"]
