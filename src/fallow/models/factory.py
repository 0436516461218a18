"""A user's own model: ``package.module:factory`` or ``package.module:factory:key=value``, imported and called."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from typing import Any

from torch import nn

from fallow.base.errors import RequestError, first_line, unknown
from fallow.models.libraries import unwrapped


def from_factory(path: str, /, *, shape: tuple[int, ...], classes: int, **options: Any) -> nn.Module:
    """Import ``package.module:factory`` and call it; modules in the current directory are found too.

    ``shape`` and ``classes`` are given by keyword if the factory takes them, ``options`` always. A network of
    Hugging Face's transformers answers with its logits. This runs the user's own code, so it is only for names that
    the user wrote.

    >>> from_factory("torch.nn:Linear", shape=(4,), classes=3, in_features=4, out_features=3)
    Linear(in_features=4, out_features=3, bias=True)
    """
    module_name, colon, name = path.partition(":")
    if not (colon and module_name and name):
        raise RequestError(f"{path!r} names no factory: write package.module:factory")
    factory = _attribute(_module(module_name), name)
    if not callable(factory):
        raise RequestError(f"{path} is a {type(factory).__name__}: it should be a function that returns the model")
    try:
        signature = inspect.signature(factory)
        takes = signature.parameters
        open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in takes.values())
        known = {"shape": shape, "classes": classes}
        arguments = {key: value for key, value in known.items() if open_ended or key in takes} | options
        signature.bind(**arguments)
    except (TypeError, ValueError) as error:
        raise RequestError(f"{path} cannot be called: {first_line(error)}; it may take shape and classes") from error
    try:
        model = factory(**arguments)
    except Exception as error:
        raise RequestError(f"{path} failed: {type(error).__name__}: {first_line(error)}") from error
    if not isinstance(model, nn.Module):
        raise RequestError(f"{path} returned a {type(model).__name__}: it should return a torch.nn.Module")
    return unwrapped(model)


def _module(name: str) -> Any:
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as `python file.py` does, and as a console script does not
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(error.name + ".")):
            raise RequestError(
                f"no module {error.name!r}: it should be installed or lie in the current directory"
            ) from error
        raise RequestError(f"importing {name} failed: {first_line(error)}; install it first") from error
    except Exception as error:
        raise RequestError(f"importing {name} failed: {type(error).__name__}: {first_line(error)}") from error


def _attribute(module: Any, name: str) -> Any:
    try:
        return getattr(module, name)
    except AttributeError:
        callables = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise unknown(f"factory of {module.__name__}", name, callables) from None
