import pytest
import torch
from torch import nn

from fallow.base.errors import RequestError
from fallow.models import build
from fallow.weights import Partition

WIDTHS = [64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512]


def on_meta(**options) -> nn.Module:
    with torch.device("meta"):
        return build("vgg16", shape=(3, 224, 224), classes=1000, **options)


def narrow(shape=(3, 32, 32), **options) -> nn.Module:
    return build("vgg16", shape=shape, classes=5, width=2, dense=6, **options)


def test_the_published_parameter_count():
    model = on_meta(norm="none")
    assert sum(p.numel() for p in model.parameters()) == 138_357_544
    assert model.dense1.linear.in_features == 512 * 7 * 7


def test_thirteen_convolutions_and_two_dense_layers():
    model = on_meta()
    assert model.blocks == (*(f"conv{i}" for i in range(1, 14)), "dense1", "dense2")
    convolutions = [module for module in model.modules() if isinstance(module, nn.Conv2d)]
    assert [conv.out_channels for conv in convolutions] == WIDTHS
    assert [conv.in_channels for conv in convolutions] == [3, *WIDTHS[:-1]]
    assert all(conv.kernel_size == (3, 3) and conv.padding == (1, 1) for conv in convolutions)
    pooled = [name for name in model.blocks if hasattr(model.get_submodule(name), "pool")]
    assert pooled == ["conv2", "conv4", "conv7", "conv10", "conv13"]
    norms = [module for module in model.modules() if isinstance(module, nn.GroupNorm)]
    assert len(norms) == 15
    assert all(norm.num_groups == 1 for norm in norms)


@pytest.mark.parametrize("norm", ["none", "batch", "layer"])
@pytest.mark.parametrize(("side", "left"), [(224, 7), (32, 1), (28, 1), (8, 1), (1, 1), (37, 1)])
def test_images_of_any_size_pass(side, left, norm):
    model = narrow((1, side, side), norm=norm)
    assert model.dense1.linear.in_features == 16 * left * left
    logits = model(torch.randn(2, 1, side, side))
    assert logits.shape == (2, 5)
    logits.square().sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_images_need_not_be_square():
    assert narrow((1, 64, 40))(torch.randn(2, 1, 64, 40)).shape == (2, 5)
    assert narrow((1, 2, 64))(torch.randn(2, 1, 2, 64)).shape == (2, 5)


def test_a_norm_replaces_the_bias():
    names = [name for name, _ in narrow(norm="layer").named_parameters() if name.endswith(("conv.bias", "linear.bias"))]
    assert names == []
    assert len([n for n, _ in narrow(norm="none").named_parameters() if n.endswith("bias")]) == 16


def test_splits_count_blocks():
    model = narrow()
    x = torch.randn(2, 3, 32, 32)
    assert next(iter(Partition(model, 0.5, inputs=x).late.modules)) == "conv9.conv"  # 8 of 15 blocks are early
    assert next(iter(Partition(model, 13, inputs=x).late.modules)) == "dense1.linear"
    assert list(Partition(model, 15, inputs=x).late.modules) == ["head"]


def test_dropout_and_wrong_requests():
    model = narrow(dropout=0.5).train()
    assert [m.p for m in model.modules() if isinstance(m, nn.Dropout)] == [0.5, 0.5]
    assert not any(isinstance(m, nn.Dropout) for m in narrow().modules())
    with pytest.raises(RequestError, match="dropout should be from 0 to below 1"):
        narrow(dropout=1.0)
    with pytest.raises(RequestError, match=r"vgg16 cannot take shape \(64,\): an image \(C, H, W\) would fit"):
        narrow((64,))
