"""When hyperparameters are updated while weights are trained."""

from __future__ import annotations

from dataclasses import dataclass

from fallow.base.errors import RequestError
from fallow.hypergradients.solution import Solver
from fallow.hypergradients.solvers import Identity


@dataclass(frozen=True)
class MetaSchedule:
    """A meta-update after ``warmup`` steps of training, and after every ``inner`` steps from there on.

    Without a warm-up the first hypergradients belong to weights that are nowhere near a minimum: the weights vanish,
    and the training with them (thesis, section 4.2.1). Afterwards half as many steps are enough.

    >>> schedule = MetaSchedule(warmup=4, inner=2)
    >>> [step for step in range(1, 10) if schedule.due(step)]
    [4, 6, 8]
    """

    warmup: int = 100
    inner: int = 50

    def __post_init__(self) -> None:
        for name, value, least in (("warmup", self.warmup, 0), ("inner", self.inner, 1)):
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise RequestError(f"{name} is {value!r}: it must be a whole number of steps from {least}")

    def due(self, step: int) -> bool:
        """Whether a meta-update follows the ``step``-th step, counted from 1."""
        return step >= max(1, self.warmup) and (step - self.warmup) % self.inner == 0


class T1T2(MetaSchedule):
    """T1-T2 (Luketina et al. 2016): a meta-update by the identity after every step, from the first on."""

    solver: Solver = Identity()

    def __init__(self) -> None:
        super().__init__(warmup=0, inner=1)
