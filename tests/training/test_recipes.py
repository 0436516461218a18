"""What is done when nothing is said: it fits the data, the time and the settings that there are."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import fallow
from fallow import methods, models
from fallow.data import Data, Examples, load
from fallow.training.recipes import CAREFUL, CLIP, LOOSE, TABLE, duration, kind_of, operations, recipe, said, training
from fallow.training.yardsticks import yardsticks


def some(shape: tuple[int, ...], n: int = 300, classes: int = 3) -> Data:
    """Examples that nobody will look at, and that take no memory, however many."""
    part = Examples(torch.zeros(1).expand(n, *shape), torch.arange(n) % classes)
    return Data("some", part, part, None, [str(c) for c in range(classes)], shape)


SHAPES = {
    "tiny images": (3, 8, 8),
    "grey images": (1, 28, 28),
    "colour images": (3, 32, 32),
    "signals": (2, 100),
    "short signals": (2, 10),
    "tables": (7,),
    "wide tables": (300,),
    "volumes": (1, 8, 9, 10),
    "other": (1, 3, 3),
}


@pytest.mark.parametrize("kind", SHAPES)
def test_every_row_is_a_network_and_settings_that_fit(kind: str) -> None:
    data = some(SHAPES[kind])
    assert kind_of(data.shape) == kind
    found = recipe(data)
    net = models.build(found.pop("model"), shape=data.shape, classes=3)
    assert net(torch.zeros(2, *data.shape)).shape == (2, 3)
    settings = fallow.Settings.of(**found)
    assert settings.schedule == "one-cycle"
    assert settings.augment == ("try" if len(data.shape) > 1 and kind != "other" else "none")


@pytest.mark.parametrize(
    "shape",
    [
        (3, 4, 4),
        (1, 8, 8),
        (4, 8, 200),
        (3, 16, 64),
        (1, 4),
        (12, 5000),
        (1, 64, 64),
        (3, 224, 224),
        (1, 28, 28, 28),
        (2, 4, 64, 64),
    ],
)
@pytest.mark.parametrize(("n", "classes"), [(20, 2), (500, 60), (200_000, 10)])
def test_any_data_have_a_recipe_of_bounded_length(shape: tuple[int, ...], n: int, classes: int) -> None:
    data = some(shape, n, classes)
    found = recipe(data)
    model = found.pop("model")
    assert models.build(model, shape=shape, classes=classes)(torch.zeros(2, *shape)).shape == (2, classes)
    assert found["epochs"] <= 2 or duration(model, data, found) < 1.3 * 60 * TABLE[kind_of(shape)].minutes


def total(data: Data, **how: Any) -> int:
    found = recipe(data, **how)
    return found["generations"] * found["epochs"]


def test_few_examples_are_seen_often_and_many_are_not() -> None:
    assert total(some((1, 28, 28), 240)) == 200
    assert total(some((1, 28, 28), 480)) == 100
    assert total(some((1, 28, 28), 20)) == 200
    assert total(some((1, 28, 28), 6_000)) == 32
    assert total(some((1, 28, 28), 60_000)) < 20


def test_the_time_decides_where_it_is_given() -> None:
    data = some((1, 28, 28), 480)
    usual = duration("scnn:width=16,dense=128,norm=batch", data, recipe(data)) / 60
    assert total(data, minutes=usual / 2) == pytest.approx(50, abs=4)
    assert total(data, minutes=1000) == 400
    assert total(data, minutes=1e-9) == 4
    assert total(data, quick=True) == pytest.approx(25, abs=4)


@pytest.mark.parametrize(("shape", "count"), [((1, 8, 8), 1_150), ((1, 28, 28), 6_000)])
def test_generations_of_a_quick_look_are_long_enough_to_relearn(shape: tuple[int, ...], count: int) -> None:
    assert recipe(some(shape, count), quick=True)["epochs"] == 3  # with one, seal has nothing left to relearn in


def test_a_network_of_ones_own_has_the_rate_that_it_can_bear() -> None:
    data = some((1, 28, 28))
    assert recipe(data, "resnet18:width=4")["lr"] == 0.1
    assert recipe(data, "mlp")["lr"] == CAREFUL  # no norms
    assert recipe(data, "somewhere.module:net")["lr"] == CAREFUL  # nobody looked


def test_numbers_are_learned_from_pictures_and_signals_without_diverging() -> None:
    """Without clipping, the loss became infinite for most seeds."""
    draw = torch.Generator().manual_seed(0)
    for shape, clip in (((1, 64), CLIP), ((3, 24, 24), CLIP), ((20,), LOOSE)):
        x = torch.randn(150, *shape, generator=draw)
        assert recipe(load((x, x.flatten(1)[:, 0]), target="numbers")).get("clip") == clip
    assert "clip" not in recipe(some((1, 64)))
    shade = torch.rand(100, 3, 1, 1, generator=draw)
    data = load((shade + 0.3 * torch.rand(100, 3, 12, 12, generator=draw), shade[:, 0, 0, 0]), target="numbers")
    model, settings = training(data, methods.build("normal"), None, {"augment": "none"}, quick=True)
    assert said(model, settings).endswith("rate up to 0.1, gradients clipped at 1")
    assert fallow.fit(model, data, **settings).last["test_rmse"] < 0.8 * data.test.y.std()


def test_what_is_said_is_what_a_method_does() -> None:
    settings = {"generations": 4, "epochs": 4, "lr": 0.01, "schedule": "cosine", "batch_size": 32}
    words = {name: said("lite0", settings, methods.build(name)) for name in ("llf", "long", "finetune+mixup", "probe")}
    assert words == {
        "llf": "lite0, 4 × 4 epochs in batches of 32, cosine rate from 0.01",
        "long": "lite0, 16 epochs in batches of 32, cosine rate from 0.01",
        "finetune+mixup": "lite0, 5 epochs in batches of 32",
        "probe": "lite0, 1 epoch in batches of 32",
    }


def test_operations_are_twice_the_products() -> None:
    data = some((1, 28, 28))
    net = models.build("scnn:width=2,dense=3,norm=none", shape=data.shape, classes=3)
    products = 28 * 28 * 9 * (1 * 2 + 2 * 2) + 14 * 14 * 9 * (2 * 4 + 4 * 4) + 4 * 49 * 3 + 3 * 3
    assert operations(net, torch.zeros(1, *data.shape)) == 2 * products


def test_ordinary_training_has_all_epochs_and_what_is_given_wins() -> None:
    data = some((1, 28, 28), 240)
    model, found = training(data, methods.build("normal"), None, {"lr": 0.02})
    assert (model, found["generations"], found["epochs"], found["lr"]) == (TABLE["grey images"].model, 1, 200, 0.02)
    assert training(data, methods.build("llf"), None, {})[1]["generations"] == 4
    assert training(data, methods.build("normal"), "mlp", {"epochs": 3})[1]["generations"] == 4


def test_without_validation_nothing_is_tried() -> None:
    data = some((3, 32, 32))
    assert recipe(data)["augment"] == "try"
    data.val = None
    assert recipe(data)["augment"] == "auto"


def test_a_quick_look_beats_a_line_on_digits() -> None:
    data = load("digits", train=240, seed=1)
    found = recipe(data, quick=True)
    found |= {"augment": "none", "epochs": 4}
    result = fallow.fit(found.pop("model"), data, "long", **found, seed=1)
    line = next(each for each in yardsticks(data) if each.name == "logistic")
    assert result.last["test_accuracy"] > line.metrics["test"]["accuracy"]
