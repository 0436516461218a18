"""Navigation for all tasks at once against the same task in a gymnasium vector environment, 20 tasks × 20 trajectories.

``steps_vs_gymnasium``: the environments alone, under the same actions; ``sampling_vs_gymnasium``: with a policy of
2 × 100 for every task, called once a step for all of them by both. A ratio is their time over ours. Rewards must
agree first. Beside them stands the CPU time of an iteration of MAML-TRPO, 20 tasks × 20 × 100. Needs the extra ``rl``.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor

from benchmarks.timing import Work, compare, interleave
from fallow import Navigation
from fallow.control.adapting import Acting
from fallow.methods.fewshot.acting import ActingMAML
from fallow.methods.fewshot.fewshot import learner_of
from fallow.training.prepare import prepare

TASKS = 20


class Point(gymnasium.Env):
    """One point on its way to one goal, as anyone would write it."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)

    def __init__(self, goal: Any, clip: float) -> None:
        self.goal, self.clip = goal, clip

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.position = np.zeros(2, np.float32)
        return self.position, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        self.position = self.position + np.clip(action, -self.clip, self.clip)
        away = self.position - self.goal
        return self.position, -float(np.sqrt(away @ away)), False, False, {}


def measure(repetitions: int | None = None) -> dict[str, Any]:
    torch.manual_seed(0)
    place = Navigation()
    ctx = prepare(None, place.changed(per_epoch=1), "maml-trpo", generations=1, epochs=1, batch_size=TASKS)
    method = learner_of(ctx.method)
    assert isinstance(method, ActingMAML)
    drawn = next(iter(ctx.train.epoch(0)))
    goals = drawn.tasks[:, None, :2].expand(-1, place.shots, -1).reshape(-1, 2).numpy()
    theirs = gymnasium.vector.SyncVectorEnv([lambda goal=goal: Point(goal, place.clip) for goal in goals])
    meta = method.learner.meta()["model"]
    policy = Acting(method.learner, {name: p.expand(TASKS, *p.shape) for name, p in meta.items()})
    starts, noise = place.chances(drawn, 0)
    actions = 0.1 * noise
    given = actions.flatten(0, 1).unbind(1)

    def ours_alone() -> Tensor:
        state, total = place.begin(drawn.tasks, starts), torch.zeros(TASKS, place.shots)
        for one in actions.unbind(2):
            state, reward = place.step(state, one)
            total += reward
        return total

    def theirs_alone() -> Tensor:
        theirs.reset(seed=0)
        total = np.zeros(len(goals))
        for one in given:
            _, reward, *_ = theirs.step(one.numpy())
            total += reward
        return torch.from_numpy(total).view(TASKS, -1)

    def ours_acting() -> Tensor:
        return place.rollout(policy, drawn, 0).rewards.sum(-1)

    def theirs_acting() -> Tensor:
        seen, _ = theirs.reset(seed=0)
        total = np.zeros(len(goals))
        chance = noise * torch.exp(policy.log_std)
        for t in range(place.horizon):
            mean = policy.mean(torch.from_numpy(seen).view(TASKS, place.shots, 2))
            seen, reward, *_ = theirs.step((mean + chance[:, :, t]).flatten(0, 1).numpy())
            total += reward
        return torch.from_numpy(total).view(TASKS, -1)

    torch.testing.assert_close(ours_alone().double(), theirs_alone(), atol=1e-3, rtol=0)
    torch.testing.assert_close(ours_acting().double(), theirs_acting(), atol=1e-1, rtol=0)

    def timed(sample: Any) -> Any:
        def ready() -> Work:
            def work() -> int:
                sample()
                return len(goals) * place.horizon

            return work

        return ready

    def iteration() -> Work:
        def work() -> int:
            met = method.live(drawn)
            method.update(ctx, lambda: ctx.backward(met))
            return 1

        return work

    rivals = {"ours": ours_alone, "gymnasium": theirs_alone, "ours, acting": ours_acting,
              "gymnasium, acting": theirs_acting}  # fmt: skip
    times = interleave({name: timed(sample) for name, sample in rivals.items()}, repetitions or 7)
    times |= interleave({"an iteration": iteration}, 2)
    found = compare(
        times,
        {
            "steps_vs_gymnasium": ("gymnasium", "ours"),
            "sampling_vs_gymnasium": ("gymnasium, acting", "ours, acting"),
        },
    )
    speeds = {name: 1e6 / found["microseconds"][name]["cpu"] for name in rivals}
    found["counts"] = {f"steps per CPU second, {name}": round(speed) for name, speed in speeds.items()}
    return found
