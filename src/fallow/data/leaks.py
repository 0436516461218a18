"""What makes a score worth less than it seems: examples on both sides of a split, rare or absent classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from fallow.data.content import of_files, of_rows
from fallow.data.examples import Examples, Files

WORDS = {"val": "validation", "test": "test"}
UNEVEN = 3  # the largest class is this many times the smallest
RARE = 0.05  # a smaller share is named
NAMED = 3  # classes at most


def leaks(parts: dict[str, Any]) -> list[str]:
    """A sentence for each of validation and test that shares identical examples with training."""
    found = []
    for key, words in WORDS.items():
        part = parts.get(key)
        if part is not None and (count := shared(parts["train"], part)):
            found.append(
                f"{count} of {len(part)} {words} examples are in training too, identical to the last bit: what they "
                "score says nothing of new ones; leave them out, or keep together what belongs together (groups)."
            )
    return found


def shared(train: Any, other: Any) -> int:
    """How many examples of the other part have a twin in training; 0 for Datasets, which are not gone through."""
    if isinstance(train, Examples) and isinstance(other, Examples):
        known = set(of_rows(train.x))
        return sum(row in known for row in of_rows(other.x))
    if isinstance(train, Files) and isinstance(other, Files):
        sizes = [[path.stat().st_size for path in part.paths] for part in (train, other)]
        both = set(sizes[0]) & set(sizes[1])  # only these have to be read
        first, second = (
            of_files(path for path, size in zip(part.paths, own, strict=True) if size in both)
            for part, own in zip((train, other), sizes, strict=True)
        )
        known = set(first)
        return sum(content in known for content in second)
    return 0


def absent(parts: dict[str, Any], classes: Sequence[str]) -> list[str]:
    """A sentence for each of validation and test that lacks some of the classes."""
    found = []
    for key, words in WORDS.items():
        if isinstance(part := parts.get(key), Examples | Files):
            held = set(part.y.unique().tolist())
            lacking = [name for place, name in enumerate(classes) if place not in held]
            if lacking:
                others = f" and {len(lacking) - 1} more classes have" if len(lacking) > 1 else " has"
                found.append(f"{lacking[0]!r}{others} no {words} examples: scores there say nothing of them.")
    return found


def uneven(y: Tensor, classes: Sequence[str]) -> str:
    """The shares of classes of very different sizes, in words; nothing where they are even.

    >>> import torch
    >>> uneven(torch.tensor([0] * 95 + [1] * 5), ["well", "ill"])
    "'well' has 95.0 % of the training examples, 'ill' 5.0 %"
    """
    counts = y.bincount(minlength=len(classes))
    most, least = int(counts.argmax()), int(counts.argmin())
    if counts[most] < UNEVEN * counts[least]:
        return ""
    rare = [i for i in counts.argsort(stable=True).tolist() if counts[i] < RARE * len(y) and i != least]
    rare = [i for i in rare if counts[i] * 2 * len(classes) < len(y)][: NAMED - 1]  # of many classes, each is small
    shares = ", ".join(f"{classes[i]!r} {100 * int(counts[i]) / len(y):.1f} %" for i in (least, *rare))
    return f"{classes[most]!r} has {100 * int(counts[most]) / len(y):.1f} % of the training examples, {shares}"
