"""What to do when nothing is said: a network, its inner loop and its meta-training, by the kind of the tasks.

The line of grey images was chosen by measurement on Omniglot (``docs/evidence.md``). Colour images have it with a
smaller α: 400 iterations of CIFAR-FS, 5-way 5-shot, end with 40.5 % on validation tasks at .1 (meta-rate .003), 40.7 at
.1 (.001) and 37.4 at .4 (.001). Curves have the settings of L2F's supplement.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TaskRecipe:
    """One line of the table."""

    model: str
    steps: int  # of the inner loop
    rate: float  # α, of the inner loop
    evaluate_steps: int | None  # where more of them judge than train
    lr: float  # of the meta-optimiser, Adam
    schedule: str
    meta_batch: int
    iterations: int


#                      model                      steps  α  at test  meta-rate           tasks iterations
CURVES = TaskRecipe("mlp:hidden=40,40,init=torch", 5, 0.01, None, 1e-3, "constant", 4, 30_000)
GREY = TaskRecipe("conv4:width=32", 1, 0.4, 3, 3e-3, "cosine", 4, 15_000)
COLOUR = TaskRecipe("conv4:width=32", 1, 0.1, 3, 3e-3, "cosine", 4, 15_000)
OTHER = TaskRecipe("mlp", 5, 0.01, None, 1e-3, "constant", 4, 30_000)


def recipe_of(shape: tuple[int, ...]) -> TaskRecipe:
    """The line that labelled examples of a shape belong to; what conv4's four poolings cannot halve is no picture here.

    >>> recipe_of((1, 28, 28)).rate, recipe_of((640,)).model
    (0.4, 'mlp')
    """
    if len(shape) != 3 or min(shape[1:]) < 16:
        return OTHER
    return GREY if shape[0] == 1 else COLOUR
