"""Numbers, names and verdicts as a reader wants them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

SIGNS = {"better": "▲", "worse": "▼", "baseline": "◇", "control": "□", "failed": "×",
         "undecided": "●", "no different": "="}  # fmt: skip
MINUS, NARROW = "\u2212", "\u202f"  # a true minus; a narrow space that does not break
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
# what XML cannot hold: control characters, and the lone surrogates of file names that are not UTF-8
ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def clean(text: Any) -> str:
    r"""Text that every format can hold.

    >>> clean("a\x00b\udcff")
    'a�b�'
    """
    return ILLEGAL.sub("\ufffd", str(text))


def brief(text: Any, limit: int) -> str:
    """Text of at most so many characters.

    >>> brief("seal:ascent=adaptive", 8)
    'seal:as…'
    """
    whole = clean(text)
    return whole if len(whole) <= limit else whole[: limit - 1] + "…"


def capitalised(text: str) -> str:
    """As a sentence begins.

    >>> capitalised("macro F1")
    'Macro F1'
    """
    return text[:1].upper() + text[1:]


def breakable(text: Any) -> Markup:
    """A name, escaped, that may go on in the next line after a sign or many letters, but not within a short word.

    >>> breakable("seal:share=0.3")
    Markup('seal:<wbr>share=<wbr>0.3')
    """
    marked = re.sub(r"([^\w\s.](?=\w)|[\w.]{16}(?=[\w.]{2}))", "\\1\0", clean(text))  # clean leaves no \0
    return Markup("<wbr>").join(marked.split("\0"))


def percent(share: float | None, digits: int = 1) -> str:
    """A share in per cent, without the sign; an interval's end beyond what accuracy can be stops there.

    >>> percent(0.9731), percent(1.02), percent(None)
    ('97.3', '100.0', '–')
    """
    return "–" if share is None else f"{100 * min(1.0, max(0.0, share)):.{digits}f}"


def points(difference: float, digits: int = 1) -> str:
    """A difference in percentage points, with its sign; an interval's end beyond what it can be stops there.

    >>> points(-0.0123), points(0.004), points(-0.0001), points(1.5)
    ('−1.2', '+0.4', '0.0', '+100.0')
    """
    text = f"{100 * min(1.0, max(-1.0, difference)):+.{digits}f}"
    return text[1:] if float(text) == 0 else text.replace("-", MINUS)


def number(value: float | None, digits: int = 4) -> str:
    """A number with so many digits that count; very large and very small ones by powers of ten.

    >>> number(0.12345), number(-1234.5, 5), number(2.5e-7), number(1e9), number(None)
    ('0.1235', '−1234.5', '2.5·10⁻⁷', '10⁹', '–')
    """
    if value is None:
        return "–"
    if not math.isfinite(value):
        return str(value)
    value += 0.0  # −0.0 is 0
    if value == 0 or 1e-4 <= abs(value) < 1e6:
        return f"{value:.{max(digits, math.floor(math.log10(abs(value))) + 1) if value else 1}g}".replace("-", MINUS)
    mantissa, power = f"{value:.{digits - 1}e}".split("e")
    mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    times = {"1": "", "-1": MINUS}.get(mantissa, mantissa.replace("-", MINUS) + "·")
    return f"{times}10{str(int(power)).translate(RAISED)}"


def signed(value: float, digits: int = 3) -> str:
    """A number with its sign.

    >>> signed(0.25), signed(-0.5), signed(-0.0)
    ('+0.25', '−0.5', '0')
    """
    return f"+{number(value, digits)}" if value > 0 else number(value, digits)


def many(count_of: int, what: str) -> str:
    """A count and what it is of.

    >>> many(1, "seed"), many(3, "seed")
    ('1 seed', '3 seeds')
    """
    return f"{count(count_of)} {what}{'' if count_of == 1 else 's'}"


def listed(names: Sequence[str]) -> str:
    """Names in a sentence.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def p_value(p: float) -> str:
    """A p-value with three digits.

    >>> p_value(0.0312), p_value(0.00004)
    ('0.031', '< 0.001')
    """
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def count(number: float | None) -> str:
    """A count in groups of three digits.

    >>> count(12345).replace(NARROW, " "), count(None)
    ('12 345', '–')
    """
    return "–" if number is None else f"{number:,.0f}".replace(",", NARROW)


def duration(seconds: float | None) -> str:
    """A time.

    >>> [duration(s).replace(NARROW, " ") for s in (0.25, 42, 200, 5000)]
    ['0.2 s', '42.0 s', '3 min 20 s', '1 h 23 min']
    """
    if seconds is None:
        return "–"
    if seconds < 60:
        return f"{seconds:.1f}{NARROW}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}{NARROW}min {rest}{NARROW}s"
    return f"{minutes // 60}{NARROW}h {minutes % 60}{NARROW}min"


def roughly(seconds: float) -> str:
    """A time that is only estimated.

    >>> [roughly(s) for s in (20, 100, 700, 8000, 200000)]
    ['less than a minute', 'about 2 minutes', 'about 12 minutes', 'about 2.2 hours', 'about 2.3 days']
    """
    if seconds < 50:
        return "less than a minute"
    minutes = round(seconds / 60) or 1
    if minutes < 100:
        return f"about {many(minutes, 'minute')}"
    hours = seconds / 3600
    return f"about {hours:.1f} hours" if hours < 48 else f"about {hours / 24:.1f} days"


def plain(value: Any) -> str:
    """A setting in words.

    >>> plain({"a": 1, "b": [2, "x"], "c": True})
    'a = 1; b = 2, x; c = yes'
    """
    if isinstance(value, dict):
        return "; ".join(f"{key} = {plain(inner)}" for key, inner in value.items()) or "none"
    if isinstance(value, list | tuple | set):
        return ", ".join(plain(inner) for inner in value) or "none"
    if value is None or isinstance(value, bool):
        return {True: "yes", False: "no", None: "none"}[value]
    return clean(value)
