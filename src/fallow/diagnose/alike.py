"""The control of equal scale for L2F: the same learner, but all tasks start from their mean γ.

How smooth a landscape is depends on how large the weights are, and γ < 1 makes them smaller, whatever the task. What is
left of a difference to this control is due to γ's dependence on the task.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from fallow.adaptation.attenuation import Attenuator
from fallow.adaptation.learner import Learner
from fallow.base.errors import RequestError
from fallow.data.tasks import TaskBatch
from fallow.diagnose.landscape import still


def alike(learner: Learner, batch: TaskBatch) -> Learner:
    """A copy whose γ is the mean over these tasks, for each layer, and the same for all."""
    attenuator = getattr(learner, "attenuator", None)
    if not isinstance(attenuator, Attenuator) or attenuator.constant:
        raise RequestError("γ does not depend on the task: take a learner with l2f")
    seen: list[Tensor] = []
    handle = attenuator.register_forward_hook(lambda _, __, gamma: seen.append(gamma.detach()))
    with still(learner):
        next(learner.path(learner.meta(), batch[0], batch[1], order=1, batched=True))
    handle.remove()
    (gamma,) = seen
    same = copy.deepcopy(learner)
    constant = Attenuator(attenuator.owner, 1, None, None, constant=True).to(gamma)
    constant.raw.data.copy_(torch.logit(gamma.mean(0)))
    same.attenuator = constant
    return same
