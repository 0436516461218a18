"""Arrays with their answers, to the parts of a data set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from fallow.base.errors import RequestError
from fallow.data.answers import understand
from fallow.data.examples import Examples
from fallow.data.layout import layout, numeric
from fallow.data.parts import Parts
from fallow.data.texts import as_bytes, is_text, texts_in

Pair: TypeAlias = tuple[Any, Any]


def from_arrays(
    pairs: dict[str, Pair],
    *,
    names: Sequence[str] | None = None,
    channels_first: bool = False,
    target: str | None = None,
    as_: str | None = None,
) -> Parts:
    """Parts from arrays: ``pairs`` maps "train", perhaps "val" and "test", to (x, y).

    ``names`` are names of classes (labels, numbers), used where they fit; ``target`` is the kind of y, where it is
    not to be guessed (see `fallow.data.answers.kind_of`), ``as_`` that of x (see `fallow.data.layout.layout`).

    >>> import numpy as np
    >>> x, y = np.zeros((4, 8, 8), np.uint8), np.array(["cat", "dog", "cat", "dog"])
    >>> parts = from_arrays({"train": (x, y)})
    >>> parts.train.x.shape, parts.train.y.tolist(), parts.classes
    (torch.Size([4, 1, 8, 8]), [0, 1, 0, 1], ['cat', 'dog'])
    """
    notes: list[str] = []
    texts = {key: x if (read := texts_in(x, f"x of {key}")) is None else read for key, (x, _) in pairs.items()}
    if is_text(texts["train"]):
        if as_ not in (None, "texts"):
            raise RequestError(f"as_={as_} is for numbers, and these are texts: leave it out")
        held = as_bytes(texts)
        return from_tensors({key: (held[key], y) for key, (_, y) in pairs.items()}, names=names, target=target)
    if as_ == "texts":
        raise RequestError("as_=texts is for strings, and these are numbers: leave it out")
    arrays = {key: numeric(x, f"x of {key}", as_=as_) for key, (x, _) in pairs.items()}
    if as_ is None and arrays["train"].ndim == 3 and getattr(pairs["train"][1], "shape", ()) == arrays["train"].shape:
        as_ = "images"  # with a mask for each
    laid = layout(arrays, notes, channels_first=channels_first, as_=as_)
    parts = from_tensors({key: (laid[key], y) for key, (_, y) in pairs.items()}, names=names, target=target)
    parts.notes = [*dict.fromkeys(notes), *parts.notes]  # once, not once for each part
    return parts


def from_tensors(
    pairs: dict[str, tuple[Tensor, Any]], *, names: Sequence[str] | None = None, target: str | None = None
) -> Parts:
    """Parts from tensors that are laid out as `Examples` wants them, with any answers."""
    train = pairs["train"][0]
    notes: list[str] = []
    understood, ys = understand({key: y for key, (_, y) in pairs.items()}, train, notes, names=names, asked=target)
    for key, (x, _) in pairs.items():
        if len(x) != len(ys[key]):
            raise RequestError(f"{key} has {len(x)} examples but {len(ys[key])} labels: give one for each")
        if x.shape[1:] != train.shape[1:] or x.dtype != train.dtype:
            raise RequestError(
                f"an example of {key} is {x.dtype} {tuple(x.shape[1:])}, "
                f"one of train {train.dtype} {tuple(train.shape[1:])}: give all parts the same kind"
            )
        bad = ~x.isfinite().flatten(1).all(1) if x.is_floating_point() else torch.zeros(0)
        if bad.any():
            raise RequestError(
                f"x of {key} has NaN or infinite values in {int(bad.sum())} examples (the first is number "
                f"{int(bad.nonzero()[0])}): replace them or leave those examples out"
            )
    parts = {key: Examples(x, ys[key]) for key, (x, _) in pairs.items()}
    return Parts(parts["train"], parts.get("val"), parts.get("test"), understood, notes)
