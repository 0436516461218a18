"""fallow: train networks that generalise when data is scarce. Here are the public names, and nothing else."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {  # where each public name lives; imported when first used, so that `fallow --help` needs no torch
    "Data": "fallow.data",
    "FallowError": "fallow.core.errors",
    "LLF": "fallow.methods",
    "Long": "fallow.methods",
    "Method": "fallow.core.method",
    "BornAgain": "fallow.methods",
    "Normal": "fallow.methods",
    "Partition": "fallow.weights",
    "RequestError": "fallow.core.errors",
    "Restart": "fallow.methods",
    "Result": "fallow.fitting",
    "SAGD": "fallow.methods",
    "SEAL": "fallow.methods",
    "Settings": "fallow.core.settings",
    "WorkError": "fallow.core.errors",
    "ascend": "fallow.weights",
    "descend": "fallow.weights",
    "fit": "fallow.fitting",
    "redraw": "fallow.weights",
    "reset_state": "fallow.weights",
    "split_groups": "fallow.weights",
}

if TYPE_CHECKING:
    from fallow.core.errors import FallowError, RequestError, WorkError
    from fallow.core.method import Method
    from fallow.core.settings import Settings
    from fallow.data import Data
    from fallow.fitting import Result, fit
    from fallow.methods import LLF, SAGD, SEAL, BornAgain, Long, Normal, Restart
    from fallow.weights import Partition, ascend, descend, redraw, reset_state, split_groups


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'fallow' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})


__all__ = [
    "LLF",
    "SAGD",
    "SEAL",
    "BornAgain",
    "Data",
    "FallowError",
    "Long",
    "Method",
    "Normal",
    "Partition",
    "RequestError",
    "Restart",
    "Result",
    "Settings",
    "WorkError",
    "ascend",
    "descend",
    "fit",
    "redraw",
    "reset_state",
    "split_groups",
]
