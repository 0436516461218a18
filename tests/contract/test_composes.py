from __future__ import annotations

import itertools

import pytest

import fallow
from fallow.data import Data
from fallow.data.tasks import Episodes
from fallow.methods import REGISTRY, build
from tests.contract.catalogue import MODEL, SETTINGS, TASK_MODEL, TASK_SETTINGS


@pytest.mark.parametrize(("first", "second"), list(itertools.combinations_with_replacement(REGISTRY, 2)))
def test_composes_or_is_refused_with_a_reason(first: str, second: str, images: Data, tasks: Episodes) -> None:
    try:
        method = build(first) + build(second)
    except fallow.RequestError as error:
        assert "do not go together: " in str(error)
        assert "\n" not in str(error)
        return
    assert first != second
    if method.tasks:
        judged = fallow.fewshot(TASK_MODEL, tasks, method, **TASK_SETTINGS)
        assert judged.history[-1]["train_loss"] < judged.history[0]["train_loss"]
        return
    result = fallow.fit(MODEL, images, method, **(SETTINGS | {"generations": 2, "epochs": 4}))
    assert result.history[-1]["train_loss"] < result.history[0]["train_loss"]


def test_both_of_a_sum_take_effect(images: Data) -> None:
    result = fallow.fit(MODEL, images, "llf+seal:scale=1", **SETTINGS)
    assert any(row["phase"] == "ascent" for row in result.history)
    assert result.generations[-1]["forgot_to"] < 1
