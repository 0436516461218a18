"""Networks of other libraries, imported when one is named: ``hf:NAME-or-folder``, ``timm:NAME``, ``torchvision:NAME``.

>>> LIBRARIES["timm"].package
'timm'
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fallow.base.errors import RequestError, WorkError, first_line
from fallow.data.texts import IDS, MASK, SEGMENT
from fallow.models.base import Inputs
from fallow.models.blocks import expect_shape
from fallow.weights.blocks import head_of
from fallow.weights.layers import execution_order


class Foreign(nn.Module):
    """A network of another library that answers with a plain tensor; grey images become three equal channels.

    ``inputs`` are the size and the scaling that it was trained with, where the library says so.
    """

    def __init__(self, network: nn.Module, inputs: Inputs | None = None, *, repeat: bool = False) -> None:
        super().__init__()
        self.network = network
        self.inputs = inputs
        self.repeat = repeat
        self.pretrained = False  # whether the library gave it weights that were trained before

    def forward(self, x: Tensor) -> Tensor:
        """The logits of a batch."""
        return logits_of(self.network(x.expand(-1, 3, -1, -1) if self.repeat else x))


class Reader(Foreign):
    """A network of Hugging Face's that reads texts, with the tokeniser that it was trained with.

    ``length`` is the most tokens of an example, both texts of a pair together; what is longer is cut.
    """

    def __init__(self, network: nn.Module, tokeniser: Any, length: int) -> None:
        super().__init__(network)
        self.tokeniser, self.length = tokeniser, length
        self.segments = "token_type_ids" in tokeniser.model_input_names
        tokeniser.padding_side = "right"

    def tokens(self, texts: Sequence[tuple[str, ...]]) -> Tensor:
        """Tokens N × 3 × L (see `fallow.data.texts`): numbers, mask, and which text they are of."""
        columns = [list(column) for column in zip(*texts, strict=True)]
        found = self.tokeniser(
            *columns, padding=True, truncation=True, max_length=self.length, return_tensors="pt",
            return_attention_mask=True,
        )  # fmt: skip
        ids = found["input_ids"]
        return torch.stack([ids, found["attention_mask"], found.get("token_type_ids", torch.zeros_like(ids))], 1)

    def forward(self, x: Tensor) -> Tensor:
        """The logits of a batch of tokens."""
        segments = {"token_type_ids": x[:, SEGMENT]} if self.segments else {}
        return logits_of(self.network(input_ids=x[:, IDS], attention_mask=x[:, MASK], **segments))


def logits_of(output: Any) -> Tensor:
    """The tensor in what a network returns: itself, ``.logits``, ``["logits"]``, ``["out"]``, or the first of several.

    >>> import torch
    >>> logits_of({"out": torch.ones(2)}), logits_of((torch.zeros(1), "more"))
    (tensor([1., 1.]), tensor([0.]))
    """
    if isinstance(output, Tensor):
        return output
    if isinstance(found := getattr(output, "logits", None), Tensor):
        return found
    if isinstance(output, Mapping):
        output = [output[key] for key in ("logits", "out") if key in output]
    if isinstance(output, Sequence) and output and isinstance(output[0], Tensor):
        return output[0]
    raise WorkError(f"the model returned a {type(output).__name__}: a tensor, or something with .logits, is needed")


def unwrapped(model: nn.Module) -> nn.Module:
    """The model, or what makes a plain tensor of its answer where it is one of Hugging Face's."""
    theirs = any(kind.__module__.partition(".")[0] == "transformers" for kind in type(model).__mro__)
    return Foreign(model) if theirs else model


def hf(library: Any, name: str, shape: tuple[int, ...], classes: int, pretrained: bool, /, **settings: Any) -> Foreign:
    """A classifier of images or of texts of Hugging Face's transformers, from the hub or a folder.

    Weights come from safetensors only; a folder without any has the network of its config.json, untrained.
    """
    place = {"local_files_only": Path(name).is_dir()}
    length = settings.pop("length", LENGTH) if len(shape) == 2 else None
    config = library.AutoConfig.from_pretrained(name, num_labels=classes, **place, **settings)
    kind = library.AutoModelForImageClassification if length is None else library.AutoModelForSequenceClassification
    if pretrained and not _hollow(name):
        options = {"config": config, "ignore_mismatched_sizes": True, "use_safetensors": True}  # another head
        network = kind.from_pretrained(name, **options, **place)
    else:
        network = kind.from_config(config)
    if length is not None:
        return Reader(network, library.AutoTokenizer.from_pretrained(name, **place), length)
    try:
        said, _ = library.ImageProcessingMixin.get_image_processor_dict(name, **place)
    except OSError:  # a folder without preprocessor_config.json
        said = {}
    size = said.get("crop_size") or said.get("size") or getattr(config, "image_size", None)
    inputs = _inputs(size, said.get("image_mean"), said.get("image_std"), shape[0])
    return Foreign(network, inputs, repeat=_grey(shape, getattr(config, "num_channels", 3)))


def timm(
    library: Any, name: str, shape: tuple[int, ...], classes: int, pretrained: bool, /, **settings: Any
) -> Foreign:
    """A network of timm, made for the data's channels and classes."""
    network = library.create_model(name, pretrained=pretrained, num_classes=classes, in_chans=shape[0], **settings)
    said = getattr(network, "pretrained_cfg", {})
    return Foreign(network, _inputs(said.get("input_size"), said.get("mean"), said.get("std"), shape[0]))


def torchvision(
    library: Any, name: str, shape: tuple[int, ...], classes: int, pretrained: bool, /, **settings: Any
) -> Foreign:
    """A network of torchvision with its default weights, if it has any, and a new head."""
    weights = library.get_model_weights(name).DEFAULT
    network = library.get_model(name, weights=weights if pretrained else None, **settings)
    path = head_of(network, execution_order(network))
    head = network.get_submodule(path)
    if not isinstance(head, nn.Linear):
        raise RequestError(f"torchvision:{name} ends in a {type(head).__name__}, not in a linear layer: take another")
    parent, _, own = path.rpartition(".")
    setattr(network.get_submodule(parent), own, nn.Linear(head.in_features, classes, bias=head.bias is not None))
    said = weights.transforms()
    size, mean, std = (getattr(said, key, None) for key in ("crop_size", "mean", "std"))
    return Foreign(network, _inputs(size, mean, std, shape[0]), repeat=_grey(shape, 3))


class Library(NamedTuple):
    """A prefix of model names: the module that must be there, and how it makes a network."""

    package: str
    make: Callable[..., Foreign]


WEIGHTS = (".safetensors", ".bin", ".h5", ".msgpack", ".pt", ".ckpt")
LENGTH = 128  # tokens, as is usual for pairs of sentences (FAM, section 4.3)
LIBRARIES = {
    "hf": Library("transformers", hf),
    "timm": Library("timm", timm),
    "torchvision": Library("torchvision.models", torchvision),
}


def from_library(
    kind: str, name: str, /, *, shape: tuple[int, ...], classes: int, pretrained: bool = True, **settings: Any
) -> Foreign:
    """Import the library and build its network ``name``, with pretrained weights or without."""
    if not name:
        raise RequestError(f"{kind}: names no network: write {kind}:NAME")
    expect_shape(f"{kind}:{name}", shape, ranks=(2, 3) if kind == "hf" else (3,))  # 2: texts
    package, make = LIBRARIES[kind]
    try:
        library = importlib.import_module(package)
    except ModuleNotFoundError as error:
        raise RequestError(f"{kind}:{name} needs {error.name}: pip install {error.name}") from error
    except Exception as error:  # a build that does not fit this torch fails in many ways
        raise RequestError(f"{kind}:{name} needs {package}, which fails to import: {first_line(error)}") from error
    try:
        found = make(library, name, shape, classes, pretrained, **settings)
        found.pretrained = pretrained and not (kind == "hf" and _hollow(name))
        return found
    except RequestError:
        raise
    except Exception as error:
        raise RequestError(f"{kind}:{name} cannot be built: {type(error).__name__}: {first_line(error)}") from error


def _hollow(name: str) -> bool:
    """Whether a folder has no weights at all; those that are no safetensors are refused by the library."""
    folder = Path(name)
    return folder.is_dir() and not any(path.suffix in WEIGHTS for path in folder.iterdir())


def _grey(shape: tuple[int, ...], channels: int) -> bool:
    """Whether images are grey and the network wants colours; any other difference is refused."""
    if shape[0] not in (1, channels):
        raise RequestError(f"the network takes {channels} channels and the images have {shape[0]}: take another")
    return shape[0] == 1 and channels == 3


def _inputs(size: Any, mean: Any, std: Any, channels: int) -> Inputs | None:
    """From a library's words: a number, (H, W), (C, H, W), {"height": …} or {"shortest_edge": …}; pixels of 0 to 1."""
    if isinstance(size, Mapping):
        size = size.get("height") or size.get("shortest_edge")
    if isinstance(size, Sequence) and size:
        size = size[-1]
    if not (isinstance(size, int) and mean and std):
        return None
    if channels == 1:  # what three equal channels have in common
        mean, std = [sum(mean) / len(mean)], [sum(std) / len(std)]
    if len(mean) != channels:
        return None
    return Inputs(size, tuple(255.0 * m for m in mean), tuple(255.0 * s for s in std))
