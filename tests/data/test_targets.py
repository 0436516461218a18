"""Targets: losses, predictions, strata, mixtures and distances, each against its formula."""

from __future__ import annotations

import json
import math
import pickle

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from fallow.base.errors import RequestError
from fallow.data.targets import Classes, Dense, Labels, Numbers, Target

DRAW = torch.Generator().manual_seed(0)
THREE = Classes(["a", "b", "c"])
PRICES = Numbers(["price", "size"], [10.0, -2.0], [4.0, 0.5])
PRICE = Numbers(["price"], [10.0], [4.0])
SIGNS = Labels(["oedema", "fracture", "nodule"])
MASKS = Dense(["nothing", "tumour"])
ALL = (THREE, PRICES, PRICE, SIGNS, MASKS)


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=DRAW, dtype=torch.float64)


def example(target: Target, n: int = 8) -> tuple[Tensor, Tensor, Tensor]:
    """An output, and two answers, as batches have them."""
    if isinstance(target, Classes):
        return normal(n, 3), torch.randint(3, (n,), generator=DRAW), torch.randint(3, (n,), generator=DRAW)
    if isinstance(target, Labels):
        return normal(n, 3), (normal(n, 3) > 0).float(), (normal(n, 3) > 0).float()
    if isinstance(target, Dense):
        return normal(n, 2, 5, 4), (normal(n, 5, 4) > 0).long(), (normal(n, 5, 4) > 0).long()
    shape = (n, target.outputs) if target.outputs > 1 else (n,)
    return normal(n, target.outputs), 9 + normal(*shape).float(), 9 + normal(*shape).float()


@pytest.mark.parametrize("target", ALL, ids=repr)
def test_what_every_target_does(target: Target) -> None:
    output, y, other = example(target)
    assert Target.of(json.loads(json.dumps(target.describe()))) == target
    assert pickle.loads(pickle.dumps(target)) == target
    assert target.check(output.shape, y.shape) == ""
    loss = target.loss(output, y)
    assert loss.shape == ()
    plain = target.training_loss(0.0)
    assert torch.equal(plain(output, y), loss)
    assert target.loss(output.bfloat16(), y).isfinite()
    prediction = target.decode(output.float().requires_grad_())
    assert prediction.dtype == torch.float64
    for metric in target.metrics.values():
        assert math.isfinite(metric.compute(prediction.numpy(), y.numpy()))
        assert math.isfinite(target.chance(y, metric.name))
    assert torch.allclose(target.mixed(plain, output, y, other, 1.0), loss)
    assert torch.allclose(target.mixed(plain, output, y, other, 0.0), target.loss(output, other))
    assert float(target.distance(output, output, 3.0)) == pytest.approx(0, abs=1e-12)
    assert float(target.distance(output, -output, 3.0)) > 0
    assert torch.equal(target.cast(y, torch.zeros(8, 1, 5, 4)), y)


def test_unknown_names() -> None:
    with pytest.raises(RequestError, match="unknown metric of numbers 'acuracy'"):
        PRICE.metric("acuracy")
    with pytest.raises(RequestError, match="did you mean 'macro-f1'"):
        THREE.metric("macrof1")
    with pytest.raises(RequestError, match="unknown kind of target 'class'"):
        Target.of({"kind": "class", "names": []})
    assert [target.metric().name for target in ALL] == ["accuracy", "rmse", "rmse", "macro-auroc", "dice"]


def test_classes_are_as_before_to_the_bit() -> None:
    z, y, _ = example(THREE)
    z = z.float()
    assert torch.equal(THREE.loss(z, y), functional.cross_entropy(z, y))
    for smoothing in (0.0, 0.1, 0.3):
        assert torch.equal(
            THREE.training_loss(smoothing)(z, y), functional.cross_entropy(z, y, label_smoothing=smoothing)
        )
    assert THREE.strata(y) is y
    teacher = torch.randn(8, 3, generator=DRAW)
    for temperature in (1.0, 1.7):
        wanted = functional.log_softmax(teacher / temperature, 1)
        found = functional.log_softmax(z / temperature, 1)
        kl = functional.kl_div(found, wanted, reduction="batchmean", log_target=True)
        assert torch.equal(THREE.distance(z, teacher, temperature), kl)
    share = 0.3
    mixed = share * functional.cross_entropy(z, y) + (1 - share) * functional.cross_entropy(z, y.roll(1, 0))
    assert torch.equal(THREE.mixed(functional.cross_entropy, z, y, y.roll(1, 0), share, (..., slice(2))), mixed)


def test_rounding_decides_nothing() -> None:
    z = torch.tensor([[80.0, 80.00001, -5.0], [0.25, 0.25 + 3e-8, 0.0]])
    assert torch.equal(THREE.decode(z).argmax(1), z.argmax(1))
    assert torch.equal(THREE.decode(z), z.double().softmax(1))


def test_shapes_are_refused() -> None:
    assert THREE.check((2, 5)) == ""  # more outputs than classes are no harm
    text = THREE.check((2, 2))
    assert text == "the model gives (2,) for an example: 3 classes need 3 numbers"
    assert THREE.check((2, 3, 4, 4)) != ""
    assert PRICE.check((2,)) == ""
    assert PRICE.check((2, 2)) == "the model gives (2,) for an example: 1 number is needed"
    assert PRICES.check((2,)) != ""
    assert SIGNS.check((2, 4)) == "the model gives (4,) for an example: 3 labels need 3 numbers"
    assert MASKS.check((2, 2, 8, 8)) == ""
    assert MASKS.check((2, 2, 4, 4), (2, 8, 8)) == (
        "the model gives (2, 4, 4) for an example: 2 classes of pixels need 2 channels of 8×8"
    )
    assert MASKS.check((2, 2)) != ""


def test_smoothing_is_for_classes() -> None:
    for target in (PRICE, SIGNS):
        assert target.training_loss() == target.loss  # nobody asked for it
        with pytest.raises(RequestError, match="smooths classes"):
            target.training_loss(0.2)
    z, y, _ = example(MASKS)
    assert torch.equal(MASKS.training_loss(0.2)(z, y), functional.cross_entropy(z, y, label_smoothing=0.2))


@pytest.mark.parametrize("target", [PRICES, PRICE], ids=repr)
def test_numbers(target: Numbers) -> None:
    z, y, other = example(target)
    std, mean = torch.tensor(target.std, dtype=torch.float64), torch.tensor(target.mean, dtype=torch.float64)
    found = z * std + mean
    assert torch.equal(target.decode(z), found)
    errors = (found - y.double().reshape(found.shape)) / std
    assert float(target.loss(z, y)) == pytest.approx(float(errors.square().mean()), rel=1e-12)
    halfway = target.loss(z, 0.75 * y + 0.25 * other)
    assert float(target.mixed(target.loss, z, y, other, 0.75)) == pytest.approx(float(halfway), rel=1e-6)
    teacher = normal(*z.shape)
    assert float(9 * target.distance(z, teacher, 3.0)) == pytest.approx(float((z - teacher).square().mean()), rel=1e-12)
    assert target.chance(y, "r2") == pytest.approx(0, abs=1e-12)
    spread = y.double().reshape(len(y), -1).std(0, correction=0).mean()
    assert target.chance(y) == pytest.approx(float(spread), rel=1e-12)


def test_one_number_may_have_an_axis_or_none() -> None:
    z, y, _ = example(PRICE)
    loss = PRICE.loss(z, y)
    assert torch.equal(PRICE.loss(z[:, 0], y), loss)
    assert torch.equal(PRICE.loss(z, y[:, None]), loss)
    assert PRICE.decode(z[:, 0]).shape == (8, 1)
    assert PRICE.cast(y[:, None].double(), z).shape == (8,)
    assert PRICES.cast(normal(8, 2), z).shape == (8, 2)


def test_numbers_know_their_training_examples() -> None:
    y = torch.tensor([1.0, 3.0, 1.0, 3.0])
    assert Numbers(["price"]).fitted(y) == Numbers(["price"], [2.0], [1.0])
    assert Numbers(["price"]) == Numbers(["price"], [0.0], [1.0])
    both = torch.stack([y, torch.full((4,), 7.0)], 1)
    with pytest.raises(RequestError, match="'b' is 7 in all 4 training examples"):
        Numbers(["a", "b"]).fitted(both)
    assert THREE.fitted(y) is THREE


def test_numbers_are_binned_by_rank() -> None:
    y = torch.rand(95, generator=DRAW).exp()
    strata = PRICE.strata(y)
    assert strata is not None
    assert strata.bincount().tolist() == [11, 11, 10, 11, 10, 11, 10, 11, 10]
    order = strata[y.argsort()]
    assert torch.equal(order, order.sort().values)
    assert PRICE.strata(y[:19]) is None
    assert PRICES.strata(torch.rand(95, 2)) is None
    ties = PRICE.strata(torch.zeros(40))
    assert ties is not None
    assert ties.bincount().tolist() == [10] * 4


def test_labels() -> None:
    z, y, other = example(SIGNS)
    p, soft = z.sigmoid(), 0.75 * y.double() + 0.25 * other.double()
    assert torch.allclose(SIGNS.decode(z), p)

    def entropy(y: Tensor) -> Tensor:
        return -(y * p.log() + (1 - y) * (1 - p).log()).mean()

    assert float(SIGNS.loss(z, y)) == pytest.approx(float(entropy(y.double())), rel=1e-12)
    assert float(SIGNS.loss(z, y.to(torch.uint8))) == float(SIGNS.loss(z, y))
    assert float(SIGNS.mixed(SIGNS.loss, z, y, other, 0.75)) == pytest.approx(float(entropy(soft)), rel=1e-12)
    teacher = normal(8, 3)
    q, p2 = (teacher / 2).sigmoid(), (z / 2).sigmoid()
    kl = (q * (q / p2).log() + (1 - q) * ((1 - q) / (1 - p2)).log()).mean()
    assert float(SIGNS.distance(z, teacher, 2.0)) == pytest.approx(float(kl), rel=1e-12)
    assert SIGNS.chance(y) == 0.5


def test_labels_are_stratified_by_the_rarest() -> None:
    y = torch.zeros(100, 3)
    y[:60, 0] = 1
    y[:20, 1] = 1
    y[10:14, 2] = 1  # the rarest, but too rare to balance
    strata = SIGNS.strata(y)
    assert strata is not None
    assert strata[:10].tolist() == [1] * 10
    assert strata[10:14].tolist() == [0] * 4  # with the most common
    assert strata[14:20].tolist() == [1] * 6
    assert strata[20:60].tolist() == [0] * 40
    assert strata[60:].tolist() == [3] * 40  # no label at all
    assert SIGNS.strata(y[:8]) is None


def test_dense() -> None:
    z, y, other = example(MASKS)
    log_p = z.log_softmax(1)
    loss = -log_p.gather(1, y[:, None]).mean()
    assert float(MASKS.loss(z, y)) == pytest.approx(float(loss), rel=1e-12)
    assert torch.allclose(MASKS.decode(z), log_p.exp())
    expected = 0.75 * MASKS.loss(z, y) + 0.25 * MASKS.loss(z, other)
    assert torch.equal(MASKS.mixed(MASKS.loss, z, y, other, 0.75), expected)
    box = (..., slice(1, 3), slice(2, 4))
    cut = y.clone()
    cut[:, 1:3, 2:4] = other[:, 1:3, 2:4]
    kept = y.clone()
    assert torch.equal(MASKS.mixed(MASKS.loss, z, y, other, 0.8, box), MASKS.loss(z, cut))
    assert torch.equal(y, kept)
    teacher = normal(8, 2, 5, 4)
    kl = sum(
        Classes(["a", "b"]).distance(z[:, :, i, j], teacher[:, :, i, j], 2.0) for i, j in np.ndindex(5, 4)
    ) / (5 * 4)  # fmt: skip
    assert float(MASKS.distance(z, teacher, 2.0)) == pytest.approx(float(kl), rel=1e-12)
    assert MASKS.strata(y) is None
    assert torch.equal(MASKS.cast(y[:, None].to(torch.uint8), z), y)
    assert MASKS.chance(torch.tensor([[[0, 0, 1]], [[0, 0, 0]]])) == 0


def test_chance_of_classes() -> None:
    y = torch.tensor([0, 0, 0, 1, 2])
    assert THREE.chance() == 1 / 3
    assert THREE.chance(y) == 0.6
    assert THREE.chance(y, "auroc") == 0.5
    entropy = -(0.6 * math.log(0.6) + 0.4 * math.log(0.2))
    assert THREE.chance(y, "log-loss") == pytest.approx(entropy, rel=1e-12)
