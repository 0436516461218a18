import copy

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from fallow.models import build
from fallow.weights import FixedNorm, Partition, insert_norms


class Residual(nn.Module):
    """A block whose forward is its own, so that the normalisation must hang on a hook."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(torch.relu(self.first(x)))


def plain() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Linear(6, 6), nn.ReLU(), Residual(), nn.Sequential(nn.Linear(6, 6), nn.Tanh()), nn.Linear(6, 3)
    )


BLOCKS = ["1", "2", "3"]  # a leaf, a module of its own, a Sequential
X = torch.randn(4, 6, generator=torch.Generator().manual_seed(1))


def normalised() -> nn.Module:
    """A model with three normalisations that are set."""
    model = plain()
    for i, norm in enumerate(insert_norms(model, BLOCKS).values()):
        norm.mean.fill_(0.5 + i)
        norm.std.fill_(2.0 + i)
    return model


def by_hand(model: nn.Module, x: Tensor) -> Tensor:
    """The same forward pass, written out."""
    x = (torch.relu(model[0](x)) - 0.5) / 2
    block = model[2]
    x = (x + block.second(torch.relu(block.first(x))) - 1.5) / 3
    x = (torch.tanh(model[3][0](x)) - 2.5) / 4
    return model[4](x)


def test_the_identity_at_first_to_the_bit():
    model = plain()
    before = model(X)
    names = list(model.state_dict())
    norms = insert_norms(model, BLOCKS)
    assert torch.equal(model(X), before)
    assert list(norms) == BLOCKS
    assert all(isinstance(norm, FixedNorm) for norm in norms.values())
    added = [name for name in model.state_dict() if name not in names]
    assert added == [f"{block}.fixed_norm.{name}" for block in BLOCKS for name in ("mean", "std")]
    assert [name for name in model.state_dict() if name in names] == names
    assert len(list(model.parameters())) == len(list(plain().parameters()))  # nothing to train


def test_each_normalisation_acts_exactly_once():
    model = normalised()
    torch.testing.assert_close(model(X), by_hand(model, X), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("spec", ["mlp:hidden=6,6", "scnn:width=2,dense=6", "mobilenet:width=2", "resnet18:width=2"])
def test_the_output_of_a_block_is_normalised_once_in_fallows_models(spec):
    torch.manual_seed(0)
    model = build(spec, shape=(1, 8, 8), classes=3).eval()
    bare = copy.deepcopy(model)
    block = model.blocks[0]
    norm = insert_norms(model, [block])[block]
    norm.mean.fill_(0.5)
    norm.std.fill_(3.0)
    seen: dict[nn.Module, Tensor] = {}
    for net in (model, bare):
        net.get_submodule(block).register_forward_hook(lambda _, __, out, net=net: seen.__setitem__(net, out))
        net(torch.randn(2, 1, 8, 8, generator=torch.Generator().manual_seed(0)))
    torch.testing.assert_close(seen[model], (seen[bare] - 0.5) / 3)


def test_the_same_call_makes_it_load_anywhere(tmp_path):
    model = normalised()
    fresh = plain()
    with torch.no_grad():
        for parameter in fresh.parameters():
            parameter.add_(1)
    insert_norms(fresh, BLOCKS)
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(fresh(X), model(X))

    save_file(model.state_dict(), tmp_path / "weights.safetensors")
    weights = load_file(tmp_path / "weights.safetensors")
    again = plain()
    insert_norms(again, [n.removesuffix(".fixed_norm.mean") for n in weights if n.endswith(".fixed_norm.mean")])
    again.load_state_dict(weights)
    assert torch.equal(again(X), model(X))
    with pytest.raises(RuntimeError, match=r"fixed_norm\.mean"):  # and without the call, torch says what is missing
        plain().load_state_dict(weights)


def test_a_copy_is_a_model_of_its_own():
    model = normalised()
    before = model(X)
    twin = copy.deepcopy(model)
    assert torch.equal(twin(X), before)
    for norm in insert_norms(twin, BLOCKS).values():
        norm.mean.fill_(9.0)
    assert torch.equal(model(X), before)
    assert not torch.equal(twin(X), before)


def test_twice_is_once():
    model = normalised()
    before, names = model(X), list(model.state_dict())
    norms = insert_norms(model, BLOCKS)
    assert norms["2"] is model[2].fixed_norm
    assert torch.equal(model(X), before)
    assert list(model.state_dict()) == names


def test_it_exports():
    model = normalised().eval()
    exported = torch.export.export(model, (X,)).module()
    assert torch.equal(exported(X), model(X))
    assert not torch.allclose(exported(X), plain()(X))


def test_types_follow_the_model():
    model = normalised().double()
    assert model(X.double()).dtype == torch.float64
    assert model[1].fixed_norm.mean.dtype == torch.float64
    late = insert_norms(plain().double(), BLOCKS)
    assert late["1"](X.double()).dtype == torch.float64
    assert normalised().bfloat16()(X.bfloat16()).dtype == torch.bfloat16


@pytest.mark.parametrize("spec", ["scnn:width=2,dense=6", "resnet18:width=2"])
def test_blocks_and_sides_stay_as_they_were(spec):
    model = build(spec, shape=(1, 8, 8), classes=3)
    before = Partition(model, 2)
    insert_norms(model, model.blocks[:4])
    after = Partition(model, 2, inputs=torch.randn(2, 1, 8, 8))
    assert [block.path for block in before.blocks] == [block.path for block in after.blocks]
    assert before.early.names == after.early.names
    assert before.late.names == after.late.names
