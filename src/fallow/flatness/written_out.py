"""Normalisations in elementary operations, because torch's third derivatives of its own kernels are wrong.

The gradient of a curvature is a third derivative. Of the native ``layer_norm`` and ``batch_norm`` (which
``instance_norm`` uses too) torch gets it wrong without a word, by half to thirty times (pytorch issues 175754, 186256,
196699, 196700). Their first and second derivatives are right, and so is ``group_norm`` throughout.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from fallow.flatness.graph import OVER_BATCH


class WrittenOut(TorchFunctionMode):
    """Inside, LayerNorm, BatchNorm and InstanceNorm are made of sums, products and roots.

    Where a batch is normalised by its own statistics, its node says so, since the operations no longer do.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        other = _OTHERS.get(func)
        if other is None:
            return func(*args, **kwargs)
        result = other(*args, **kwargs)
        if other is batch_norm and _of_batch(*args, **kwargs) and result.requires_grad:
            result.grad_fn.metadata[OVER_BATCH] = True  # type: ignore[union-attr,index]
        return result


def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """As ``functional.layer_norm``."""
    x = normalise(input, tuple(range(input.ndim - len(normalized_shape), input.ndim)), eps)
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """As ``functional.batch_norm``, which still keeps the running statistics."""
    if _of_batch(input, running_mean, running_var, training=training):
        if running_mean is not None:
            with torch.no_grad():
                torch.batch_norm(
                    input, None, None, running_mean, running_var, True, momentum, eps, torch.backends.cudnn.enabled
                )
        x = normalise(input, (0, *range(2, input.ndim)), eps)
    else:
        assert running_mean is not None
        assert running_var is not None
        x = (input - _channel(running_mean, input)) * torch.rsqrt(_channel(running_var, input) + eps)
    x = x if weight is None else x * _channel(weight, input)
    return x if bias is None else x + _channel(bias, input)


def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """As ``functional.instance_norm``, which still keeps the running statistics."""
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    if running_mean is not None:
        with torch.no_grad():
            functional.instance_norm(input, running_mean, running_var, None, None, True, momentum, eps)
    x = normalise(input, tuple(range(2, input.ndim)), eps)
    x = x if weight is None else x * _channel(weight, input)
    return x if bias is None else x + _channel(bias, input)


def rms_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """As ``functional.rms_norm``, whose fused kernels nobody has checked."""
    dims = tuple(range(input.ndim - len(normalized_shape), input.ndim))
    eps = torch.finfo(input.dtype).eps if eps is None else eps
    x = input * torch.rsqrt((input * input).mean(dims, keepdim=True) + eps)
    return x if weight is None else x * weight


def normalise(x: Tensor, dims: tuple[int, ...], eps: float) -> Tensor:
    """(x − mean) / √(variance + ε) over these dimensions."""
    centred = x - x.mean(dims, keepdim=True)
    return centred * torch.rsqrt((centred * centred).mean(dims, keepdim=True) + eps)


def _of_batch(
    input: Tensor, running_mean: Any = None, running_var: Any = None, *others: Any, training: Any = None, **_: Any
) -> bool:
    """Whether a call of ``batch_norm`` normalises by the statistics of the batch itself."""
    asked = training if training is not None else len(others) > 2 and others[2]
    return bool(asked) or running_mean is None


def _channel(values: Tensor, like: Tensor) -> Tensor:
    return values.view(1, -1, *[1] * (like.ndim - 2))


_OTHERS: dict[Any, Callable[..., Tensor]] = {
    functional.layer_norm: layer_norm,
    functional.batch_norm: batch_norm,
    functional.instance_norm: instance_norm,
    functional.rms_norm: rms_norm,
}
