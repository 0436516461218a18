"""A user's own Dataset or DataLoader: what is in it, without changing it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, Subset, TensorDataset

from fallow.base.errors import RequestError
from fallow.data.answers import array_of, kind_of, labels, masks, named, numbers
from fallow.data.examples import Data
from fallow.data.groups import numbered
from fallow.data.loaders import Batch, generators, length, pair, samplers
from fallow.data.normalise import SAMPLE, spaced, statistics
from fallow.data.parts import Shares, choose, strata_of
from fallow.data.randomness import Randomness
from fallow.data.targets import Classes, Dense, Target
from fallow.evaluate.metrics import NO_LABEL

User: TypeAlias = Dataset[Any] | DataLoader[Any]

FULL_PASS = 10_000  # items; up to here, look at all of them for their answers
SAMPLE_BYTES = 256 << 20  # of large examples, fewer are enough for mean and deviation


def from_users(
    parts: dict[str, User],
    cut: Shares,
    asked: str | None = None,
    classes: int | Sequence[str] | None = None,
    groups: NDArray[Any] | None = None,
) -> Data:
    """Data from Datasets or DataLoaders under "train", perhaps "val" and "test".

    From a Dataset, missing parts are carved by its answers; a DataLoader is taken as it is. Both are scaled like
    arrays. What is learned, and the number of classes, comes from the answers where they are at hand (``targets``,
    or up to 10,000 items to look at), otherwise from a sample and from ``classes``. ``groups`` has one for each item:
    what is of one group is on one side of every split.
    """
    train = parts["train"]
    with Randomness(0, generators(train)):  # looking draws random transforms; leave no trace
        x, y = _first(train)
        size = tuple(x.shape[2:])
        dense = asked == "dense" or (asked is None and bool(size) and array_of(y, "y", size).shape[1:] == size)
        inside = train.dataset if isinstance(train, DataLoader) else train
        known = _values(inside, y, size) if dense else _answers(inside, y, size)
        seen = known
        if known is None and not dense:
            seen = np.concatenate([array_of(some, "y of train", size) for _, some in _sample(train)])
    kind = "dense" if seen is None or dense else asked or kind_of(seen, "y of train", size)
    target = _target(kind, train, known, seen, classes)
    val, test = parts.get("val") if cut.val > 0 else None, parts.get("test")
    data = Data("dataset", train, val, test, list(target.names), tuple(x.shape[1:]), target=target)
    answers = None if known is None or dense else target.cast(torch.from_numpy(known), x)
    if isinstance(train, DataLoader):
        if groups is not None:
            raise RequestError("groups cannot keep together what a DataLoader mixes: pass its Dataset instead")
        if cut.train is not None:
            raise RequestError("train=… cannot choose from a DataLoader: pass its Dataset instead")
        length(train)  # refuses one without
        data.notes.append("The DataLoader is taken as it is: nothing was set aside from it.")
    else:
        _carve(data, train, parts, cut, answers, groups)
    _scale(data, answers)
    return data


def _carve(
    data: Data,
    train: Dataset[Any],
    parts: dict[str, User],
    cut: Shares,
    answers: Tensor | None,
    groups: NDArray[Any] | None,
) -> None:
    """Take from the training part what is missing for validation and test."""
    strata = torch.zeros(len(train), dtype=torch.long)  # type: ignore[arg-type]
    if answers is not None:
        strata = strata_of(data.target, answers)
    elif data.target.kind != "dense":
        data.notes.append("The labels of the Dataset are not at hand: it was split at random, not by class.")
    own = None if "val" not in parts else torch.zeros(0, dtype=torch.long)  # kept as it is, never cut
    if groups is not None and len(groups) != len(strata):
        raise RequestError(f"there are {len(groups)} groups for {len(strata)} items: give one for each")
    together = None if groups is None else numbered({"train": groups})["train"]
    classes = data.classes if data.target.kind == "classes" else None
    chosen = choose(strata, own, "test" in parts, classes, cut, together)
    data.notes += chosen.notes
    if len(chosen.train) < len(strata):
        data.train = Subset(train, chosen.train.tolist())
    data.val = data.val if chosen.val is None else Subset(train, chosen.val.tolist())
    data.test = data.test if chosen.test is None else Subset(train, chosen.test.tolist())


def _scale(data: Data, answers: Tensor | None) -> None:
    """Mean and deviation of the training examples, and of numbers to learn; of a sample, where they are many."""
    with Randomness(0, generators(data.train)):
        sample = _sample(data.train)
    first = sample[0][0]
    if first.ndim > 1 and (first.is_floating_point() or first.dtype == torch.uint8):  # other integers stand for words
        values = torch.cat([x.transpose(0, 1).flatten(1) for x, _ in sample], 1).T  # every pixel is a row
        if values.is_floating_point() and not values.isfinite().all():
            raise RequestError("x of train has NaN or infinite values: replace them or leave those examples out")
        data.mean, data.std = statistics(values)
    looked = sum(len(x) for x, _ in sample)
    inside = data.train.dataset if isinstance(data.train, DataLoader) else data.train
    if data.mean is not None and (isinstance(inside, IterableDataset) or looked < len(inside)):  # type: ignore[arg-type]
        data.notes.append(f"Mean and deviation are those of {looked} training examples.")
    chosen = data.train.indices if isinstance(data.train, Subset) else None
    if answers is None or isinstance(data.train, DataLoader):
        answers = torch.cat([data.target.cast(y, x) for x, y in sample])
    elif chosen is not None and len(answers) > len(chosen):
        answers = answers[torch.as_tensor(chosen)]
    data.target = data.target.fitted(answers)


def _first(part: User) -> Batch:
    """A batch, or a batch of one example."""
    if isinstance(part, DataLoader):
        return _from_loader(part, 1)[0]
    if isinstance(part, IterableDataset):
        raise RequestError("an IterableDataset cannot be split: wrap it in a DataLoader, with parts of its own")
    if not len(part):  # type: ignore[arg-type]
        raise RequestError("the Dataset is empty: give it some examples")
    return _item(part, 0)


def _sample(part: Any) -> list[Batch]:
    """Some examples of a part, in batches."""
    if isinstance(part, DataLoader):
        return _from_loader(part, SAMPLE)
    return [_item(part, place) for place in spaced(len(part), _enough(_item(part, 0)[0]))]


def _from_loader(loader: DataLoader[Any], examples: int) -> list[Batch]:
    """The batches with the first examples."""
    if any(isinstance(sampler, DistributedSampler) for sampler in samplers(loader)):  # all processes see the same
        places = spaced(len(loader.dataset), examples)  # type: ignore[arg-type]
        loader = DataLoader(Subset(loader.dataset, places), loader.batch_size or 1, collate_fn=loader.collate_fn)
    found: list[Batch] = []
    for batch in loader:
        found.append(pair(batch))
        if sum(len(x) for x, _ in found) >= min(examples, _enough(found[0][0])):
            break
    if not found:
        raise RequestError("the DataLoader is empty: give it some examples")
    return found


def _enough(x: Tensor) -> int:
    """Examples to look at, by the size of those in a batch."""
    return min(SAMPLE, max(1, SAMPLE_BYTES * len(x) // max(1, x.numel() * x.element_size())))


def _item(dataset: Any, place: int) -> Batch:
    """An item as a batch of one."""
    item = dataset[place]
    if not _is_item(item):
        raise RequestError(
            f"item {place} of the Dataset is {_kind(item)}: return (x, label), the label an integer or numbers"
        )
    if not isinstance(item[0], Tensor | np.ndarray):
        raise RequestError(
            f"x in an item of the Dataset is a {type(item[0]).__name__}: return a tensor, channels first"
        )
    return torch.as_tensor(item[0])[None], torch.as_tensor(item[1])[None]


def _is_item(item: Any) -> bool:
    if not (isinstance(item, tuple | list) and len(item) == 2):
        return False
    return isinstance(item[1], Tensor | int | float | np.number | np.bool_) or (
        isinstance(item[1], np.ndarray) and item[1].dtype.kind in "biuf"
    )


def _kind(item: Any) -> str:
    name = type(item).__name__
    return f"a {name} of {', '.join(type(i).__name__ for i in item)}" if isinstance(item, tuple | list) else f"a {name}"


def _answers(dataset: Any, y: Tensor, size: tuple[int, ...]) -> NDArray[Any] | None:
    """All answers, where they are cheap and of the shape of those that are learned."""
    found = _all(dataset)
    if found is None:
        return None
    found = array_of(found, "y of train", size)
    return found if found.dtype.kind != "U" and found.shape[1:] == array_of(y, "y", size).shape[1:] else None


def _all(dataset: Any) -> Any:
    if isinstance(dataset, IterableDataset):
        return None
    if isinstance(dataset, Subset):
        inner = _all(dataset.dataset)
        return None if inner is None else inner[torch.as_tensor(dataset.indices)]
    if isinstance(dataset, TensorDataset) and len(dataset.tensors) == 2:
        return dataset.tensors[1].cpu()
    targets = getattr(dataset, "targets", None)
    if targets is not None and len(targets) == len(dataset) and getattr(dataset, "target_transform", None) is None:
        return targets.cpu() if isinstance(targets, Tensor) else np.asarray(targets)
    if len(dataset) > FULL_PASS or not _is_item(dataset[0]):
        return None
    return np.stack([np.asarray(dataset[index][1]) for index in range(len(dataset))])


def _values(dataset: Any, y: Tensor, size: tuple[int, ...]) -> NDArray[Any] | None:
    """The classes that masks hold, where that is cheap to know; the masks themselves may be too much to keep."""
    masks(array_of(y, "y of train", size), "y of train", size)
    if isinstance(dataset, IterableDataset) or len(dataset) > FULL_PASS or not _is_item(dataset[0]):
        return None
    each: Iterable[NDArray[Any]] = (np.unique(np.asarray(dataset[index][1])) for index in range(len(dataset)))
    return np.unique(np.concatenate(list(each)))


def _target(
    kind: str, part: User, known: NDArray[Any] | None, seen: NDArray[Any] | None, classes: int | Sequence[str] | None
) -> Target:
    """The target of this kind; a Dataset's classes are its indices as they are."""
    names = [str(i) for i in range(classes)] if isinstance(classes, int) else classes
    if kind in ("classes", "dense"):
        indices = None if known is None else _indices(known, kind, names)
        found = _names(part, indices, names)
        return Classes(found) if kind == "classes" else Dense(found)
    assert seen is not None
    convert = numbers if kind == "numbers" else labels
    shape = convert(seen, "y of train").shape
    outputs = shape[1] if len(shape) > 1 else 1
    if names is not None and len(names) != outputs:
        raise RequestError(f"classes has {len(names)} names, but an example has {outputs} {kind}: give as many")
    return named(kind, outputs, names)


def _indices(known: NDArray[Any], kind: str, names: Sequence[str] | None) -> NDArray[Any]:
    """The class indices that there are, checked."""
    present = np.unique(known)
    if kind == "dense":
        present = present[present != NO_LABEL]
    if known.ndim > 1 or (present != present.round()).any():
        raise RequestError(f"y of train has shape {known.shape} or fractions: give one class index for each example")
    if len(present) < 2:
        raise RequestError(f"training holds examples of 1 class, {int(present[0])}: give two or more")
    if present[0] < 0 or (names is not None and present[-1] >= len(names)):
        raise RequestError(
            f"the labels go from {int(present[0])} to {int(present[-1])}: "
            f"give class indices from 0 to {len(present if names is None else names) - 1}"
        )
    if kind == "dense" and names is None and len(present) <= present[-1]:
        raise RequestError(
            f"the masks hold {', '.join(str(int(value)) for value in present[:5])}{', …' * (len(present) > 5)}: "
            f"give class indices from 0 to {len(present) - 1}, or say fallow.data.load(…, classes=NUMBER)"
        )
    return present


def _names(part: User, present: NDArray[Any] | None, names: Sequence[str] | None) -> list[str]:
    if names is not None:
        return [str(name) for name in names]
    if present is None:
        raise RequestError(
            f"the labels are not at hand (more than {FULL_PASS} items, or no pairs): "
            "give fallow.data.load(…, classes=NUMBER) (or names), or the Dataset a `targets` attribute"
        )
    known = getattr(part.dataset if isinstance(part, DataLoader) else part, "classes", None)
    if isinstance(known, list | tuple) and len(known) > int(present[-1]):
        return [str(name) for name in known]
    return [str(label) for label in range(int(present[-1]) + 1)]
