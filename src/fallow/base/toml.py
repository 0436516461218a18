"""TOML that a user may write or keep: read with errors of one line, written without a library."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fallow.base.errors import RequestError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def read(path: Path, what: str) -> dict[str, Any]:
    """The keys of a file; ``what`` it is goes into the errors."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise RequestError(f"the {what} {path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RequestError(f"the {what} {path} is not valid TOML: {error}") from error


def text(values: Mapping[str, Any], within: str = "") -> str:
    """Plain values as TOML, without those that are None; dictionaries become tables at the end.

    >>> print(text({"epochs": 3, "seed": None, "weight_decay": {"head.0": 0.01}}), end="")
    epochs = 3
    <BLANKLINE>
    [weight_decay]
    "head.0" = 0.01
    """
    lines = [f"{_key(key)} = {_value(value)}\n" for key, value in values.items() if _flat(value)]
    for name, table in values.items():
        if isinstance(table, Mapping):
            path = f"{within}{_key(name)}"
            lines += ["\n", f"[{path}]\n", text(table, f"{path}.")]
    return "".join(lines)


def _flat(value: Any) -> bool:
    return value is not None and not isinstance(value, Mapping)


def _key(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() and name.isascii() else _value(name)


def _value(value: Any) -> str:
    """JSON's notation, which TOML shares for all plain values."""
    written = json.dumps(value, ensure_ascii=False) if isinstance(value, str | bool | int | list) else repr(value)
    return written.replace("\x7f", "\\u007f")  # the one letter that JSON takes and TOML does not
