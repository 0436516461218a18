"""A user's own Dataset or DataLoader: what is in it, without changing it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from fallow.base.errors import RequestError
from fallow.data.examples import Data
from fallow.data.loaders import LoaderStream, pair
from fallow.data.parts import Cut, choose
from fallow.data.randomness import Randomness

User: TypeAlias = Dataset[Any] | DataLoader[Any]

FULL_PASS = 10_000  # items; up to here, look at all of them for their labels


def from_users(parts: dict[str, User], cut: Cut, classes: int | Sequence[str] | None = None) -> Data:
    """Data from Datasets or DataLoaders under "train", perhaps "val" and "test".

    From a Dataset, missing parts are carved by its labels; a DataLoader is taken as it is. The number of
    classes comes from the labels where they are at hand (``targets``, or up to 10,000 items to look at).
    """
    with Randomness(0):  # looking draws random transforms; leave no trace
        train = parts["train"]
        shape = tuple(_first(train).shape)
        labels = _labels(train.dataset if isinstance(train, DataLoader) else train)
    names = _names(train, labels, classes)
    if labels is not None and not (int(labels.min()) >= 0 and int(labels.max()) < len(names)):
        raise RequestError(
            f"the labels go from {int(labels.min())} to {int(labels.max())}: "
            f"give class indices from 0 to {len(names) - 1}"
        )
    val, test = parts.get("val") if cut.val > 0 else None, parts.get("test")
    data = Data("dataset", train, val, test, names, shape)
    if isinstance(train, DataLoader):
        if cut.train is not None:
            raise RequestError("train=… cannot choose from a DataLoader: pass its Dataset instead")
        LoaderStream(train, seed=0, device=torch.device("cpu"), rank=0, world=1)  # refuses one without length
        data.notes.append("The DataLoader is taken as it is: nothing was carved from it.")
        return data
    if labels is None:
        data.notes.append("The labels of the Dataset are not at hand: it was split at random, not by class.")
        labels = torch.zeros(len(train), dtype=torch.long)  # type: ignore[arg-type]
    own = None if "val" not in parts else torch.zeros(0, dtype=torch.long)  # kept as it is, never cut
    chosen = choose(labels, own, "test" in parts, names, cut)
    data.notes += chosen.notes
    if len(chosen.train) < len(labels):
        data.train = Subset(train, chosen.train.tolist())
    data.val = val if chosen.val is None else Subset(train, chosen.val.tolist())
    data.test = test if chosen.test is None else Subset(train, chosen.test.tolist())
    return data


def _first(part: User) -> Tensor:
    """One example."""
    if isinstance(part, DataLoader):
        state = None if part.generator is None else part.generator.get_state()
        batch = next(iter(part), None)
        if part.generator is not None and state is not None:
            part.generator.set_state(state)
        if batch is None:
            raise RequestError("the DataLoader is empty: give it some examples")
        return pair(batch)[0][0]
    if isinstance(part, IterableDataset):
        raise RequestError("an IterableDataset cannot be split: wrap it in a DataLoader, with parts of its own")
    if not len(part):  # type: ignore[arg-type]
        raise RequestError("the Dataset is empty: give it some examples")
    item = part[0]
    if not _is_item(item):
        raise RequestError(f"an item of the Dataset is {_kind(item)}: return (x, label), the label an integer")
    if not isinstance(item[0], Tensor | np.ndarray):
        raise RequestError(
            f"x in an item of the Dataset is a {type(item[0]).__name__}: return a tensor, channels first"
        )
    return torch.as_tensor(item[0])


def _is_item(item: Any) -> bool:
    return isinstance(item, tuple | list) and len(item) == 2 and _is_index(item[1])


def _is_index(label: Any) -> bool:
    if isinstance(label, Tensor | np.ndarray):
        return label.ndim == 0 and _is_index(label.item())
    return isinstance(label, int | np.integer)


def _kind(item: Any) -> str:
    name = type(item).__name__
    return f"a {name} of {', '.join(type(i).__name__ for i in item)}" if isinstance(item, tuple | list) else f"a {name}"


def _labels(dataset: Any) -> Tensor | None:
    """All labels, where they are cheap."""
    if isinstance(dataset, IterableDataset):
        return None
    if isinstance(dataset, Subset):
        inner = _labels(dataset.dataset)
        return None if inner is None else inner[torch.as_tensor(dataset.indices)]
    if isinstance(dataset, TensorDataset) and len(dataset.tensors) == 2:
        return dataset.tensors[1].cpu().long()
    targets = getattr(dataset, "targets", None)
    if targets is not None and len(targets) == len(dataset) and getattr(dataset, "target_transform", None) is None:
        return torch.as_tensor(targets).cpu().long()
    if len(dataset) > FULL_PASS or not _is_item(dataset[0]):
        return None
    return torch.tensor([int(dataset[index][1]) for index in range(len(dataset))], dtype=torch.long)


def _names(part: User, labels: Tensor | None, classes: int | Sequence[str] | None) -> list[str]:
    if classes is not None:
        return [str(i) for i in range(classes)] if isinstance(classes, int) else [str(c) for c in classes]
    if labels is None:
        raise RequestError(
            f"the labels are not at hand (more than {FULL_PASS} items, or no pairs): "
            "say classes=NUMBER (or names), or give the Dataset a `targets` attribute"
        )
    known = getattr(part.dataset if isinstance(part, DataLoader) else part, "classes", None)
    if isinstance(known, list | tuple) and len(known) > int(labels.max()):
        return [str(name) for name in known]
    return [str(label) for label in range(int(labels.max()) + 1)]
