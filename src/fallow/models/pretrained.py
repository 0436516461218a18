"""Weights from a file: safetensors, or a plain torch state dict that holds tensors and no code."""

from __future__ import annotations

import pickle
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fallow.base.errors import RequestError
from fallow.weights.blocks import head_of, inside
from fallow.weights.fixed_norm import NAME, insert_norms
from fallow.weights.layers import execution_order

FIXED = f".{NAME}.mean"

WRAPPERS = ("state_dict", "model_state_dict", "model")


@dataclass(frozen=True)
class Report:
    """What of a file went into a model; ``str`` is a short table.

    ``missing`` stays as it was initialised; ``unexpected`` and ``wrong_shape`` were in the file and not used.
    """

    file: str
    matched: list[str]
    missing: list[str]
    unexpected: list[str]
    wrong_shape: list[str]

    def __str__(self) -> str:
        lines = [f"weights from {self.file}"]
        for what in ("matched", "missing", "unexpected", "wrong_shape"):
            names: list[str] = getattr(self, what)
            shown = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
            lines.append(f"  {what.replace('_', ' '):<12}{len(names):>5}  {shown}".rstrip())
        return "\n".join(lines)


def load_weights(model: nn.Module, file: str | Path) -> Report:
    """Load into ``model`` whatever in ``file`` matches it in name and shape, and report the rest.

    A wrapping ``{"state_dict": …}`` or ``{"model": …}`` is opened, and a prefix before the names
    (``module.``, ``model.backbone.``, …) is taken off: the one under which most names match. Where the file has
    LW's fixed normalisations, the model gets them too.
    """
    found = _without_prefix(_read(Path(file)), set(model.state_dict()))
    paths = dict(model.named_modules())
    blocks = [name.removesuffix(FIXED) for name in found if name.endswith(FIXED)]
    insert_norms(model, [path for path in blocks if path in paths])
    own = model.state_dict()
    fitting = {name: tensor for name, tensor in found.items() if name in own and tensor.shape == own[name].shape}
    if not fitting:
        theirs, ours = next(iter(found), "nothing"), next(iter(own), "nothing")
        raise RequestError(
            f"nothing in {file} fits this model: it has names such as {theirs!r}, the model {ours!r}; "
            "a file saved from the same architecture would fit"
        )
    model.load_state_dict(fitting, strict=False)
    return Report(
        file=str(file),
        matched=[name for name in own if name in fitting],
        missing=[name for name in own if name not in found],
        unexpected=[name for name in found if name not in own],
        wrong_shape=[
            f"{name} {tuple(found[name].shape)} for {tuple(own[name].shape)}"
            for name in own
            if name in found and name not in fitting
        ],
    )


def learned(model: nn.Module, report: Report | None, *, given: bool = False) -> frozenset[str]:
    """The names of the tensors that a model has learned before: what a file gave it, or all but its head.

    It has learned nothing where there is no file and the network does not bring its own weights; of one that is
    ``given`` as a module only its owner knows, and is believed.
    """
    if report is not None:
        return frozenset(report.matched)
    if not (given or getattr(model, "pretrained", False)):
        return frozenset()
    head = head_of(model, execution_order(model))
    return frozenset(name for name in model.state_dict() if not inside(name, head))


def _read(file: Path) -> dict[str, Tensor]:
    if not file.is_file():
        raise RequestError(f"no file {file}: a .safetensors file or a torch state dict would fit")
    try:
        if file.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(file)
        content = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:  # raised for anything beyond tensors and plain containers
        raise RequestError(
            f"{file} holds more than tensors, and reading it could run code: save model.state_dict() alone"
        ) from error
    except Exception as error:
        raise RequestError(
            f"{file} cannot be read as weights: a .safetensors file or a torch state dict would fit"
        ) from error
    return _tensors(content)


def _tensors(content: Any) -> dict[str, Tensor]:
    """The named tensors of a checkpoint, out of whatever it is wrapped in; counters and settings are left."""
    if not isinstance(content, dict):
        return {}
    for key in WRAPPERS:
        if isinstance(content.get(key), dict):
            return _tensors(content[key])
    return {str(name): value for name, value in content.items() if isinstance(value, Tensor)}


def _without_prefix(found: dict[str, Tensor], own: set[str]) -> dict[str, Tensor]:
    """Take off the prefix under which most names are the model's own."""
    prefixes: Counter[str] = Counter()
    for name in found:
        starts = [0, *(i + 1 for i, letter in enumerate(name) if letter == ".")]
        prefixes.update(name[:start] for start in starts if name[start:] in own)
    if not prefixes:
        return found
    best = max(prefixes, key=lambda prefix: (prefixes[prefix], -len(prefix)))
    under = {name[len(best) :]: tensor for name, tensor in found.items() if name.startswith(best)}
    ours = ("mean", "std") if best == "network." else ()  # the scaling that a run keeps beside its network
    rest = {name: tensor for name, tensor in found.items() if not name.startswith(best) and name not in ours}
    return rest | under
