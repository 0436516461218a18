"""The half-cheetah of MuJoCo, told to run in a direction or at a speed that is not shown (Finn et al. 2017).

The body is gymnasium's ``HalfCheetah-v5`` with its 17 observations; trajectories step side by side in
``mujoco.rollout``, in as many threads as torch has.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fallow.base.errors import RequestError
from fallow.data.environments.base import Environment
from fallow.data.tasks.base import BLOCK

SKIP = 5  # steps of physics in one of the policy, as in gymnasium
NOISE = 0.1  # of positions and velocities at the start
EFFORT = 0.05  # what a squared action costs
FASTEST = 2.0  # goal speed
MASS = re.compile(r'settotalmass="([\d.]+)"')


class Running(NamedTuple):
    """The physics of all trajectories (trajectories of all tasks, …), and the goals (tasks, 1)."""

    physics: Any
    goal: Tensor


class Simulator:
    """MuJoCo's model of the body, and what steps many of it; made when first needed, once in a process."""

    def __init__(self) -> None:
        import gymnasium
        import mujoco
        import mujoco.rollout

        body = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets" / "half_cheetah.xml"
        text = body.read_text("utf-8")
        mass = MASS.search(text)
        self.model = mujoco.MjModel.from_xml_string(MASS.sub("", text))
        if mass is not None:  # the attribute is deprecated, and MuJoCo says so whenever it reads it
            mujoco.mj_setTotalmass(self.model, float(mass[1]))
            mujoco.mj_setConst(self.model, mujoco.MjData(self.model))
        self.threads = torch.get_num_threads()
        self.data = [mujoco.MjData(self.model) for _ in range(self.threads)]
        self.roller = mujoco.rollout.Rollout(nthread=self.threads if self.threads > 1 else 0)
        self.positions, self.speeds = self.model.nq, self.model.nv
        self.seconds = SKIP * self.model.opt.timestep
        self.rest = self.data[0].qpos.copy()

    def advance(self, physics: Any, actions: Any) -> Any:
        """The physics (n, 1 + positions + speeds) after ``SKIP`` steps under the same actions (n, actions)."""
        control = np.repeat(actions[:, None], SKIP, 1)
        states, _ = self.roller.rollout(self.model, self.data, physics, control)
        return states[:, -1]


@dataclass(eq=False, kw_only=True)
class HalfCheetah(Environment):
    """Run: the reward is that of the task minus ``EFFORT``·‖a‖², actions within ±1.

    ``goal="direction"`` rewards speed forwards or backwards, ±v; ``"velocity"`` nearness to a speed, −|v − goal|.
    """

    name: str = "halfcheetah-direction"
    shape: tuple[int, ...] = (17,)
    classes: list[str] = field(default_factory=lambda: [f"joint {i}" for i in range(1, 7)])
    horizon: int = 200
    shots: int = 40
    goal: str = "direction"

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            import gymnasium  # noqa: F401
            import mujoco.rollout  # noqa: F401
        except ImportError as error:
            raise RequestError("half-cheetahs need gymnasium and mujoco: pip install 'fallow[rl]'") from error

    @cached_property
    def simulator(self) -> Simulator:
        """What steps the bodies."""
        return Simulator()

    def block(self, split: str, draw: torch.Generator) -> tuple[Tensor, ...]:
        """The goal of every task (tasks, 1): a sign, each as often as the other, or a speed."""
        if self.goal == "direction":
            turns = torch.randint(0, 2, (BLOCK // 2, 1), generator=draw).float()
            return (torch.cat([2 * turns - 1, 1 - 2 * turns], 1).view(BLOCK, 1),)
        return (FASTEST * torch.rand(BLOCK, 1, generator=draw),)

    def starts(self, draw: torch.Generator) -> Tensor:
        """Uniform noise on positions, normal noise on speeds, as in gymnasium."""
        body = self.simulator
        positions = NOISE * (2 * torch.rand(self.shots, body.positions, generator=draw, dtype=torch.float64) - 1)
        speeds = NOISE * torch.randn(self.shots, body.speeds, generator=draw, dtype=torch.float64)
        return torch.cat([positions, speeds], 1)

    def begin(self, tasks: Tensor, starts: Tensor) -> Running:
        physics = starts.flatten(0, 1).double().cpu().numpy()
        physics = np.concatenate([np.zeros((len(physics), 1)), physics], 1)  # time comes first
        physics[:, 1 : 1 + self.simulator.positions] += self.simulator.rest
        return Running(physics, tasks)

    def observe(self, state: Running) -> Tensor:
        seen = torch.from_numpy(state.physics[:, 2:]).to(state.goal)  # all but time and the place along the track
        return seen.view(len(state.goal), self.shots, -1)

    def step(self, state: Running, actions: Tensor) -> tuple[Running, Tensor]:
        bounded = actions.clamp(-1, 1)
        physics = self.simulator.advance(state.physics, bounded.flatten(0, 1).double().cpu().numpy())
        moved = torch.from_numpy(physics[:, 1] - state.physics[:, 1]).to(state.goal).view(actions.shape[:2])
        speed = moved / self.simulator.seconds
        gain = state.goal * speed if self.goal == "direction" else -(speed - state.goal).abs()
        return Running(physics, state.goal), gain - EFFORT * bounded.square().sum(-1)

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"goal": self.goal}
