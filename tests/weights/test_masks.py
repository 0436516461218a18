import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from torch import nn

from fallow.base.errors import RequestError
from fallow.weights import matrices, random_mask, redraw, smallest


def draw(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def tensors(*shapes: tuple[int, ...]) -> dict[str, torch.Tensor]:
    source = draw(7)
    return {f"w{i}": torch.randn(shape, generator=source) for i, shape in enumerate(shapes)}


def lowest(values: np.ndarray, count: int) -> np.ndarray:
    """The reference: sort by magnitude, then by position, and take the first."""
    flat = np.abs(values).ravel()
    order = sorted(range(flat.size), key=lambda i: (flat[i], i))
    mask = np.zeros(flat.size, dtype=bool)
    mask[order[:count]] = True
    return mask.reshape(values.shape)


@pytest.mark.parametrize("fraction", [0.01, 0.2, 0.5, 0.99])
def test_random_masks_have_the_exact_number(fraction):
    weights = tensors((4, 5), (7, 3, 3, 3), (1, 1))
    masks = random_mask(weights, fraction, draw())
    assert masks.keys() == weights.keys()
    for name, weight in weights.items():
        assert masks[name].dtype == torch.bool
        assert masks[name].shape == weight.shape
        assert masks[name].sum() == round(fraction * weight.numel())


def test_every_position_is_as_likely_as_any_other():
    source, weights = draw(), tensors((4, 5), (2, 3))
    counts = {name: torch.zeros(weight.shape) for name, weight in weights.items()}
    for _ in range(2000):
        for name, mask in random_mask(weights, 0.3, source).items():
            counts[name] += mask
    for name in weights:
        assert chisquare(counts[name].flatten().numpy()).pvalue > 0.01


def test_the_seed_decides():
    weights = tensors((8, 8), (8, 8))
    first, second, other = (random_mask(weights, 0.5, draw(seed)) for seed in (1, 1, 2))
    assert all(torch.equal(first[name], second[name]) for name in weights)
    assert not torch.equal(first["w0"], other["w0"])
    assert not torch.equal(first["w0"], first["w1"])  # two tensors of one shape do not share a mask
    source = draw(1)
    random_mask(weights, 0.5, source)
    assert not torch.equal(random_mask(weights, 0.5, source)["w0"], first["w0"])  # the generator moves on


@pytest.mark.parametrize("fraction", [0.05, 0.2, 0.7])
def test_smallest_against_sorting(fraction):
    weights = tensors((6, 7), (3, 2, 3, 3), (5, 1))
    weights["w1"] *= 3  # so that layers lose unequal shares of all together
    by_layer = smallest(weights, fraction)
    together = smallest(weights, fraction, "global")
    flat = np.concatenate([weight.numpy().ravel() for weight in weights.values()])
    expected = lowest(flat, round(fraction * flat.size))
    at = 0
    for name, weight in weights.items():
        n = weight.numel()
        assert np.array_equal(by_layer[name], lowest(weight.numpy(), round(fraction * n)))
        assert np.array_equal(together[name], expected[at : at + n].reshape(weight.shape))
        at += n
    assert together["w1"].float().mean() < by_layer["w1"].float().mean()


def test_ties_go_by_position_so_that_the_number_is_exact():
    weights = {"a": torch.ones(4, 5), "b": torch.zeros(2, 5), "c": torch.full((10, 1), -1.0)}
    assert smallest(weights, 0.25)["a"].flatten().nonzero().flatten().tolist() == [0, 1, 2, 3, 4]
    masks = smallest(weights, 0.5, "global")  # 20 of 40: the zeros and the first ten ones
    assert [int(mask.sum()) for mask in masks.values()] == [10, 10, 0]
    assert masks["a"].flatten()[:10].all()


def test_masks_take_parameters_and_leave_them_alone():
    layer = nn.Linear(5, 4)
    before = layer.weight.detach().clone()
    mask = smallest({"weight": layer.weight}, 0.5)["weight"]
    assert not mask.requires_grad
    assert torch.equal(layer.weight, before)


@pytest.mark.parametrize("fraction", [0, 1, 1.5, -0.1, float("nan")])
def test_a_fraction_is_above_0_and_below_1(fraction):
    for make in (lambda: random_mask(tensors((2, 2)), fraction, draw()), lambda: smallest(tensors((2, 2)), fraction)):
        with pytest.raises(RequestError, match="it must be above 0 and below 1") as caught:
            make()
        assert "\n" not in str(caught.value)


def test_layers_without_a_shape_are_refused():
    """They would seem to have no matrices, and a training that masks nothing looks like one that does."""
    model = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.Linear(4, 2))
    for ask in (matrices, redraw):
        with pytest.raises(RequestError, match="layers without a shape yet: pass one batch through it first"):
            ask(model)


def test_a_mistyped_scope_is_refused():
    with pytest.raises(RequestError, match="unknown scope 'globall': did you mean 'global'"):
        smallest(tensors((2, 2)), 0.5, "globall")


def test_matrices_are_neither_biases_nor_norms():
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.LayerNorm((4, 2, 2)), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 3))
    assert list(matrices(net)) == ["0.weight", "4.weight"]
    assert matrices(net)["0.weight"] is net[0].weight
    attention = nn.MultiheadAttention(4, 2, add_bias_kv=True)  # bias_k has three dimensions
    assert list(matrices(attention)) == ["in_proj_weight", "out_proj.weight"]
    tied = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    tied[1].weight = tied[0].weight
    assert list(matrices(tied)) == ["0.weight"]
