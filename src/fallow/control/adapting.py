"""The inner loop of a policy: act, learn from what was seen, act again. And how it acts, for all tasks at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.func import functional_call, vmap

from fallow.adaptation.inner import descend, gradients
from fallow.adaptation.learner import Learner, Meta
from fallow.adaptation.objective import Params
from fallow.control.policy import Gaussian

NETWORK = "network."
Experience = Callable[[int, Params], tuple[Tensor, Tensor]]  # step, parameters → observations, judged actions


def adapting(
    learner: Learner, meta: Meta, tasks: int, experience: Experience, *, steps: int, order: int = 2
) -> Iterator[Params]:
    """θ, θ_1, … θ_steps of the tasks: before every step ``experience`` gives what the present policy has seen.

    A learner that attenuates does so by what θ has seen first, and its first step learns from the same: attenuation
    costs no trajectories of its own.
    """
    objective = learner.objective(batched=True)
    params = {n: p if n in learner.shared else p.expand(tasks, *p.shape) for n, p in meta["model"].items()}
    yield params
    for step in range(steps):
        x, y = experience(step, params)
        if step == 0:
            params, _ = learner.attenuated(objective, meta, params, x, y, False)
        found, _ = gradients(objective, params, learner.adapted, x, y, order=order)
        params = descend(params, learner.adapted, found, learner.rates(meta, step))
        yield params


def outputs(learner: Learner, params: Params, observations: Tensor) -> Tensor:
    """The policies' output (tasks, states, …), of each task by its own parameters."""
    axes = {name: None if name in learner.shared else 0 for name in params}
    return vmap(lambda p, x: functional_call(learner.model, p, (x,)), (axes, 0))(params, observations)


class Acting:
    """Means and log-deviations of the actions of many tasks' policies, without a graph, as an environment asks them."""

    def __init__(self, learner: Learner, params: Params) -> None:
        policy = learner.model
        assert isinstance(policy, Gaussian)
        own = {name: p.detach() for name, p in params.items()}
        log_std = own.pop("log_std")
        self.log_std = log_std if "log_std" in learner.shared else log_std[:, None, None]  # (tasks, 1, 1, actions)
        inner = {name.removeprefix(NETWORK): p for name, p in own.items()}
        axes = {name.removeprefix(NETWORK): None if name in learner.shared else 0 for name in own}
        call = vmap(lambda p, x: functional_call(policy.network, p, (x,)), (axes, 0))

        def mean(observations: Tensor) -> Tensor:
            with torch.no_grad():
                return call(inner, observations)

        self.mean = mean
