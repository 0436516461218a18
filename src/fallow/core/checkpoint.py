"""Checkpoints: one file with its own digest, loaded without running anyone's code."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from fallow.base.errors import RequestError
from fallow.base.files import write

FORMAT = 1
MAGIC = b"fallow checkpoint "


def save(path: Path, state: dict[str, Any]) -> None:
    """Write a checkpoint; the one before it stays beside it as ``NAME.previous``."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    payload = buffer.getbuffer()
    digest = hashlib.sha256(payload).hexdigest().encode()
    if path.exists():
        previous = path.with_name(path.name + ".previous")
        previous.unlink(missing_ok=True)
        with suppress(OSError):  # a file system without hard links keeps one checkpoint only
            os.link(path, previous)
    write(path, MAGIC + str(FORMAT).encode() + b" " + digest + b"\n", payload)


def load(path: Path) -> dict[str, Any]:
    """Read a checkpoint; one that is damaged or of another format is refused with a way out."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RequestError(f"{path} cannot be read: {error.strerror}") from error
    header, _, payload = content.partition(b"\n")
    words = header.split(b" ")
    if not header.startswith(MAGIC) or len(words) != 4:
        raise RequestError(f"{path} is not a checkpoint of fallow{_way_out(path)}")
    if words[2] != str(FORMAT).encode():
        raise RequestError(
            f"{path} has checkpoint format {words[2].decode(errors='replace')}, this fallow reads format {FORMAT}: "
            "go on with the version of fallow named in run.json, or choose another --out"
        )
    if hashlib.sha256(payload).hexdigest().encode() != words[3]:
        raise RequestError(f"{path} is damaged{_way_out(path)}")
    try:
        return torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:  # anyone can write a digest: only tensors and plain values are loaded
        raise RequestError(f"{path} holds more than tensors and plain values, and is not loaded") from error


def _way_out(path: Path) -> str:
    previous = path.with_name(path.name + ".previous")
    if previous.exists():
        return f": move {previous.name} over it to go on from the one before"
    return ": delete it to start this run again"
