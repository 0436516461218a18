"""fallow: train networks that generalise when data is scarce. Here are the public names, and nothing else."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fallow.core.errors import FallowError, RequestError, WorkError
    from fallow.core.method import Method
    from fallow.core.settings import Settings
    from fallow.data import Data
    from fallow.data.tasks import Episodes, Sinusoid, Tasks
    from fallow.fitting import Result, fit
    from fallow.flatness import relative_flatness
    from fallow.meta_training import FewShotResult, fewshot
    from fallow.methods import (
        ANIL,
        DSD,
        FAM,
        FC,
        IMP,
        KELS,
        L2F,
        LLF,
        LW,
        MAML,
        SAGD,
        SAM,
        SEAL,
        WELS,
        WELSR,
        BornAgain,
        Finetune,
        ImplicitDecay,
        LearnedRates,
        Long,
        MetaSGD,
        MultiStepLoss,
        Normal,
        ProtoNet,
        Rescale,
        Restart,
    )  # fmt: skip
    from fallow.methods.fewshot.attenuation import attenuate
    from fallow.methods.fewshot.inner import adapt
    from fallow.methods.fewshot.learner import Learner
    from fallow.methods.hyper.implicit import hypergradient
    from fallow.predict import Prediction, Predictor
    from fallow.weights import (
        Partition,
        ascend,
        descend,
        insert_norms,
        redraw,
        rescale,
        reset_state,
        slim,
        split_groups,
    )  # fmt: skip

__version__ = "0.1.0"

# imported when first used, so that `fallow --help` needs no torch
_HOMES = {
    "fallow.core.errors": ("FallowError", "RequestError", "WorkError"),
    "fallow.core.method": ("Method",),
    "fallow.core.settings": ("Settings",),
    "fallow.data": ("Data",),
    "fallow.data.tasks": ("Episodes", "Sinusoid", "Tasks"),
    "fallow.fitting": ("Result", "fit"),
    "fallow.flatness": ("relative_flatness",),
    "fallow.methods": (
        "DSD", "FAM", "FC", "IMP", "KELS", "LLF", "LW", "SAGD", "SAM", "SEAL", "WELS", "WELSR", "BornAgain",
        "ImplicitDecay", "Long", "Normal", "Rescale", "Restart", "ANIL", "L2F", "MAML", "Finetune", "LearnedRates",
        "MetaSGD", "MultiStepLoss", "ProtoNet",
    ),
    "fallow.meta_training": ("FewShotResult", "fewshot"),
    "fallow.methods.fewshot.attenuation": ("attenuate",),
    "fallow.methods.fewshot.inner": ("adapt",),
    "fallow.methods.fewshot.learner": ("Learner",),
    "fallow.methods.hyper.implicit": ("hypergradient",),
    "fallow.predict": ("Prediction", "Predictor"),
    "fallow.weights": (
        "Partition", "ascend", "descend", "insert_norms", "redraw", "rescale", "reset_state", "slim", "split_groups",
    ),
}  # fmt: skip
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'fallow' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})


__all__ = [
    "ANIL", "DSD", "FAM", "FC", "IMP", "KELS", "L2F", "LLF", "LW", "MAML", "SAGD", "SAM", "SEAL", "WELS",
    "WELSR", "BornAgain", "Data", "Episodes", "FallowError", "FewShotResult", "Finetune", "ImplicitDecay",
    "LearnedRates", "Learner", "Long", "MetaSGD", "Method", "MultiStepLoss", "Normal", "Partition",
    "Prediction", "Predictor", "ProtoNet", "RequestError", "Rescale", "Restart", "Result", "Settings",
    "Sinusoid", "Tasks", "WorkError", "adapt", "ascend", "attenuate", "descend", "fewshot", "fit",
    "hypergradient", "insert_norms", "redraw", "relative_flatness", "rescale", "reset_state", "slim",
    "split_groups",
]  # fmt: skip
