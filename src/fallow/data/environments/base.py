"""What an environment is: numbered tasks, and a way to act in all of them at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from fallow.base.errors import RequestError
from fallow.base.numbers import MOST, require_whole
from fallow.base.seeds import mix
from fallow.data.targets import Numbers, Target
from fallow.data.tasks.base import SPLITS, Tasks, TaskStream

CHANCE = 11  # names the random stream of what happens in a task


class Drawn(NamedTuple):
    """Tasks (tasks, …) of a split, and what decides the chances in each: the seed, and its number."""

    tasks: Tensor
    split: str
    seed: int
    numbers: range


class Trajectories(NamedTuple):
    """What policies saw, did and got: (tasks, trajectories, horizon, …), with the policies' output at every state."""

    observations: Tensor
    actions: Tensor
    rewards: Tensor
    outputs: Tensor

    @property
    def returns(self) -> Tensor:
        """Mean undiscounted return of every task."""
        return self.rewards.sum(-1).mean(-1)


class Policy(Protocol):
    """What acts: the mean of the next action, around which it is normal with the same deviation in all states."""

    log_std: Tensor

    def mean(self, observations: Tensor) -> Tensor:
        """Mean actions (tasks, trajectories, actions) for observations (tasks, trajectories, …)."""


@dataclass(eq=False, kw_only=True)
class Environment(Tasks):
    """A distribution of tasks to act in; ``shots`` trajectories of ``horizon`` steps are seen before an inner step.

    All trajectories have the same length. What happens in task number n of a split is a function of (seed, split, n)
    and of the inner step alone: methods meet the same goals, starts and noise, whatever the meta-batch.
    """

    classes: list[str] = field(default_factory=list)  # the numbers of an action
    loss: Any = None  # policies are judged by returns
    model: str = "mlp:hidden=100,100,init=xavier"
    shots: int = 20
    horizon: int = 100
    per_epoch: int = 10
    val_tasks: int = 20
    test_tasks: int = 40

    def __post_init__(self) -> None:
        for key in ("shots", "horizon"):
            require_whole(key, getattr(self, key), 1, MOST)
        if self.shots * self.horizon < 2:
            raise RequestError("one trajectory of one step shows nothing: give more shots, or a longer horizon")

    @property
    def target(self) -> Target:
        return Numbers(self.classes)

    def starts(self, draw: torch.Generator) -> Tensor:
        """The chance in where the trajectories of a task begin (shots, …)."""
        return torch.empty(self.shots, 0)

    def begin(self, tasks: Tensor, starts: Tensor) -> Any:
        """The state in which all trajectories of all tasks begin."""
        raise NotImplementedError

    def observe(self, state: Any) -> Tensor:
        """What the policies see (tasks, trajectories, …)."""
        raise NotImplementedError

    def step(self, state: Any, actions: Tensor) -> tuple[Any, Tensor]:
        """The next state, and the rewards (tasks, trajectories)."""
        raise NotImplementedError

    def places(self) -> dict[str, Environment]:
        """The distributions of test tasks by which a policy is judged, the environment's own first."""
        return {self.name: self}

    def chances(self, drawn: Drawn, step: int) -> tuple[Tensor, Tensor]:
        """Starts (tasks, shots, …) and the noise of all actions (tasks, shots, horizon, actions) before a step."""
        starts, noise = [], []
        for number in drawn.numbers:
            draw = torch.Generator().manual_seed(mix(drawn.seed, CHANCE, SPLITS.index(drawn.split), number, step))
            starts.append(self.starts(draw))
            noise.append(torch.randn(self.shots, self.horizon, len(self.classes), generator=draw))
        return torch.stack(starts), torch.stack(noise)

    @torch.no_grad()
    def rollout(self, policy: Policy, drawn: Drawn, step: int) -> Trajectories:
        """Let the policies act in their tasks, for as many trajectories as they see before inner step ``step``."""
        starts, noise = (chance.to(drawn.tasks) for chance in self.chances(drawn, step))
        noise = noise * torch.exp(policy.log_std)
        state = self.begin(drawn.tasks, starts)
        seen, means, rewards = [], [], []
        actions = torch.empty_like(noise)
        for t, away in enumerate(noise.unbind(2)):
            seen.append(self.observe(state))
            means.append(policy.mean(seen[-1]))
            torch.add(means[-1], away, out=actions[:, :, t])
            state, reward = self.step(state, actions[:, :, t])
            rewards.append(reward)
        mean = torch.stack(means, 2)
        outputs = torch.cat([mean, policy.log_std.expand_as(mean)], -1)
        return Trajectories(torch.stack(seen, 2), actions, torch.stack(rewards, 2), outputs)

    @property
    def streams(self) -> type[TaskStream]:
        return EnvironmentStream

    def meet(self, split: str, first: int, count: int, seed: int | None = None) -> Drawn:
        """The tasks ``first`` to ``first + count`` of a split, the same ones at every call."""
        (tasks,) = self._rows(split, first, count, seed)
        return Drawn(tasks, split, self.seed if seed is None else seed, range(first, first + count))

    def understood(self, augment: str = "none") -> str:
        return (
            f"{self.name}: {self.shots} trajectories of {self.horizon} steps a task; {self.val_tasks} tasks for "
            f"validation and {self.test_tasks} for test"
        )

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"horizon": self.horizon}


@dataclass
class EnvironmentStream(TaskStream):
    """Meta-batches of tasks to act in; what happens there depends on the policy, and so is not here."""

    def epoch(self, index: int, start: int = 0) -> Iterator[Drawn]:  # type: ignore[override]
        begin, end = self.mine(self.batch_size)
        for step in range(index * self.steps + start, (index + 1) * self.steps):
            yield self._met(step * self.batch_size + begin, end - begin, self.seed)

    def ordered(self) -> Iterator[Drawn]:  # type: ignore[override]
        begin, end = self.mine(self.batch_size if self.count is None else self.count)
        for first in range(begin, end, self.batch_size):
            yield self._met(first, min(self.batch_size, end - first), None)

    def _met(self, first: int, count: int, seed: int | None) -> Drawn:
        assert isinstance(self.tasks, Environment)
        drawn = self.tasks.meet(self.split, first, count, seed)
        return drawn._replace(tasks=drawn.tasks.to(self.device, self.kind))
