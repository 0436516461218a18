import pytest
import torch
from torch import nn

from fallow.base.errors import RequestError
from fallow.weights import matrices, norms, rescale


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(2, 3, 3), nn.Flatten(), nn.Linear(12, 5), nn.Linear(5, 2)).double()


def test_norms_and_rescaling_against_plain_sums():
    model = net()
    weights = matrices(model)
    sizes = norms(weights)
    for name, weight in weights.items():
        assert sizes[name].item() == pytest.approx(sum(v * v for v in weight.flatten().tolist()) ** 0.5, rel=1e-14)
    with torch.no_grad():
        for i, parameter in enumerate(model.parameters()):
            parameter.mul_(0.3 + i).add_(0.01)
    grown = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    rescale(list(weights.values()), [sizes[name] for name in weights])
    for name, parameter in model.named_parameters():
        if name in weights:
            torch.testing.assert_close(parameter, grown[name] * (sizes[name] / grown[name].norm()), rtol=1e-14, atol=0)
            assert parameter.norm().item() == pytest.approx(sizes[name].item(), rel=1e-14)
        else:
            assert torch.equal(parameter, grown[name])


def test_sizes_are_numbers_and_not_views():
    model = net()
    weights = matrices(model)
    sizes = norms(weights)
    before = {name: size.item() for name, size in sizes.items()}
    with torch.no_grad():
        for weight in weights.values():
            weight.mul_(2)
    assert {name: size.item() for name, size in sizes.items()} == before
    assert not any(size.requires_grad for size in sizes.values())


def test_a_norm_of_zero_is_refused_by_name():
    model = net()
    nn.init.zeros_(model[3].weight)
    with pytest.raises(RequestError, match=r"3\.weight has norm 0: it cannot be rescaled") as caught:
        norms(matrices(model))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("left", [0.0, 1e-30])  # in float32 the square of 1e-30 is 0, and so is the norm
def test_a_layer_that_training_emptied_stays_empty(dtype, left):
    empty, other = nn.Parameter(torch.full((3, 3), left, dtype=dtype)), nn.Parameter(torch.ones(2, 2, dtype=dtype))
    rescale([empty, other], [torch.tensor(50.0, dtype=dtype), torch.tensor(4.0, dtype=dtype)])
    assert empty.isfinite().all()
    assert empty.norm() <= 51
    assert left or empty.eq(0).all()
    assert other.eq(2).all()


def test_several_precisions_at_once():
    first, second = nn.Parameter(torch.zeros(2, 2).double()), nn.Parameter(torch.zeros(2, 2))
    third = nn.Parameter(torch.ones(2, 2))
    rescale([first, second, third], [torch.tensor(9.0).double(), torch.tensor(9.0), torch.tensor(1.0)])
    assert first.eq(0).all()
    assert second.eq(0).all()
    assert third.eq(0.5).all()


def test_nothing_to_rescale():
    assert norms({}) == {}
    rescale([], [])
