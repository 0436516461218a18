import pytest
import torch
from torch import nn

from fallow.base.errors import RequestError
from fallow.models import build
from fallow.weights import Partition

POINTWISE = [64, 128, 128, 256, 256, 512, 1024, 1024]  # of the eight separable convolutions, without 5 × 512


def on_meta(**options) -> nn.Module:
    with torch.device("meta"):
        return build("mobilenet", shape=(3, 224, 224), classes=1000, **options)


def narrow(shape=(3, 32, 32), **options) -> nn.Module:
    return build("mobilenet", shape=shape, classes=5, width=2, **options)


def test_seven_blocks_of_a_convolution_and_eight_separable_ones():
    model = on_meta()
    assert model.blocks == tuple(f"block{i}" for i in range(1, 8))
    first, *rest = [module for module in model.modules() if isinstance(module, nn.Conv2d)]
    assert tuple(first.weight.shape) == (32, 3, 3, 3)
    depthwise, pointwise = rest[::2], rest[1::2]
    assert [conv.out_channels for conv in pointwise] == POINTWISE
    assert [conv.out_channels for conv in depthwise] == [32, *POINTWISE[:-1]]
    for conv in depthwise:
        assert conv.groups == conv.in_channels == conv.out_channels
        assert tuple(conv.weight.shape) == (conv.out_channels, 1, 3, 3)
    assert all(conv.groups == 1 and conv.kernel_size == (1, 1) for conv in pointwise)
    assert [conv.stride[0] for conv in depthwise] == [1, 2, 1, 2, 1, 2, 2, 1]


def test_the_number_of_parameters():
    """Counted by hand; Howard et al. give 2.9 million for the shallow network."""
    channels = [32, *POINTWISE]
    kernels = 27 * 32 + sum(9 * a + a * b for a, b in zip(channels, POINTWISE, strict=False))
    norms = 2 * (32 + sum(a + b for a, b in zip(channels, POINTWISE, strict=False)))
    head = 1024 * 1000 + 1000
    for norm in ("batch", "layer"):
        found = sum(p.numel() for p in on_meta(norm=norm).parameters())
        assert found == kernels + norms + head
        assert found == pytest.approx(2.9e6, rel=0.02)
    assert sum(p.numel() for p in on_meta(norm="none").parameters()) == kernels + norms // 2 + head  # biases instead


@pytest.mark.parametrize("norm", ["none", "batch", "layer"])
@pytest.mark.parametrize(("side", "left"), [(96, 3), (64, 4), (32, 2), (28, 2), (8, 1)])
def test_images_of_any_size_pass(side, left, norm):
    """Five halvings for large images; up to 64 pixels the first convolution keeps the resolution."""
    model = narrow((1, side, side), norm=norm)
    sizes = []
    model.block7.register_forward_hook(lambda _, __, out: sizes.append(tuple(out.shape)))
    logits = model(torch.randn(2, 1, side, side))
    assert sizes == [(2, 64, left, left)]
    assert logits.shape == (2, 5)
    logits.square().sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_the_spread_of_depthwise_kernels_follows_their_nine_inputs():
    model = build("mobilenet", shape=(3, 32, 32), classes=5)
    weight = model.get_submodule("block7.0.conv").weight
    assert weight.std().item() == pytest.approx((2 / 9) ** 0.5, rel=0.05)


def test_splits_count_blocks():
    model, x = narrow(), torch.randn(2, 3, 32, 32)
    assert next(iter(Partition(model, 0.5, inputs=x).late.modules)) == "block5.0.conv"  # 4 of 7 blocks are early
    assert list(Partition(model, 7, inputs=x).late.modules) == ["head"]


def test_wrong_requests():
    with pytest.raises(RequestError, match=r"mobilenet cannot take shape \(2, 50\): an image \(C, H, W\) would fit"):
        narrow((2, 50))
    with pytest.raises(RequestError, match="unknown norm 'bach': did you mean 'batch'"):
        narrow(norm="bach")
