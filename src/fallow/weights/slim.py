"""The first channels of every layer, as a network of their own (KELS, Taha et al. 2021).

A layer with C output channels keeps the first ⌈r·C⌉, and each layer takes as inputs what the one before it
keeps. Because the rule depends on the number of channels only, residual sums fit; concatenated or shuffled
channels do not, and are refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fallow.base.errors import RequestError
from fallow.weights.blocks import head_of
from fallow.weights.layers import call, copied, execution_order, is_norm, join, layers
from fallow.weights.masks import check_fraction

Cuttable = nn.Linear | nn.modules.conv._ConvNd
Kept = dict[str, tuple[int, int]]  # by path: how many outputs and inputs of a layer's weight are kept


def kept_channels(model: nn.Module, rate: float, inputs: Any) -> Kept:
    """How many outputs and inputs of every convolution and linear layer stay, by path, in order of execution."""
    check_fraction(rate, "fraction")
    order = execution_order(model, inputs)
    found = _matrix_layers(model)
    paths = sorted(found, key=lambda path: order[path])
    head = head_of(model, order)
    kept: Kept = {}
    channels = 0  # that the layer before gives
    for path in paths:
        outputs, inside = found[path].weight.shape[:2]
        groups = getattr(found[path], "groups", 1)
        if groups not in (1, outputs) or (groups > 1 and inside > 1):
            raise RequestError(
                f"kels cannot split {path}: it has {groups} groups of channels; use 1, or one per channel"
            )
        out = outputs if path == head else _part(rate, outputs)
        if path == paths[0] or groups > 1:
            into = inside
        elif isinstance(found[path], nn.Linear) and inside != channels and inside % channels == 0:
            into = _part(rate, channels) * (inside // channels)  # flattened: pixels of one channel stay together
        else:
            into = _part(rate, inside)
        kept[path] = (out, into)
        channels = outputs
    return kept


def _matrix_layers(model: nn.Module) -> dict[str, Cuttable]:
    """The convolutions and linear layers by path; a model with weight matrices elsewhere is refused."""
    found: dict[str, Cuttable] = {}
    for path, layer in layers(model).items():
        matrices = [name for name, p in layer._parameters.items() if p is not None and p.ndim >= 2]
        if not matrices or is_norm(layer):
            continue
        if matrices != ["weight"] or not isinstance(layer, Cuttable) or getattr(layer, "transposed", False):
            raise RequestError(
                f"kels cannot split {path or 'the model'} ({type(layer).__name__}): "
                "it takes convolutions and linear layers; wels takes any model"
            )
        found[path] = layer
    return found


def _part(rate: float, channels: int) -> int:
    """⌈r·C⌉, where 0.55 · 100 = 55.000000000000007 is 55."""
    return math.ceil(round(rate * channels, 9))


def kernel_mask(model: nn.Module, rate: float, inputs: Any) -> dict[str, Tensor]:
    """True outside the first ⌈r·C_out⌉ × ⌈r·C_in⌉ block of every kernel; a model that does not split is refused."""
    kept = kept_channels(model, rate, inputs)
    slim(model, rate, inputs)  # refuses what does not fit together
    names = {id(p): name for name, p in model.named_parameters()}  # a tied one has one name
    masks = {}
    for path, (out, into) in kept.items():
        weight = model.get_parameter(join(path, "weight"))
        mask = torch.ones_like(weight, dtype=torch.bool)
        mask[:out, :into] = False
        masks[names[id(weight)]] = mask
    return masks


def slim(model: nn.Module, rate: float, inputs: Any) -> nn.Module:
    """A copy of the model with the first ⌈r·C⌉ channels of every layer.

    ``inputs`` is a small batch: a tensor, a tuple of arguments or a mapping of keywords.

    >>> net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 4, 3))
    >>> small = slim(net, 0.5, torch.zeros(1, 1, 4, 4))
    >>> small[0].out_channels, small[3].in_features, small(torch.zeros(1, 1, 4, 4)).shape
    (4, 16, torch.Size([1, 3]))
    """
    kept = kept_channels(model, rate, inputs)
    small = copied(model)
    for path, layer in small.named_modules():
        if isinstance(layer, Cuttable):
            _cut(layer, *kept[path])
        elif is_norm(layer):
            _cut_norm(path, layer, rate)
    if not _fits(model, small, kept, inputs):
        raise RequestError(
            "kels cannot split this model: its channels are concatenated, shuffled or reused somewhere, "
            "so that the first ones of every layer do not make a network; wels takes any model"
        )
    return small


@torch.no_grad()
def _fits(model: nn.Module, small: nn.Module, kept: Kept, inputs: Any) -> bool:
    """Whether the slim network runs, and without norms computes what the whole one does with the rest at zero.

    Weights and inputs are random here: those of a trained model may be too small, or too large, to tell.
    """
    whole, part = _without_norms(model), _without_norms(small)
    draw = torch.Generator().manual_seed(0)
    for path, (out, into) in kept.items():
        weight, bias = whole.get_parameter(join(path, "weight")), whole.get_submodule(path)._parameters["bias"]
        weight.copy_(torch.randn(weight.shape, generator=draw) * (2 / weight[0].numel()) ** 0.5)
        weight[out:] = 0
        weight[:, into:] = 0
        if bias is not None:
            bias.copy_(torch.rand(bias.shape, generator=draw) / 10)
            bias[out:] = 0
    for name, parameter in part.named_parameters():  # after all are drawn: some may be tied
        if name.rpartition(".")[0] in kept:
            parameter.copy_(whole.get_parameter(name)[tuple(slice(size) for size in parameter.shape)])
    x = _drawn_like(inputs, draw)
    expected = _logits(whole, x)
    if not isinstance(expected, Tensor):
        raise RequestError(f"kels cannot try out this model: it returns a {type(expected).__name__}, not a tensor")
    try:
        call(copied(small).eval(), inputs)
        found = _logits(part, x)
    except Exception:  # whatever a forward pass raises when shapes do not fit
        return False
    return found.shape == expected.shape and bool((found - expected).abs().max() <= 0.01 * expected.abs().max())


def _logits(model: nn.Module, inputs: Any) -> Any:
    output = call(model, inputs)
    return getattr(output, "logits", output)  # what Hugging Face's return holds more


def _drawn_like(inputs: Any, draw: torch.Generator) -> Any:
    """Random numbers in the place of a tensor of them, of each where there are several; words stay."""
    if isinstance(inputs, Mapping):
        return {name: _drawn_like(each, draw) for name, each in inputs.items()}
    if isinstance(inputs, tuple):
        return tuple(_drawn_like(each, draw) for each in inputs)
    floating = isinstance(inputs, Tensor) and inputs.is_floating_point()
    return torch.randn(inputs.shape, generator=draw).to(inputs) if floating else inputs


def _without_norms(model: nn.Module) -> nn.Module:
    bare = copied(model).eval()
    for path, layer in list(bare.named_modules()):
        if is_norm(layer) and path:
            parent, _, name = path.rpartition(".")
            setattr(bare.get_submodule(parent), name, nn.Identity())
    return bare


def _cut(layer: Cuttable, out: int, into: int) -> None:
    layer.weight = _shortened(layer.weight, out, into)
    if layer.bias is not None:
        layer.bias = _shortened(layer.bias, out)
    if isinstance(layer, nn.Linear):
        layer.in_features, layer.out_features = into, out
    else:
        depthwise = layer.groups > 1
        layer.groups = out if depthwise else 1
        layer.in_channels, layer.out_channels = (out if depthwise else into), out


def _cut_norm(path: str, layer: nn.Module, rate: float) -> None:
    if isinstance(layer, nn.LayerNorm | nn.RMSNorm):
        if len(layer.normalized_shape) > 1:
            raise RequestError(f"kels cannot split {path}: a norm over several dimensions; use GroupNorm(1)")
        layer.normalized_shape = (_part(rate, layer.normalized_shape[0]),)
    for name, parameter in layer._parameters.items():
        if parameter is not None and parameter.ndim == 1:
            layer._parameters[name] = _shortened(parameter, _part(rate, len(parameter)))
    for name, buffer in layer._buffers.items():
        if buffer is not None and buffer.ndim == 1:
            layer._buffers[name] = buffer[: _part(rate, len(buffer))].clone()
    for name in ("num_features", "num_channels"):
        if hasattr(layer, name):
            setattr(layer, name, _part(rate, getattr(layer, name)))
    if isinstance(layer, nn.GroupNorm) and layer.num_channels % layer.num_groups:
        raise RequestError(
            f"kels cannot split {path}: {layer.num_groups} groups do not divide its channels; use GroupNorm(1)"
        )


def _shortened(parameter: Tensor, *sizes: int) -> nn.Parameter:
    """The first elements in each of the first dimensions."""
    return nn.Parameter(parameter.detach()[tuple(slice(size) for size in sizes)].clone(), parameter.requires_grad)
