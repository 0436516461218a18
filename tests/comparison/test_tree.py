from __future__ import annotations

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

from fallow.comparison.tree import DEPTH, LEAF, Tree, grow


def leaves(tree: Tree) -> list[Tree]:
    if tree.yes is None or tree.no is None:
        return [tree]
    return leaves(tree.yes) + leaves(tree.no)


def depth(tree: Tree) -> int:
    return 0 if tree.yes is None or tree.no is None else 1 + max(depth(tree.yes), depth(tree.no))


def test_one_winner_is_one_leaf() -> None:
    tree = grow([{"examples": n} for n in (10, 20, 30)], ["llf"] * 3)
    assert tree == Tree("llf", 3, 3)
    assert str(tree) == "llf (best in 3 of 3)"


def test_a_single_setting() -> None:
    assert grow([{"examples": 10.0}], ["ema"]) == Tree("ema", 1, 1)


def test_a_model_is_asked_for_by_name() -> None:
    designs = [{"examples": 1.0, "the model is scnn": 1.0}, {"examples": 1.0, "the model is mlp": 1.0}] * 3
    tree = grow(designs, ["llf", "long"] * 3)
    assert tree.question in ("the model is not scnn", "the model is not mlp")
    assert tree.yes is not None
    assert tree.yes.winner == ("long" if "scnn" in tree.question else "llf")
    assert str(tree).splitlines()[0] == f"{tree.question}:"
    assert str(tree).splitlines()[2] == "otherwise:"


@pytest.mark.parametrize("seed", range(3))
def test_it_says_what_scikit_learn_fitted(seed: int) -> None:
    draw = np.random.default_rng(seed)
    designs = [{"a": float(a), "b": float(b)} for a, b in draw.integers(0, 50, (60, 2))]
    winners = ["llf" if d["a"] + draw.normal(0, 5) > d["b"] else "long" if d["a"] > 20 else "ema" for d in designs]
    tree = grow(designs, winners)
    assert depth(tree) <= DEPTH
    assert sum(leaf.settings for leaf in leaves(tree)) == 60
    assert all(leaf.settings >= LEAF for leaf in leaves(tree))
    fitted = DecisionTreeClassifier(max_depth=DEPTH, min_samples_leaf=LEAF, random_state=0)
    fitted.fit([[d["a"], d["b"]] for d in designs], winners)

    def answer(tree: Tree, design: dict[str, float]) -> Tree:
        if tree.yes is None or tree.no is None:
            return tree
        name, _, edge = tree.question.partition(" ≤ ")
        return answer(tree.yes if design[name] <= float(edge) else tree.no, design)

    found = [answer(tree, design) for design in designs]
    assert [leaf.winner for leaf in found] == list(fitted.predict([[d["a"], d["b"]] for d in designs]))
    assert sum(leaf.wins for leaf in leaves(tree)) == sum(a.winner == w for a, w in zip(found, winners, strict=True))
