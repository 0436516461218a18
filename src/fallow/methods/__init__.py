"""The catalogue of methods. Registering a class here puts it into the command line and the contract trials."""

from __future__ import annotations

import dataclasses
import re

from fallow.core.errors import RequestError, unknown
from fallow.core.method import Method
from fallow.core.spec import parse
from fallow.methods.forget.born_again import BornAgain
from fallow.methods.forget.llf import LLF
from fallow.methods.forget.sagd import SAGD
from fallow.methods.forget.seal import SEAL
from fallow.methods.plain import Long, Normal, Restart

REGISTRY: dict[str, type[Method]] = {
    method.name: method for method in (Normal, Long, Restart, LLF, SEAL, SAGD, BornAgain)
}


def build(spec: Method | str) -> Method:
    """A method from its name and settings; a method is returned as it is.

    >>> build("seal:scale=0.1,late=freeze").late
    'freeze'
    >>> build("llf+sagd").name
    'llf+sagd'
    """
    if isinstance(spec, Method):
        return spec
    found = [_build(part) for part in re.split(r"\+(?=[a-z])", spec)]  # 1e+3 is a number, not a sum
    total = found[0]
    for method in found[1:]:
        total = total + method
    return total


def _build(spec: str) -> Method:
    name, settings = parse(spec)
    if name not in REGISTRY:
        raise unknown("method", name, REGISTRY)
    kind = REGISTRY[name]
    known: list[str] = [field.name for field in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else []
    for key in settings:
        if key not in known:
            raise unknown(f"setting of {name}", key, known) if known else RequestError(f"{name} has no settings")
    return kind(**settings)


__all__ = ["LLF", "REGISTRY", "SAGD", "SEAL", "BornAgain", "Long", "Method", "Normal", "Restart", "build"]
