"""What was understood of a data set, in one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fallow.data.targets import Target

NAMED, LONGEST = 6, 24  # so many names of so many letters are still read
MOVES = {
    "none": "not augmented",
    "flip": "augmented by mirroring",
    "crop": "augmented by shifts",
    "flip+crop": "augmented by shifts and mirroring",
    "reflect": "augmented by shifts",
    "flip+reflect": "augmented by shifts and mirroring",
    "crop+cutout": "augmented by shifts and cut-out squares",
    "flip+crop+cutout": "augmented by shifts, mirroring and cut-out squares",
    "try": "augmented as validation chooses",
}


def kind(shape: Sequence[int], equal: bool = False) -> str:
    """What examples of a shape are; ``equal`` says that their channels are.

    >>> kind((1, 28, 28)), kind((3, 64, 48)), kind((12, 1000)), kind((20,))
    ('grey images of 28×28', 'colour images of 64×48', 'signals of length 1000 in 12 channels', 'rows of 20 features')
    """
    size = "×".join(map(str, shape[1:]))
    if len(shape) == 1:
        return f"rows of {shape[0]} feature{'s' * (shape[0] != 1)}"
    if len(shape) == 2:
        return f"signals of length {size}" + (f" in {shape[0]} channels" if shape[0] > 1 else "")
    channels = f" in {shape[0]} channels"
    if len(shape) == 4:
        return f"volumes of {size}" + channels * (shape[0] > 1)
    if len(shape) == 3 and (shape[0] == 1 or equal):
        return f"grey images of {size}" + " in 3 equal channels" * (shape[0] > 1)
    if len(shape) == 3 and shape[0] == 3:
        return f"colour images of {size}"
    return f"images of {size}{channels}" if len(shape) == 3 else f"examples of shape {tuple(shape)}"


def wanted(target: Target) -> str:
    """What is learned, by name where that tells something: a folder that is no class shows itself.

    >>> from fallow.data.targets import Classes, Numbers
    >>> wanted(Classes(["cat", "dog"])), wanted(Classes(["0", "1"])), wanted(Numbers(["price"]))
    ('2 classes (cat, dog)', '2 classes', 'a number to predict')
    """
    many = target.outputs
    if target.kind == "numbers":
        return "a number to predict" if many == 1 else f"{many} numbers to predict"
    plain = list(target.names) == [str(place) for place in range(many)]
    named = "" if plain or many > NAMED else f" ({', '.join(map(_short, target.names))})"
    return {"dense": f"{many} classes of pixels{named}", "labels": f"{many} labels{named}, any number at once"}.get(
        target.kind, f"{many} classes{named}"
    )


def _short(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"
