"""fallow: train networks that generalise when data is scarce. Here are the public names, and nothing else."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fallow.adaptation.attenuation import attenuate
    from fallow.adaptation.inner import adapt
    from fallow.adaptation.learner import Learner
    from fallow.adapters.host import Guest
    from fallow.base.errors import FallowError, RequestError, WorkError
    from fallow.comparison import compare
    from fallow.core.method import Method
    from fallow.core.settings import Settings
    from fallow.data import Data
    from fallow.data.environments import Environment, Navigation
    from fallow.data.tasks import Episodes, Mixture, Sinusoid, Tasks
    from fallow.flatness import Watch, relative_flatness
    from fallow.hypergradients.implicit import hypergradient
    from fallow.methods import (
        ANIL,
        BOIL,
        DSD,
        EMA,
        FAM,
        FC,
        IMAML,
        IMP,
        KELS,
        L2F,
        LEO,
        LLF,
        LPFT,
        LW,
        MAML,
        MAMLPPO,
        MAMLTRPO,
        SAGD,
        SAM,
        SEAL,
        SWA,
        WELS,
        WELSR,
        Balanced,
        Baseline,
        BornAgain,
        ConfidenceNetwork,
        CutMix,
        Dropout,
        Finetune,
        FixMatch,
        ImplicitDecay,
        LearnedRates,
        Long,
        MetaSGD,
        Mixup,
        MultiStepLoss,
        MuMoMAML,
        Normal,
        Probe,
        ProtoNet,
        Rescale,
        Restart,
    )  # fmt: skip
    from fallow.methods.flat.sam import perturbed, statistics_kept
    from fallow.methods.forget.sagd import climb
    from fallow.training.control import ControlResult, reinforce
    from fallow.training.export import export
    from fallow.training.fit import fit
    from fallow.training.meta import FewShotResult, fewshot
    from fallow.training.predict import Prediction, Predictor
    from fallow.training.result import Result
    from fallow.transfers.transfer import Transfer, transfer
    from fallow.tuning.tune import Tuned, tune
    from fallow.weights import (
        Partition,
        anneal,
        ascend,
        descend,
        insert_norms,
        kernel_mask,
        mask,
        matrices,
        norms,
        random_mask,
        redraw,
        rescale,
        reset_state,
        slim,
        smallest,
        split_groups,
    )  # fmt: skip

__version__ = "0.1.0"

# imported when first used, so that `fallow --help` needs no torch
_HOMES = {
    "fallow.training.export": ("export",),
    "fallow.base.errors": ("FallowError", "RequestError", "WorkError"),
    "fallow.comparison": ("compare",),
    "fallow.core.method": ("Method",),
    "fallow.core.settings": ("Settings",),
    "fallow.data": ("Data",),
    "fallow.data.environments": ("Environment", "Navigation"),
    "fallow.data.tasks": ("Episodes", "Mixture", "Sinusoid", "Tasks"),
    "fallow.training.fit": ("fit",),
    "fallow.training.result": ("Result",),
    "fallow.adapters.host": ("Guest",),
    "fallow.flatness": ("Watch", "relative_flatness"),
    "fallow.methods.flat.sam": ("perturbed", "statistics_kept"),
    "fallow.methods.forget.sagd": ("climb",),
    "fallow.methods": (
        "DSD", "FAM", "FC", "IMP", "KELS", "LLF", "LW", "SAGD", "SAM", "SEAL", "WELS", "WELSR", "BornAgain",
        "ConfidenceNetwork", "FixMatch", "ImplicitDecay", "Long", "Normal", "Rescale", "Restart", "ANIL", "L2F",
        "MAML", "MAMLPPO", "MAMLTRPO", "Finetune", "LearnedRates", "MetaSGD", "MultiStepLoss", "ProtoNet", "EMA",
        "SWA", "Mixup", "CutMix", "Dropout", "Balanced", "Baseline", "LPFT", "Probe",
        "BOIL", "IMAML", "LEO", "MuMoMAML",
    ),
    "fallow.training.control": ("ControlResult", "reinforce"),
    "fallow.training.meta": ("FewShotResult", "fewshot"),
    "fallow.adaptation.attenuation": ("attenuate",),
    "fallow.adaptation.inner": ("adapt",),
    "fallow.adaptation.learner": ("Learner",),
    "fallow.hypergradients.implicit": ("hypergradient",),
    "fallow.training.predict": ("Prediction", "Predictor"),
    "fallow.transfers.transfer": ("Transfer", "transfer"),
    "fallow.tuning.tune": ("Tuned", "tune"),
    "fallow.weights": (
        "Partition", "anneal", "ascend", "descend", "insert_norms", "kernel_mask", "mask", "matrices", "norms",
        "random_mask", "redraw", "rescale", "reset_state", "slim", "smallest", "split_groups",
    ),
}  # fmt: skip
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    if not name.startswith("_") and find_spec(f"fallow.{name}") is not None:
        return import_module(f"fallow.{name}")  # fallow.data, fallow.flatness …
    raise AttributeError(f"module 'fallow' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})


__all__ = [
    "ANIL", "BOIL", "DSD", "EMA", "FAM", "FC", "IMAML", "IMP", "KELS", "L2F", "LEO", "LLF", "LPFT", "LW", "MAML",
    "MAMLPPO", "MAMLTRPO", "SAGD", "SAM", "SEAL", "SWA", "WELS", "WELSR", "Balanced", "Baseline", "BornAgain",
    "ConfidenceNetwork", "ControlResult", "CutMix", "Data", "Dropout", "Environment", "Episodes", "FallowError",
    "FewShotResult", "Finetune", "FixMatch", "Guest", "ImplicitDecay", "LearnedRates", "Learner", "Long", "MetaSGD",
    "Method", "Mixture", "Mixup", "MuMoMAML", "MultiStepLoss", "Navigation", "Normal", "Partition", "Prediction",
    "Predictor", "Probe", "ProtoNet", "RequestError", "Rescale", "Restart", "Result", "Settings", "Sinusoid", "Tasks",
    "Transfer", "Tuned", "Watch", "WorkError", "adapt", "anneal", "ascend", "attenuate", "climb", "compare", "descend",
    "export", "fewshot", "fit", "hypergradient", "insert_norms", "kernel_mask", "mask", "matrices", "norms",
    "perturbed", "random_mask", "redraw", "reinforce", "relative_flatness", "rescale", "reset_state", "slim",
    "smallest", "split_groups", "statistics_kept", "transfer", "tune",
]  # fmt: skip
