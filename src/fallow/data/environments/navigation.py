"""2-D navigation (Finn et al. 2017; L2F's supplement, section D): move a point to a goal that is not shown."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fallow.base.errors import unknown
from fallow.base.numbers import is_finite, require
from fallow.data.environments.base import Environment
from fallow.data.tasks.base import BLOCK

# how far from 0 goals and starts are drawn in either direction: L2F's figure F, (a) to (d)
SETTINGS = {
    "as in training": (0.5, 0.0),
    "other starts": (0.5, 0.5),
    "far goals": (2.0, 0.0),
    "far goals and starts": (2.0, 2.0),
}


class Place(NamedTuple):
    """Where the points are, and where they should go (tasks, trajectories, 2)."""

    position: Tensor
    goal: Tensor


@dataclass(eq=False, kw_only=True)
class Navigation(Environment):
    """A point at s moves by its action a, at most ``clip`` in either direction, and gets −‖s − goal‖.

    In training and validation the start is 0 and goals are from [−.5, .5]²; ``setting`` is where test tasks are from. A
    trajectory goes on when the goal is reached, so that all have ``horizon`` steps.

    >>> tasks = Navigation(shots=4, horizon=5)
    >>> tasks.meet("test", 0, 3).tasks.shape
    torch.Size([3, 4])
    """

    name: str = "navigation"
    shape: tuple[int, ...] = (2,)
    classes: list[str] = field(default_factory=lambda: ["x", "y"])
    clip: float = 0.1
    setting: str = "as in training"

    def __post_init__(self) -> None:
        if self.setting not in SETTINGS:
            raise unknown("setting of navigation", self.setting, SETTINGS)
        require(is_finite(self.clip) and self.clip > 0, "clip", self.clip, "above 0")
        super().__post_init__()

    def block(self, split: str, draw: torch.Generator) -> tuple[Tensor, ...]:
        """Goal and start of every task (tasks, 4)."""
        goal, start = SETTINGS[self.setting if split == "test" else "as in training"]
        far = torch.tensor([goal, goal, start, start])
        return (far * (2 * torch.rand(BLOCK, 4, generator=draw) - 1),)

    def begin(self, tasks: Tensor, starts: Tensor) -> Place:
        goal, start = tasks[:, None].expand(-1, self.shots, -1).split(2, -1)
        return Place(start, goal)

    def observe(self, state: Place) -> Tensor:
        return state.position

    def step(self, state: Place, actions: Tensor) -> tuple[Place, Tensor]:
        position = state.position + actions.clamp(-self.clip, self.clip)
        return Place(position, state.goal), -(position - state.goal).norm(dim=-1)

    def places(self) -> dict[str, Environment]:
        others = [setting for setting in SETTINGS if setting != self.setting]
        return {setting: self.changed(setting=setting) for setting in (self.setting, *others)}

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"clip": self.clip, "setting": self.setting}
