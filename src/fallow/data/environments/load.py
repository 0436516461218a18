"""Environments from a name with settings: navigation:clip=0.2, halfcheetah-direction:horizon=100."""

from __future__ import annotations

import dataclasses
from typing import Any

from fallow.base.errors import unknown
from fallow.base.spec import parse
from fallow.data.environments.base import Environment
from fallow.data.environments.cheetah import HalfCheetah
from fallow.data.environments.navigation import Navigation

ENVIRONMENTS = ("navigation", "halfcheetah-direction", "halfcheetah-velocity")
SETTINGS = {"navigation": ("setting", "clip", "horizon"), "halfcheetah": ("horizon",)}


def is_environment(source: str) -> bool:
    """Whether this names an environment, perhaps with settings.

    >>> is_environment("navigation:clip=0.2"), is_environment("sinusoid")
    (True, False)
    """
    return source.partition(":")[0] in ENVIRONMENTS


def load_environment(source: str, **counts: Any) -> Environment:
    """The environment of a name; ``counts`` are ``shots``, ``val_tasks``, ``test_tasks`` and the like.

    >>> load_environment("navigation:clip=0.2", shots=10).shots
    10
    """
    name, settings = parse(source)
    if name not in ENVIRONMENTS:
        raise unknown("environment", name, ENVIRONMENTS)
    kind, _, goal = name.partition("-")
    for key in settings:
        if key not in SETTINGS[kind]:
            raise unknown(f"setting of {name}", key, SETTINGS[kind])
    known = {field.name for field in dataclasses.fields(Environment)}
    assert set(counts) <= known
    if kind == "navigation":
        return Navigation(**settings, **counts)
    return HalfCheetah(name=name, goal=goal, **settings, **counts)
