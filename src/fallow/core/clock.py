"""Where training stands: generation, epoch, step. The position says which hooks have run, so it can resume."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass
class Clock:
    """Counts generations of epochs of steps, and goes on from any position.

    A position ``(generation, epoch, step)`` means: ``epoch`` epochs of the generation are complete, and
    ``step`` steps of the next one. At (g, 0, 0) the generation has not begun; with step 0 the epoch has not.

    >>> clock = Clock(generations=2, epochs=3, steps=5, generation=1, epoch=2)
    >>> [(g, e) for g in clock.generations_left() for e in clock.epochs_left()]
    [(1, 2)]
    """

    generations: int
    epochs: int
    steps: int  # in an epoch
    generation: int = 0
    epoch: int = 0
    step: int = 0

    def generations_left(self) -> Iterator[int]:
        """The generations still to run; what is left of the present one comes first."""
        while self.generation < self.generations:
            yield self.generation
            self.generation, self.epoch, self.step = self.generation + 1, 0, 0

    def epochs_left(self) -> Iterator[int]:
        """The epochs of the generation still to run."""
        while self.epoch < self.epochs:
            yield self.epoch
            self.epoch, self.step = self.epoch + 1, 0

    def finish_generation(self) -> None:
        """Let the present epoch be the generation's last."""
        self.epoch = self.epochs - 1

    @property
    def epoch_index(self) -> int:
        """The number of this epoch over all generations: the same batches for every method of a seed."""
        return self.generation * self.epochs + self.epoch

    @property
    def step_index(self) -> int:
        """The number of this step over everything."""
        return self.epoch_index * self.steps + self.step

    @property
    def progress(self) -> float:
        """The share of the present generation that is done, from 0 to 1."""
        return (self.epoch * self.steps + self.step) / (self.epochs * self.steps)

    @property
    def overall(self) -> float:
        """The share of the whole training that is done, from 0 to 1."""
        return (self.generation + self.progress) / self.generations

    def position(self) -> dict[str, int]:
        """Where the clock stands, for a checkpoint."""
        return {"generation": self.generation, "epoch": self.epoch, "step": self.step}

    def move_to(self, position: dict[str, int]) -> None:
        """Stand where a checkpoint was taken."""
        self.generation, self.epoch, self.step = (position[k] for k in ("generation", "epoch", "step"))

    def __str__(self) -> str:
        return f"generation {self.generation + 1}, epoch {self.epoch + 1}, step {self.step + 1}"
