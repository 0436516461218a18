"""LW's figure 2: a decision tree that says which method wins when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

DEPTH, LEAF = 4, 7  # LW's: the deepest tree, and the fewest settings in a leaf


@dataclass(frozen=True)
class Tree:
    """A question with two answers, or a leaf with the method that won most often there."""

    winner: str
    wins: int  # of how many settings it is the best
    settings: int
    question: str = ""  # "training examples ≤ 750"; empty: a leaf
    yes: Tree | None = None
    no: Tree | None = None

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> list[str]:
        if self.yes is None or self.no is None:
            return [f"{self.winner} (best in {self.wins} of {self.settings})"]
        branches = ((f"{self.question}:", self.yes), ("otherwise:", self.no))
        return [line for head, below in branches for line in (head, *(f"  {text}" for text in below._lines()))]


def grow(designs: Sequence[Mapping[str, float]], winners: Sequence[str]) -> Tree:
    """Grow a tree from the design of each setting and the method that won there.

    A feature that a design does not have is 0 there. With few settings the leaves may be smaller than LW's.

    >>> print(grow([{"examples": n} for n in (50, 100, 1000, 2000)], ["llf", "llf", "long", "long"]))
    examples ≤ 550:
      llf (best in 2 of 2)
    otherwise:
      long (best in 2 of 2)
    """
    from sklearn.tree import DecisionTreeClassifier

    names = list(dict.fromkeys(name for design in designs for name in design))
    table = np.array([[design.get(name, 0.0) for name in names] for design in designs])
    leaf = min(LEAF, max(1, len(designs) // 4))
    fitted = DecisionTreeClassifier(max_depth=DEPTH, min_samples_leaf=leaf, random_state=0).fit(table, winners)
    inner, labels = fitted.tree_, np.array(winners)
    reaches = fitted.decision_path(table).toarray().astype(bool)  # setting × node

    def node(i: int) -> Tree:
        here = labels[reaches[:, i]]
        kinds, counts = np.unique(here, return_counts=True)
        best = int(counts.argmax())
        leaf = Tree(str(kinds[best]), int(counts[best]), len(here))
        if inner.children_left[i] < 0:
            return leaf
        name, edge = names[inner.feature[i]], float(inner.threshold[i])
        binary = set(np.unique(table[:, inner.feature[i]])) <= {0.0, 1.0} and name.startswith("the model is")
        question = name.replace("is", "is not", 1) if binary else f"{name} ≤ {edge:g}"
        below, above = node(inner.children_left[i]), node(inner.children_right[i])
        return Tree(leaf.winner, leaf.wins, leaf.settings, question, below, above)

    return node(0)
