"""The catalogue of methods. Registering a class here puts it into the command line and the contract trials."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Any

from fallow.base.errors import RequestError, unknown
from fallow.base.spec import literal, split
from fallow.core.method import Method
from fallow.methods.baselines.balanced import Balanced
from fallow.methods.baselines.dropout import Dropout
from fallow.methods.baselines.ema import EMA
from fallow.methods.baselines.mixing import CutMix, Mixup
from fallow.methods.baselines.swa import SWA
from fallow.methods.fewshot.anil import ANIL
from fallow.methods.fewshot.baseline import Baseline
from fallow.methods.fewshot.boil import BOIL
from fallow.methods.fewshot.imaml import IMAML
from fallow.methods.fewshot.l2f import L2F
from fallow.methods.fewshot.leo import LEO
from fallow.methods.fewshot.maml import MAML
from fallow.methods.fewshot.multistep import MultiStepLoss
from fallow.methods.fewshot.mumomaml import MuMoMAML
from fallow.methods.fewshot.ppo import MAMLPPO
from fallow.methods.fewshot.prototypes import ProtoNet
from fallow.methods.fewshot.rates import LearnedRates, MetaSGD
from fallow.methods.fewshot.trpo import MAMLTRPO
from fallow.methods.flat.fam import FAM
from fallow.methods.flat.sam import SAM
from fallow.methods.forget.born_again import BornAgain
from fallow.methods.forget.dsd import DSD
from fallow.methods.forget.evolution import KELS, WELS, WELSR
from fallow.methods.forget.head import FC
from fallow.methods.forget.layerwise import LW
from fallow.methods.forget.llf import LLF
from fallow.methods.forget.lottery import IMP
from fallow.methods.forget.rescaling import Rescale
from fallow.methods.forget.sagd import SAGD
from fallow.methods.forget.seal import SEAL
from fallow.methods.hyper.decay import ImplicitDecay
from fallow.methods.plain import Long, Normal, Restart
from fallow.methods.pretrained.finetune import LPFT, Finetune
from fallow.methods.pretrained.probe import Probe
from fallow.methods.semi.confidence import ConfidenceNetwork
from fallow.methods.semi.fixmatch import FixMatch

METHODS: tuple[type[Method], ...] = (
    Normal, Long, Restart, LLF, SEAL, SAGD, BornAgain, LW, WELS, WELSR, KELS, DSD, FC, IMP, Rescale,
    FAM, SAM, ImplicitDecay, EMA, SWA, Mixup, CutMix, Dropout, Balanced, Probe, Finetune, LPFT, FixMatch,
    ConfidenceNetwork,
    MAML, L2F, MetaSGD, LearnedRates, MultiStepLoss, ANIL, BOIL, IMAML, MuMoMAML, LEO, ProtoNet, Baseline,
    MAMLTRPO, MAMLPPO,
)  # fmt: skip
EITHER = "float | str"  # the type of settings that are a number, or "auto"
REGISTRY = {method.name: method for method in METHODS}


def build(spec: Method | str) -> Method:
    """A method from its name and settings; a method is returned as it is.

    >>> build("seal:scale=0.1,late=freeze").late
    'freeze'
    >>> build("llf+sagd").name
    'llf+sagd'
    """
    if isinstance(spec, Method):
        return spec
    if not isinstance(spec, str):
        named = f"{spec.__name__}()" if isinstance(spec, type) else "a name such as 'llf'"
        raise RequestError(f"the method is {spec!r}: give {named}")
    found = [_build(part) for part in re.split(r"\s*\+\s*(?=[a-z])", spec)]  # 1e+3 is a number, not a sum
    total = found[0]
    for method in found[1:]:
        total = total + method
    return total


def _build(spec: str) -> Method:
    name, written = split(spec)
    if name not in REGISTRY:
        raise unknown("method", name, REGISTRY)
    kind = REGISTRY[name]
    known: dict[str, Any] = {}
    if dataclasses.is_dataclass(kind):
        known = {field.name: field for field in dataclasses.fields(kind)}
    settings: dict[str, Any] = {}
    for key, text in written.items():
        if key not in known:
            raise unknown(f"setting of {name}", key, known) if known else RequestError(f"{name} has no settings")
        value = literal(text)
        if isinstance(known[key].default, str) and known[key].type == "str" and not isinstance(value, bool | str):
            value = text  # the layers of a Sequential are called 0, 1, 2
        settings[key] = value
        if not _fits(value, known[key]):
            fitting = "a number or auto" if known[key].type == EITHER else f"something like {known[key].default!r}"
            raise RequestError(f"{key} of {name} cannot be {value!r}: {fitting} would fit")
    return kind(**settings)


def _fits(value: Any, field: dataclasses.Field[Any]) -> bool:
    """Whether a value is of the default's kind; text is always true, so that "no" must not pass for a yes or no."""
    default = field.default
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if field.type == EITHER:
        return number or value == "auto"
    if isinstance(default, bool | str):
        return isinstance(value, type(default))
    return number or (default is None and value is None)


__all__ = [
    "ANIL", "BOIL", "DSD", "EMA", "FAM", "FC", "IMAML", "IMP", "KELS", "L2F", "LEO", "LLF", "LPFT", "LW", "MAML",
    "MAMLPPO", "MAMLTRPO", "REGISTRY", "SAGD", "SAM", "SEAL", "SWA", "WELS", "WELSR", "Balanced", "Baseline",
    "BornAgain", "ConfidenceNetwork", "CutMix", "Dropout", "Finetune", "FixMatch", "ImplicitDecay", "LearnedRates",
    "Long", "MetaSGD", "Method", "Mixup", "MuMoMAML", "MultiStepLoss", "Normal", "Probe", "ProtoNet", "Rescale",
    "Restart", "build",
]  # fmt: skip
