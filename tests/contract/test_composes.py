from __future__ import annotations

import itertools

import pytest

import fallow
from fallow.data import Data
from fallow.data.tasks import Episodes
from fallow.methods import REGISTRY, build
from tests.contract.catalogue import ADVICE, MODEL, SETTINGS, SMALL, TASK_MODEL, TASK_SETTINGS, needs, task_needs
from tests.control.small import navigation

pytestmark = ADVICE

UNEVEN = {"born-again", "implicit-decay", "confidence", "lp-ft"}  # their steps do not all cost the same


@pytest.mark.parametrize(("first", "second"), list(itertools.combinations_with_replacement(REGISTRY, 2)))
def test_composes_or_is_refused_with_a_reason(first: str, second: str, images: Data, tasks: Episodes) -> None:
    try:
        method = build(SMALL.get(first, first)) + build(SMALL.get(second, second))
    except fallow.RequestError as error:
        assert "do not go together: " in str(error)
        assert "\n" not in str(error)
        return
    assert first != second
    if any(part.control for part in method.parts):
        try:
            acts = fallow.reinforce("mlp:hidden=4", navigation(), method, iterations=1, meta_batch=2, test_steps=1)
        except fallow.RequestError as error:
            assert "has no part in learning to act" in str(error)
            return
        assert acts.history[-1]["kl"] > 0
        return
    if method.tasks:
        judged = fallow.fewshot(TASK_MODEL, tasks, method, **TASK_SETTINGS, **task_needs(str(method)))
        assert judged.history[-1]["train_loss"] < judged.history[0]["train_loss"]
        return
    result = fallow.fit(MODEL, images, method, **(SETTINGS | {"generations": 2, "epochs": 4}), **needs(str(method)))
    start, *others = (row["train_loss"] for row in result.history)
    assert min(others) < start  # the last may not be: what was forgotten is relearned, and ever more images take part
    if not {first, second} & UNEVEN:
        assert result.passes == pytest.approx(result.steps * method.passes)  # what is spent is what was planned


def test_every_gradient_is_paid_for(images: Data) -> None:
    """SAM asks for two gradients, and each of them brings a weak and a strong view of every image."""
    result = fallow.fit(MODEL, images, "sam+fixmatch:ratio=1,steps=4", **(SETTINGS | {"accumulate": 2}))
    assert result.passes == pytest.approx(result.steps * 2 * (1 + 2))


def test_a_sum_has_the_flags_of_all_its_methods() -> None:
    assert build("ema+llf").generational
    assert build("llf+ema").generational
    assert not build("ema+mixup").generational
    assert build("ema+llf").forgets == {"late"}


def test_both_of_a_sum_take_effect(images: Data) -> None:
    result = fallow.fit(MODEL, images, "llf+seal:scale=1", **SETTINGS)
    assert any(row.get("phase") == "ascent" for row in result.history)
    assert result.generations[-1]["forgot_to"] < 1
