"""Texts as tensors: their UTF-8 bytes, int8 N × K × L, for K texts an example (a sentence, or a pair of sentences).

So they are split, shared out and identified as all examples are. A network reads *tokens*: whole numbers N × 3 × L, the
rows of which are the tokens' numbers, 1 where there is one and 0 where there is padding, and which text they are of.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from numbers import Number
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fallow.base.errors import RequestError

IDS, MASK, SEGMENT = range(3)  # the rows of tokens
TextsOf: TypeAlias = tuple[str, ...] | Literal["files"]  # the columns of a table, or each in a file of its own
LONGEST = 1 << 16  # bytes of a text that are kept; no network here reads more
ALONE = (  # letters of scripts that do not part their words: Thai, Lao, Burmese, Khmer, kana, Han
    "\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff\u3041-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\uff66-\uff9f\U00020000-\U0003ffff"
)
MARKS = "\u0300-\u036f\u0900-\u0963\u0966-\u0dff"  # accents on their own, and vowels of India's scripts: not in \w
WORD = re.compile(rf"[{ALONE}]|(?:[^\W{ALONE}]|[{MARKS}])+|[^\w\s]")
PARTED = re.compile(rf"[{ALONE}]|[^\s{ALONE}]+")


def is_text(array: Any) -> bool:
    """Whether an array holds strings."""
    return isinstance(array, np.ndarray) and array.dtype.kind in "US"


def words_of(text: str) -> list[str]:
    """The words of a text, small, and its marks; where a script does not part its words, the letters.

    >>> words_of("It's हिन्दी: 很好"), count("It's हिन्दी: 很好")
    (['it', "'", 's', 'हिन्दी', ':', '很', '好'], 4)
    """
    return WORD.findall(text.lower())


def count(text: str) -> int:
    """How many words there are, as spaces part them, and such letters."""
    return len(PARTED.findall(text))


def as_bytes(arrays: dict[str, NDArray[Any]]) -> dict[str, Tensor]:
    """Arrays of strings, N or N×K, as bytes N × K × L; zeros fill them up to the longest of all.

    >>> as_bytes({"train": np.array(["a", "né"])})["train"]
    tensor([[[ 97,   0,   0]],
    <BLANKLINE>
            [[110, -61, -87]]], dtype=torch.int8)
    """
    each = {part: _bytes(part, array) for part, array in arrays.items()}
    longest = min(LONGEST, max(1, *(rows.shape[2] for rows in each.values())))
    room = {part: ((0, 0), (0, 0), (0, max(0, longest - rows.shape[2]))) for part, rows in each.items()}
    return {
        part: torch.from_numpy(np.pad(rows[..., :longest], room[part]).view(np.int8)) for part, rows in each.items()
    }


def texts_in(x: Any, what: str) -> NDArray[Any] | None:
    r"""Texts as an array of their bytes, from a list or a column of pandas (of objects) too; None of all else.

    >>> texts_in(np.array(["né", "a"], object), "x").tolist(), texts_in([[1, 2]], "x")
    ([b'n\xc3\xa9', b'a'], None)
    """
    if isinstance(x, Tensor):
        return None
    try:
        array = np.asarray(x)
    except (TypeError, ValueError):  # rows of unequal lengths, for one
        return None
    if array.dtype.kind not in "OTU":
        return array if is_text(array) else None
    strange = [each for each in array.flat if not isinstance(each, str)]
    if len(strange) == array.size:
        return None
    if strange:
        if isinstance(strange[0], Number) and strange[0] == strange[0]:
            raise RequestError(
                f"{what} holds numbers and texts: write it as a .csv, of which every column has its kind"
            )
        raise RequestError(f"{what} holds {strange[0]!r} among its texts: give '' where there is none")
    return encoded(list(array.flat)).reshape(array.shape)


def encoded(texts: Sequence[str]) -> NDArray[np.bytes_]:
    """Strings as bytes, of which no more are held than are kept."""
    return np.array([text.encode("utf-8", "replace")[:LONGEST] for text in texts], np.bytes_)


def to_strings(x: Tensor) -> list[tuple[str, ...]]:
    """The texts of every example; what was cut in the middle of a letter loses that letter.

    >>> to_strings(as_bytes({"train": np.array([["is it?", "it is"]])})["train"])
    [('is it?', 'it is')]
    """
    rows = [[bytes(text).rstrip(b"\0") for text in example] for example in x.cpu().numpy().view(np.uint8)]
    return [tuple(text.decode("utf-8", errors="ignore") for text in example) for example in rows]


def trimmed(tokens: Tensor) -> Tensor:
    """A batch of tokens without the columns that are padding in all of it.

    >>> trimmed(torch.tensor([[[5, 6, 0], [1, 1, 0], [0, 0, 0]]])).shape
    torch.Size([1, 3, 2])
    """
    return tokens[..., : max(1, int(tokens[:, MASK].any(0).sum()))]


def _bytes(part: str, array: NDArray[Any]) -> NDArray[Any]:
    """Strings as bytes N × K × L."""
    if not is_text(array) or array.ndim not in (1, 2) or (array.ndim == 2 and array.shape[1] not in (1, 2)):
        raise RequestError(f"x of {part} is {array.dtype} of shape {array.shape}: give a text for each example, or two")
    if array.dtype.kind == "U":
        array = np.char.encode(array, "utf-8", "replace")
    width = array.dtype.itemsize
    rows = np.ascontiguousarray(array).view(np.uint8) if width else np.zeros(array.size, np.uint8)
    return rows.reshape(len(array), array.shape[1] if array.ndim > 1 else 1, max(1, width))
