"""The confusion of the best model as a heat map."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from fallow.report.svg import EM, Drawing, group, text
from fallow.report.tags import tag
from fallow.report.words import clean

TALLEST = 60.0  # of a turned label


def confusion(classes: Sequence[str], table: Sequence[Sequence[int]]) -> Drawing:
    """Rows: the true class. The diagonal has a colour of its own, so that the mistakes stand out."""
    n = len(classes)
    side = 34.0 if n <= 12 else 27.0
    longest = max(len(clean(name)) for name in classes)
    left = 30 + min(100.0, 6 + EM * longest)
    turned = EM * longest > side - 4
    top = 24 + (min(TALLEST, 6 + 0.75 * EM * longest) if turned else 16.0)
    worst = max((table[i][j] for i in range(n) for j in range(n) if i != j), default=0)
    pieces = [
        text(left + side * n / 2, 13, "predicted", "soft", "middle"),
        tag(
            "text",
            "true",
            x=0,
            y=0,
            class_="soft",
            text_anchor="middle",
            transform=f"translate(13 {top + side * n / 2:.1f}) rotate(-90)",
        ),
    ]
    for i, name in enumerate(classes):
        pieces.append(text(left - 6, top + side * (i + 0.5) + 4, name, None, "end", limit=int((left - 30) / EM)))
        x = left + side * (i + 0.5)
        if turned:
            label = text(0, 0, name, limit=int(TALLEST / EM / 0.75))
            pieces.append(group(label, transform=f"translate({x:.1f} {top - 6:.1f}) rotate(-45)"))
        else:
            pieces.append(text(x, top - 6, name, None, "middle"))
    for i, row in enumerate(table):
        total = max(1, sum(row))
        for j, value in enumerate(row):
            x, y = left + side * j, top + side * i
            strength = 0.45 * value / total if i == j else (0.12 + 0.43 * value / max(worst, 4) if value else 0.0)
            kind = "right" if i == j else "wrong"
            box = tag("rect", x=x, y=y, width=side, height=side, class_=kind, fill_opacity=f"{strength:.2f}")
            frame = tag("rect", x=x, y=y, width=side, height=side, class_="rule")
            number = [text(x + side / 2, y + side / 2 + 4, str(value), None, "middle")] if value else []
            pieces.append(group(box, frame, *number))
    right = sum(table[i][i] for i in range(n))
    total = sum(map(sum, table))
    says = (
        f"Confusion of {n} classes: {right} of {total} test examples are right; the table beside it lists the mistakes"
    )
    extra = 0.75 * min(TALLEST, EM * longest) if turned else 0.0  # the last label leans beyond the cells
    return Drawing(left + side * n + 6 + extra, top + side * n + 6, Markup("").join(pieces), says)
