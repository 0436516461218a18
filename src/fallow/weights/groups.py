"""Two sides of a network under one optimiser: one parameter group per side, and ascent for either.

>>> from fallow.weights import Partition
>>> net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
>>> sgd = torch.optim.SGD(net.parameters(), lr=0.1, weight_decay=5e-4)
>>> sides = split_groups(sgd, Partition(net, 1))
>>> ascend(sides["early"], scale=0.01)  # SEAL: early layers climb, slowly, while the late ones descend
>>> [(group["side"], group["maximize"], group["lr"]) for group in sgd.param_groups]
[('early', True, 0.001), ('late', False, 0.1)]
>>> descend(sides["early"])
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler

from fallow.base.errors import RequestError
from fallow.weights.optimizer_state import reset_state
from fallow.weights.partition import Partition

# the lists that torch's schedulers keep with one item per parameter group
PER_GROUP = ("base_lrs", "_last_lr", "lr_lambdas", "min_lrs", "max_lrs", "base_momentums", "max_momentums")


def split_groups(
    optimizer: torch.optim.Optimizer, sides: Partition | Mapping[str, Sequence[torch.nn.Parameter]]
) -> dict[str, list[dict[str, Any]]]:
    """Split the groups of ``optimizer`` in place so that each holds parameters of one side only.

    ``sides`` is a partition (``early``, ``late``) or a mapping from names to parameters. Every new group has
    the settings of the one it came from and its side's name as ``group["side"]``; parameters of no side stay
    together. State is untouched. Learning-rate schedulers that were made before go on with the new groups.
    Returns the groups of every side; ``optimizer.load_state_dict`` makes new ones, which another call returns.
    """
    if isinstance(sides, Partition):
        sides = {"early": sides.early.parameters, "late": sides.late.parameters}
    side_of: dict[int, str] = {}
    for side, parameters in sides.items():
        for parameter in parameters:
            if side_of.setdefault(id(parameter), side) != side:
                raise RequestError(
                    f"a parameter of shape {tuple(parameter.shape)} is on the sides "
                    f"{side_of[id(parameter)]!r} and {side!r}: it should be on one"
                )
    if not any(id(parameter) in side_of for group in optimizer.param_groups for parameter in group["params"]):
        raise RequestError("the optimiser trains none of these parameters: split by the model that it was made for")
    groups: list[dict[str, Any]] = []
    origins: list[int] = []  # of each new group, the number of the one that it came from
    for number, group in enumerate(optimizer.param_groups):
        members: dict[str | None, list[int]] = {}
        for i, parameter in enumerate(group["params"]):
            members.setdefault(side_of.get(id(parameter)), []).append(i)
        whole = dict(group)
        for first, (member_side, indices) in enumerate(members.items()):
            part = group if first == 0 else dict(whole)  # whoever holds the old group keeps a live one
            part["params"] = [whole["params"][i] for i in indices]
            if "param_names" in whole:  # parallel to params, when the optimiser was given names
                part["param_names"] = [whole["param_names"][i] for i in indices]
            part.pop("side", None)
            if member_side is not None:
                part["side"] = member_side
            groups.append(part)
            origins.append(number)
    _tell_schedulers(optimizer, origins)
    optimizer.param_groups[:] = groups
    return {side: [group for group in groups if group.get("side") == side] for side in sides}


def _tell_schedulers(optimizer: torch.optim.Optimizer, origins: Sequence[int]) -> None:
    """Let schedulers, which keep lists with one item per group, know the groups that are to come.

    An optimiser does not know its schedulers, so they are looked for among all objects.
    """
    count = len(optimizer.param_groups)
    if len(origins) == count:
        return
    for each in gc.get_objects():
        if issubclass(type(each), LRScheduler) and getattr(each, "optimizer", None) is optimizer:
            for name in PER_GROUP:
                if len(value := vars(each).get(name, ())) == count:
                    setattr(each, name, [value[number] for number in origins])


def exempt(optimizer: torch.optim.Optimizer) -> None:
    """Biases and norms (what has one axis) no longer decay: they get groups of their own, all else as it was."""
    groups: list[dict[str, Any]] = []
    for group in optimizer.param_groups:
        whole = dict(group)
        for first, flat in enumerate(sorted({p.ndim <= 1 for p in whole["params"]})):
            part = group if first == 0 else dict(whole)
            members = [i for i, p in enumerate(whole["params"]) if (p.ndim <= 1) == flat]
            for key in ("params", "param_names"):
                if key in whole:
                    part[key] = [whole[key][i] for i in members]
            if flat and "weight_decay" in part:
                part["weight_decay"] = 0.0
            groups.append(part)
    optimizer.param_groups[:] = groups


def ascend(groups: Iterable[dict[str, Any]], scale: float = 1.0) -> None:
    """Let these groups climb the loss, at ``scale`` times their learning rate, until ``descend``.

    Sets ``maximize``, which turns the gradient round and not the weight decay, so that weights still shrink
    (a negative learning rate would make them grow): w ← w + S·η·g − S·η·λ·w for SGD.

    The contract with whoever sets the learning rate: ``group["scale"]`` is S while a group climbs and 1
    otherwise, and ``group["lr"]`` includes it. A schedule that multiplies ``lr`` needs to know nothing; one
    that sets it sets ``group["lr"] = η * group.get("scale", 1)``.
    """
    groups = list(groups)
    if not scale > 0:
        raise RequestError(f"cannot ascend with scale {scale}: give a scale above 0")
    for group in groups:
        if "maximize" not in group:
            raise RequestError(
                f"the optimiser with the settings {_settings(group)} cannot ascend, having no 'maximize': "
                "use SGD, Adam, AdamW or RMSprop"
            )
    for group in groups:
        _set(group, maximize=True, scale=scale)


def descend(groups: Iterable[dict[str, Any]]) -> None:
    """Let these groups descend again, at their full learning rate; nothing changes for those that do."""
    for group in groups:
        _set(group, maximize=False, scale=1.0)


def anneal(
    optimizer: torch.optim.Optimizer,
    groups: Sequence[dict[str, Any]],
    epoch: int,
    epochs: int,
    *,
    share: float = 0.25,
    scale: float = 0.01,
) -> bool:
    """Before an epoch: let these groups climb in it, or descend, as SEAL does; whether they climb.

    ``epoch`` counts from 0 over generations of ``epochs`` epochs each. The groups climb at ``scale`` times their rate
    (equation 3) for the first ``share`` of every generation but the first, at least for an epoch. Where the direction
    turns, the optimiser forgets their momentum.
    """
    members = {id(p) for group in groups for p in group["params"]}
    # the optimiser's own: those that were given are dead copies once it has loaded a checkpoint
    groups = [group for group in optimizer.param_groups if members.intersection(map(id, group["params"]))]
    generation, place = divmod(epoch, epochs)
    climbs = generation > 0 and place < max(1, round(share * epochs))
    if climbs != any(group.get("maximize") for group in groups):
        reset_state(optimizer, [p for group in groups for p in group["params"]])
    if climbs:
        ascend(groups, scale)
    else:
        descend(groups)
    return climbs


def _set(group: dict[str, Any], *, maximize: bool, scale: float) -> None:
    group["maximize"] = maximize
    group["lr"] = group["lr"] / group.get("scale", 1.0) * scale
    group["scale"] = scale


def _settings(group: dict[str, Any]) -> str:
    return ", ".join(key for key in group if key not in ("params", "side", "param_names", "scale"))
