"""Names: of files from whatever people call their things, and as a terminal may show them."""

from __future__ import annotations

import re

LONGEST = 80  # letters of a part of a file's name
CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")  # all but tabs and the ends of lines


def slug(text: str, most: int = LONGEST) -> str:
    """Text as part of a file's name.

    >>> slug("my images/Ärger: 1")
    'my_images_rger_1'
    """
    return re.sub(r"[^A-Za-z0-9.+=-]+", "_", text).strip("_")[:most]


def visible(text: str) -> str:
    r"""Text without control characters: a name in someone's data or record must not steer the reader's terminal.

    >>> visible("\x1b[31mred")
    '\\x1b[31mred'
    """
    return CONTROLS.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
