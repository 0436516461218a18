"""Small images inside the page."""

from __future__ import annotations

import base64
import io
from typing import NamedTuple

import numpy as np
from markupsafe import Markup
from PIL import Image

from fallow.report.tags import tag

LARGEST = 80  # pixels of a side: more than a card shows
FEW = 48  # sides below this are enlarged pixel by pixel


class Picture(NamedTuple):
    """An image as a data URI."""

    source: str
    kind: str  # how to enlarge it

    def inline(self, alt: str) -> Markup:
        """For the page."""
        return tag("img", class_=self.kind, src=self.source, alt=alt)


def picture(image: np.ndarray | None) -> Picture | None:
    """A PNG of uint8 C×H×W; None where this is no image. Of channels that are no colours, the first is shown."""
    if image is None or image.ndim != 3 or 0 in image.shape:
        return None
    colours = {1: 1, 3: 3, 4: 4}.get(image.shape[0], 1)
    pixels = np.ascontiguousarray(image[:colours].transpose(1, 2, 0), dtype=np.uint8)
    drawn = Image.fromarray(pixels[:, :, 0] if colours == 1 else pixels)
    few = max(drawn.size) < FEW
    drawn.thumbnail((LARGEST, LARGEST))  # never enlarges
    file = io.BytesIO()
    drawn.save(file, "PNG", optimize=True)
    return Picture(f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}", "pixels" if few else "smooth")
