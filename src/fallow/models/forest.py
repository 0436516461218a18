"""scikit-learn's forests as tensors: a network that can be kept as weights like any other, never as a pickle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fallow.models.chunks import by_chunks
from fallow.models.linear import FLOOR

CHUNK = 128  # examples whose leaves in all trees are looked at together


class Forest(nn.Module):
    """Trees in one row of nodes: z = base + Σ over trees of the value of the leaf that an example falls into.

    Node i sends an example to ``left[i]`` where its ``feature[i]`` is at most ``threshold[i]``, else to ``right[i]``;
    a leaf sends it to itself. ``of`` classes, z are probabilities, or logits with ``odds``; of labels, the probability
    or the log-odds of each; of numbers the output itself. No probability is below 10⁻⁶.
    """

    feature: Tensor
    threshold: Tensor
    left: Tensor
    right: Tensor
    value: Tensor
    roots: Tensor
    base: Tensor

    def __init__(self, of: str = "classes", odds: bool = False, **nodes: Tensor) -> None:
        super().__init__()
        for name in ("feature", "threshold", "left", "right", "value", "roots", "base"):
            self.register_buffer(name, nodes[name])
        own = torch.arange(len(self.feature))
        if bool((self.left < own).any() or (self.right < own).any()):
            raise TypeError("every node of a tree must come after the one above it: these turn back")
        self.of, self.odds = of, odds
        self.depth = _depth(self.left, self.right, self.roots.long())

    def forward(self, x: Tensor) -> Tensor:
        """What the trees say together of every example."""
        z = by_chunks(self._sum, x.flatten(1).double(), CHUNK)
        if self.of == "numbers":
            return z.float()
        p = z if not self.odds else z.softmax(1) if self.of == "classes" else z.sigmoid()
        p = p.clamp(FLOOR, 1 - FLOOR)
        return (p.log() if self.of == "classes" else p.logit()).float()

    def _sum(self, x: Tensor) -> Tensor:
        at = self.roots.long().expand(x.shape[0], -1)
        for _ in range(self.depth):
            right = x.gather(1, self.feature[at].long()) > self.threshold[at]
            at = torch.where(right, self.right[at], self.left[at]).long()
        return self.base + self.value[at].sum(1, dtype=torch.float64)


def _depth(left: Tensor, right: Tensor, roots: Tensor) -> int:
    """Steps from the roots to the deepest leaf, which leads to itself."""
    level, depth = roots, 0
    while len(level := level[left[level] != level]):
        level, depth = torch.cat([left[level], right[level]]).long(), depth + 1
    return depth


def bagged(forests: Sequence[Any], outputs: int, kind: str) -> dict[str, Tensor]:
    """The nodes of fitted ``ExtraTrees`` or ``RandomForests``: one of all classes, or one for every label or number."""
    trees = []
    for place, forest in enumerate(forests):
        for tree in (each.tree_ for each in forest.estimators_):
            said = tree.value[:, 0] / len(forest.estimators_)  # (nodes, classes), or (nodes, 1) of numbers
            value = np.zeros((len(said), outputs))
            if kind == "classes":
                value[:, forest.classes_] = said
            elif kind == "labels":  # of those that some examples have: its probability
                value[:, place] = said[:, forest.classes_ == 1].sum(1)
            else:
                value[:, place] = said[:, 0]
            leaf = tree.children_left < 0
            trees.append((leaf, tree.feature, tree.threshold, tree.children_left, tree.children_right, value))
    return _row(trees, np.zeros(outputs))


def boosted(forests: Sequence[Any], outputs: int, kind: str) -> dict[str, Tensor]:
    """The nodes of fitted ``HistGradientBoosting``: one of all classes, or one for every label or number."""
    trees = []
    base = np.full(outputs, -np.inf if kind == "classes" else 0.0)
    for place, forest in enumerate(forests):
        start = forest._baseline_prediction.reshape(-1)
        where = [place]
        if kind == "classes":  # of two classes there is one tree, of the log-odds of the second
            base[forest.classes_] = 0.0
            where = list(forest.classes_[-len(start) :])
        sure = kind == "labels" and len(forest.classes_) == 1  # all examples have the label, or none
        base[where] = np.copysign(np.inf, forest.classes_[0] - 0.5) if sure else start
        for column, grown in zip(where, zip(*forest._predictors, strict=True), strict=True):
            for nodes in (each.nodes for each in grown):
                value = np.zeros((len(nodes), outputs))
                value[:, column] = nodes["value"]
                leaf = nodes["is_leaf"].astype(bool)
                trees.append((leaf, nodes["feature_idx"], nodes["num_threshold"], nodes["left"], nodes["right"], value))
    return _row(trees, base)


def _row(trees: Sequence[tuple[np.ndarray, ...]], base: np.ndarray) -> dict[str, Tensor]:
    """All nodes one after another; a leaf leads to itself, and other nodes have no value."""
    sizes = [len(leaf) for leaf, *_ in trees]
    roots = np.cumsum([0, *sizes[:-1]])
    leaf, feature, threshold, left, right, value = (np.concatenate(column) for column in zip(*trees, strict=True))
    own, start = np.arange(len(leaf)), np.repeat(roots, sizes)
    value[~leaf] = 0.0
    return {
        "feature": torch.from_numpy(np.where(leaf, 0, feature).astype(np.int32)),
        "threshold": torch.from_numpy(np.where(leaf, 0.0, threshold)),
        "left": torch.from_numpy(np.where(leaf, own, left + start).astype(np.int32)),
        "right": torch.from_numpy(np.where(leaf, own, right + start).astype(np.int32)),
        "value": torch.from_numpy(value.astype(np.float32)),
        "roots": torch.from_numpy(roots.astype(np.int32)),
        "base": torch.from_numpy(base),
    }
