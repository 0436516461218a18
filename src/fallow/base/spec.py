"""A name with settings in one string, as the command line takes it: ``resnet18:width=16,norm=layer``."""

from __future__ import annotations

import ast
import re
from typing import Any

from fallow.base.errors import RequestError
from fallow.base.numbers import LARGEST


def parse(text: str) -> tuple[str, dict[str, Any]]:
    """The name and the settings in ``name:key=value,key=value``.

    A value is a Python literal (``0.5``, ``(64, 64)``, ``True``) or else the text itself; ``true`` and
    ``false`` are booleans too, since the strings would both count as true.

    >>> parse("resnet18:width=16,norm=layer")
    ('resnet18', {'width': 16, 'norm': 'layer'})
    >>> parse("mlp:hidden=64,64,norm=none")
    ('mlp', {'hidden': (64, 64), 'norm': 'none'})
    >>> parse("scnn")
    ('scnn', {})
    """
    name, written = split(text)
    return name, {key: literal(value) for key, value in written.items()}


def split(text: str) -> tuple[str, dict[str, str]]:
    """The name, and the settings as they are written.

    >>> split("fam:layer=2,strength=0.1")
    ('fam', {'layer': '2', 'strength': '0.1'})
    """
    name, colon, rest = text.strip().partition(":")
    if not name:
        raise RequestError(f"{text!r} has no name: write name or name:setting=value,setting=value")
    settings: dict[str, str] = {}
    if not colon:
        return name, settings
    for piece in re.split(r",(?=\s*\w+\s*=)", rest):  # a comma that no key follows belongs to the value
        key, equals, value = (part.strip() for part in piece.partition("="))
        if not (key.isidentifier() and equals and value):
            raise RequestError(f"{piece.strip()!r} in {text!r} is not a setting: write {name}:setting=value")
        if key in settings:
            raise RequestError(f"{key!r} is set twice in {text!r}: set it once")
        settings[key] = value
    return name, settings


def _check(value: Any) -> None:
    """Refuse whole numbers that no machine counts to."""
    for one in value if isinstance(value, tuple | list) else (value,):
        if isinstance(one, int) and abs(one) > LARGEST:
            raise RequestError(f"{str(one)[:12]}… has {len(str(abs(one)))} digits: a setting is at most {LARGEST:,}")


def literal(value: str) -> Any:
    """A setting's value, or the text itself."""
    if value in ("true", "false"):
        return value == "true"
    try:
        found = ast.literal_eval(value)
        _check(found)
        return found
    except RequestError:
        raise
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return value
