"""Names of files from whatever people call their things."""

from __future__ import annotations

import re

LONGEST = 80  # letters of a part of a file's name


def slug(text: str, most: int = LONGEST) -> str:
    """Text as part of a file's name.

    >>> slug("my images/Ärger: 1")
    'my_images_rger_1'
    """
    return re.sub(r"[^A-Za-z0-9.+=-]+", "_", text).strip("_")[:most]
