"""The models: a name, its settings, and what it is.

>>> model = build("mlp:hidden=32,32", shape=(128,), classes=8)
>>> model.blocks
('hidden1', 'hidden2')
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn

from fallow.base.errors import RequestError, unknown
from fallow.base.machine import memory
from fallow.base.spec import parse
from fallow.models.autoencoder3d import Autoencoder3d
from fallow.models.bag import Bag
from fallow.models.base import Inputs, Model
from fallow.models.conv4 import Conv4
from fallow.models.factory import from_factory
from fallow.models.libraries import LIBRARIES, Foreign, from_library
from fallow.models.lite0 import Lite0
from fallow.models.minilm import MiniLM
from fallow.models.mlp import MLP
from fallow.models.mobilenet import MobileNet
from fallow.models.pretrained import Report, learned, load_weights
from fallow.models.resnet import resnet18, resnet50
from fallow.models.resnet1d import ResNet1d
from fallow.models.resnet3d import ResNet3d
from fallow.models.resnet12 import ResNet12
from fallow.models.scnn import SCNN
from fallow.models.unet import UNet
from fallow.models.vgg import VGG16
from fallow.models.wideresnet import WideResNet

__all__ = [
    "LIBRARIES",
    "MODELS",
    "Foreign",
    "Inputs",
    "Model",
    "Report",
    "build",
    "catalogued",
    "default",
    "from_factory",
    "from_library",
    "learned",
    "load_weights",
    "starts_trained",
]


SMALL, LARGEST, DEEPEST = 1024, 1 << 24, 1000  # sizes that need no look at memory, and that cannot be


class ModelEntry(NamedTuple):
    """One line of the catalogue."""

    factory: Callable[..., Model]
    description: str


MODELS: dict[str, ModelEntry] = {
    "mlp": ModelEntry(MLP, "fully connected layers with ReLU, for inputs of any shape"),
    "scnn": ModelEntry(SCNN, "four convolutions and a dense layer (LW's small network), for images and signals"),
    "vgg16": ModelEntry(VGG16, "thirteen convolutions and two dense layers, for images"),
    "mobilenet": ModelEntry(MobileNet, "eight depthwise separable convolutions in seven blocks, for images"),
    "resnet18": ModelEntry(resnet18, "eight basic residual blocks, for images"),
    "resnet1d": ModelEntry(ResNet1d, "four residual blocks of two convolutions and a dense layer, for signals"),
    "resnet3d": ModelEntry(ResNet3d, "a strided convolution, three residual blocks and a dense layer, for volumes"),
    "conv4": ModelEntry(Conv4, "four convolutions with norm and pooling, the usual network of few-shot learning"),
    "resnet12": ModelEntry(ResNet12, "four residual blocks of three convolutions, few-shot learning's larger network"),
    "resnet50": ModelEntry(resnet50, "sixteen residual bottlenecks, for images"),
    "wideresnet": ModelEntry(WideResNet, "wide residual blocks, twelve in WideResNet-28-2 (FixMatch's), for images"),
    "unet": ModelEntry(UNet, "down and up again, for a class of every pixel or voxel"),
    "autoencoder3d": ModelEntry(Autoencoder3d, "volumes through a code of 8 numbers and back (FAM's), for shapes"),
    "bag": ModelEntry(Bag, "the mean of word embeddings and a hidden layer, for texts and pairs of them"),
    "lite0": ModelEntry(Lite0, "EfficientNet-lite0 with ImageNet's weights (extra: pretrained), for photographs"),
    "minilm": ModelEntry(MiniLM, "a BERT of six layers, pretrained on English (extra: text), for texts and pairs"),
}


def build(name: str, *, shape: tuple[int, ...], classes: int, pretrained: bool = True, **options: Any) -> nn.Module:
    """Build the model ``name`` for inputs of ``shape`` and ``classes`` outputs.

    ``name`` may carry settings (``resnet18:width=16,norm=layer``), which ``options`` override. It may also be a
    network of another library (``hf:NAME-or-folder``, ``timm:NAME``, ``torchvision:NAME``) or the path of the user's
    own factory (``package.module:factory``), both with settings behind another colon (``mine:net:depth=3``).

    Models that have pretrained weights start from them; with ``pretrained=False`` from their initialisation, as is
    right where other weights are loaded next.

    >>> build("scnn", shape=(1, 28, 28), classes=10, width=8, depth=2)
    Traceback (most recent call last):
    fallow.base.errors.RequestError: unknown setting of model scnn 'depth': did you mean 'width'? ...
    """
    if not isinstance(name, str):
        raise RequestError(f"the model is {name!r}: give a module, or the name of a model")
    kind, colon, rest = name.strip().partition(":")
    if kind in LIBRARIES or (colon and kind not in MODELS and "=" not in rest.partition(":")[0]):
        inner, settings = parse(rest) if rest else ("", {})
        settings |= options
        if given := {"shape", "classes"} & set(settings):
            raise RequestError(f"{min(given)} in {name!r} follows from the data: leave it out")
        if kind in LIBRARIES:
            pretrained &= _checked(f"pretrained of {kind}:{inner}", settings.pop("pretrained", True), True)
            return from_library(kind, inner, shape=shape, classes=classes, pretrained=pretrained, **settings)
        return from_factory(f"{kind}:{inner}", shape=shape, classes=classes, **settings)
    name, settings = parse(name)
    if name not in MODELS:
        raise unknown("model", name, MODELS)
    if classes < 1:
        raise RequestError(f"a model needs at least 1 class, not {classes}")
    factory = MODELS[name].factory
    defaults = _defaults(factory)
    settings |= options
    if not pretrained and "pretrained" in defaults:
        settings["pretrained"] = False
    for key, value in settings.items():
        if key not in defaults:
            raise unknown(f"setting of model {name}", key, defaults)
        settings[key] = _checked(f"{key} of model {name}", value, defaults[key])
    _check_size(name, settings, lambda: factory(tuple(shape), classes, **settings))
    return factory(tuple(shape), classes, **settings)


def catalogued(name: str) -> bool:
    """Whether a name is one of fallow's own models, which alone may be built because a record says so.

    >>> catalogued("mlp:hidden=8"), catalogued("mine:net"), catalogued("hf:somewhere")
    (True, False, False)
    """
    return name.strip().partition(":")[0] in MODELS


def starts_trained(name: str) -> bool:
    """Whether a network of this name brings weights that were trained before.

    >>> [starts_trained(name) for name in ("lite0", "lite0:pretrained=false", "scnn:width=8", "hf:somewhere")]
    [True, False, False, True]
    """
    kind, _, rest = name.strip().partition(":")
    if kind not in LIBRARIES and not (kind in MODELS and "pretrained" in _defaults(MODELS[kind].factory)):
        return False
    _, settings = parse(rest if kind in LIBRARIES and rest else name)
    return settings.get("pretrained", True) is True


def _check_size(name: str, settings: dict[str, Any], make: Callable[[], Model]) -> None:
    """Refuse what cannot be held: weights, gradients and momentum have to fit into memory."""
    sizes = [size for value in settings.values() for size in (value if isinstance(value, tuple) else (value,))]
    if max((size for size in sizes if isinstance(size, int)), default=0) <= SMALL:
        return
    with torch.device("meta"):  # shapes without content
        needed = 3 * sum(p.numel() * p.element_size() for p in make().parameters())
    if needed > memory():
        raise RequestError(
            f"{name} with these settings needs {needed / 2**30:,.0f} GiB to train, "
            f"and this machine has {memory() / 2**30:,.0f}: give smaller sizes"
        )


def default(shape: tuple[int, ...]) -> str:
    """The model to take when none is named: an mlp for vectors, an scnn for images and signals.

    >>> default((64,)), default((3, 32, 32)), default((1, 500))
    ('mlp', 'scnn', 'scnn')
    """
    return "scnn" if len(shape) in (2, 3) and min(shape[1:]) >= 4 else "mlp"


def _defaults(factory: Callable[..., Model]) -> dict[str, Any]:
    """The settings of a model and their defaults: the keyword-only arguments of its factory."""
    parameters = inspect.signature(factory).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}


def _checked(what: str, value: Any, example: Any) -> Any:
    """``value`` if it is of the default's kind; every whole number in a model is a size, so at least 1."""
    if isinstance(example, tuple):
        sizes = (value,) if isinstance(value, int) else value
        if isinstance(sizes, tuple | list):
            return tuple(_checked(what, size, 1) for size in sizes)
    elif isinstance(example, bool):
        if isinstance(value, bool):
            return value
    elif isinstance(example, int) or example is None:
        if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
            if value > (DEEPEST if what.startswith("depth") else LARGEST):
                raise RequestError(f"{what} cannot be {value}: give a size that a network can have")
            return value
    elif isinstance(example, float):
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    elif isinstance(value, str):
        return value
    raise RequestError(f"{what} cannot be {value!r}: something like {example!r} would fit")
