"""SEAL's tables 1, 4 and 5 at the size of a laptop: does forgetting later layers hurt transfer, and does SEAL help?

fallow reproduce seal-table1 --data-dir DIR --out reproduced/seal-transfer        two hours on two cores
fallow reproduce seal-table4 --data-dir DIR --out reproduced/seal-transfer        the same trainings, found again
fallow reproduce seal-table4-affine --data-dir DIR --out reproduced/seal-transfer half an hour more
fallow reproduce seal-table1-small --data-dir DIR                                 five minutes on two cores
fallow reproduce seal-table3 --data-dir DIR                                       how large the data sets are

The paper trains ResNet50 on Tiny-ImageNet for 10 generations of 160 epochs; here resnet18:width=16 learns 3,000 images
of DIR/cifar100_sub.npz (small: 600 of cifar10_sub.npz; either way those of the folder DIR/base, if there is one) for 4
generations, in bfloat16: half as fast again on processors that have it, and slow on others. The targets are those of
pets32, fashion_mnist, omniglot28 and cifar10_sub that are in DIR, and any folder of images there. Table 1 probes them
linearly as the paper does, but with the rate chosen on validation; tables 4 and 5 are the public few-shot protocol.
Absolute accuracies cannot agree, so what may agree are the signs of the differences to "Normal (long)", averaged over
the targets and paired by seed.
"""

from __future__ import annotations

import statistics
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fallow.base.errors import RequestError
from fallow.data import Data, load
from fallow.evaluate.learners import learn
from fallow.evaluate.probe import seal_probe
from fallow.evaluate.sampling import episodes
from fallow.experiment import Run, heed
from fallow.models.frozen import LAST, frozen_features
from fallow.reproduce.runs import Key, Runs, named
from fallow.reproduce.seal_tables import direction
from fallow.reproduce.table import Cell, Table, cell
from fallow.training.fit import fit
from fallow.transfers.backbones import Backbone, frozen
from fallow.transfers.work import FEATURES, adapt_some

FAMILY = "seal-transfer"
SEEDS = 3
GENERATIONS = 4
SIZES: dict[str, dict[str, Any]] = {
    "full": {"base": "cifar100_sub", "model": "resnet18:width=16", "train": 3000, "epochs": 15, "adapted": 3,
             "left out": ("SEAL", "SEAL (adaptive)"),  # in so few steps one forgets nothing, one cannot relearn
             "fitting": {"lr": 0.02, "schedule": "one-cycle", "nesterov": True, "precision": "bf16"}},
    "small": {"base": "cifar10_sub", "model": "scnn:width=8,dense=64", "train": 600, "epochs": 10, "adapted": 0,
              "left out": ("SEAL",), "fitting": {"lr": 0.05}},
}  # fmt: skip
METHODS = {
    "Normal": "normal",
    "Normal (long)": "long",
    "LLF": "llf",
    "SEAL": "seal:scale=0.01",
    "SEAL (auto)": "seal:scale=auto",
    "SEAL (adaptive)": "seal:ascent=adaptive",
    "LW": "lw",
}
CONTROL = "Normal (long)"
TARGETS = ("pets32", "fashion_mnist", "omniglot28", "cifar10_sub")
PROBED, CLASSES = 2000, 200  # training images of a target, and the most classes that are probed
QUERIES = 15
EPISODES = {1: 600, 5: 600, 20: 200, 50: 100}
SHOTS = {"4": (1, 5), "5": (20, 50)}
# the paper's differences to Normal (long): on its own data, over the targets of table 1, and over ChestX, ISIC, EuroSAT
# and CropDisease in tables 4 and 5
PAPER = {
    "base": {"Normal": 5.10, "LLF": 7.65, "SEAL": 9.95},
    "probe": {"Normal": 0.80, "LLF": -2.48, "SEAL": 6.85},
    "1-shot": {"Normal": 10.84, "LLF": 0.19, "SEAL": 15.97},
    "5-shot": {"Normal": 11.11, "LLF": 1.36, "SEAL": 15.30},
    "5-shot, affine": {"Normal": -3.16, "LLF": -19.32, "SEAL": 11.52},
    "20-shot": {"Normal": 11.62, "LLF": 1.31, "SEAL": 15.88},
    "50-shot": {"Normal": 9.67, "LLF": 1.48, "SEAL": 13.57},
}


def base(
    folder: Path,
    data: str,
    model: str,
    train: int,
    epochs: int,
    fitting: dict[str, Any],
    method: str,
    seed: int,
    **_: str,
) -> dict[str, float]:
    """Train a network and leave it in the folder; its accuracies in %."""
    result = fit(
        model, data, method, train=train, seed=seed, generations=GENERATIONS, epochs=epochs, batch_size=16,
        augment="none", evaluate_every=epochs, test_at_end=True, out=folder, resume=(folder / "run.json").exists(),
        observer=heed, **fitting,
    )  # fmt: skip
    return {name: 100 * result.last[f"{name}_accuracy"] for name in ("train", "test")}


def probed(folder: Path, target: str, trained: str, seed: int) -> dict[str, float]:
    """The paper's linear probe of a target in %: the rate chosen on validation, and the best one on test."""
    data, x = _features(folder, target, trained, seed)
    parts = [(rows, part.y) for rows, part in zip(x, (data.train, data.val, data.test), strict=True)]  # type: ignore[union-attr]
    found = seal_probe(parts[0], parts[1], seed=seed)
    return {"chosen": 100 * found.score(*parts[2]), "best on test": 100 * found.best(*parts[2])[1]}


def few_shots(folder: Path, target: str, trained: str, seed: int, shots: int) -> float:
    """The mean accuracy in % of episodes by the public protocol; the same episodes for every network."""
    data, x = _features(folder, target, trained, seed)
    return 100 * learn(torch.cat(x), episodes(_labels(data), 5, shots, QUERIES, EPISODES[shots], seed=0)).mean().item()


def affine(folder: Path, target: str, trained: str, seed: int, shots: int, count: int) -> float:
    """The same with the norms' scales and shifts fine-tuned, in fewer episodes."""
    data = target_data(target)
    whole = episodes(_labels(data), 5, shots, QUERIES, count, seed=0)
    found = adapt_some(_network(folder, trained, seed, data), data, whole, range(count), seed=0)
    return 100 * statistics.mean(found)


def run(name: str, seeds: range, data_dir: Path | None, each: Runs) -> Table:
    """The table: every method against long training, paired by seed."""
    if data_dir is None:
        raise RequestError("there is nothing to train on: --data-dir is a folder with cifar100_sub.npz in it")
    number, size = name.removeprefix("seal-table")[0], "small" if name.endswith("-small") else "full"
    chosen = SIZES[size]
    origin, targets = sources_of(data_dir, chosen["base"])
    if not targets:
        raise RequestError(f"{data_dir} has nothing to transfer to: put one of {', '.join(TARGETS)} there, as .npz")
    rows = {row: method for row, method in METHODS.items() if row not in chosen["left out"]}
    runs: dict[Key, Run] = {}
    questions = questions_of(number, chosen["adapted"] if name.endswith("-affine") else 0, targets)
    for seed in seeds:
        for row, method in rows.items():
            settings = {key: chosen[key] for key in ("model", "train", "epochs", "fitting")}
            trained = named(("base", size, row, seed))
            paths = {"data": origin, **targets}  # all targets, whichever table asks for them
            cost = settings["epochs"] * (1 if method == "normal" else GENERATIONS)
            arguments = {**settings, "method": method, "seed": seed}
            runs["base", row, seed] = Run(trained, f"{__name__}:base", arguments, cost, paths=paths)
            for key, (work, target, more) in questions.items():
                arguments = {"trained": trained, "seed": seed, **more}
                full = (*key, row, seed)
                runs[full] = Run(
                    named((*key, size, row, seed)), f"{__name__}:{work}", arguments, 1.0, (trained,),
                    {"target": targets[target]},
                )  # fmt: skip
    at, done = each.all(runs)
    remarks = [
        f"{Path(origin).stem}, {chosen['train']} training images, {chosen['model']}, {GENERATIONS} generations of "
        f"{chosen['epochs']} epochs; differences in points to {CONTROL}, which has as many epochs.",
        "The paper's differences are means over its own data sets; = agrees in sign, by two standard errors.",
    ]
    return Table(name, f"SEAL, table {number}", _cells(at, list(rows), done, questions), remarks=remarks)


Questions = dict[Key, tuple[str, str, dict[str, Any]]]  # column and target → work, target, arguments


def sources_of(data_dir: Path, name: str) -> tuple[str, dict[str, str]]:
    """Where the images to train on are, and the targets by name."""
    own = data_dir / "base"
    origin = own if own.is_dir() else data_dir / f"{name}.npz"
    found = {target: data_dir / f"{target}.npz" for target in TARGETS}
    if data_dir.is_dir():
        found |= {path.name: path for path in sorted(data_dir.iterdir()) if path.is_dir()}
    return str(origin), {key: str(path) for key, path in found.items() if path.exists() and path != origin}


def questions_of(number: str, adapted: int, targets: dict[str, str]) -> Questions:
    """What is asked of every network: nothing that a target has too many classes for, or too few images."""
    if number == "1":
        return {("probe", t): ("probed", t, {}) for t in targets if len(target_data(targets[t]).classes) <= CLASSES}
    asked: Questions = {}
    for shots in (5,) if adapted else SHOTS[number]:
        for target, path in targets.items():
            if int(_labels(target_data(path)).bincount().min()) < shots + QUERIES:
                continue
            asked[f"{shots}-shot", target] = ("few_shots", target, {"shots": shots})
            if adapted:
                asked["5-shot, affine", target] = ("affine", target, {"shots": shots, "count": adapted})
    return asked


def _cells(at: dict[Key, Any], rows: list[str], seeds: list[int], questions: Questions) -> list[Cell]:
    """Accuracies of every target, then differences to the control: on the base data, and over all targets."""
    cells = []
    for row in rows:
        for part in ("train", "test"):
            values = [at["base", row, seed][part] for seed in seeds]
            cells.append(cell(row, f"base, {part}", None, values, 0))
        for key in questions:
            cells.append(cell(row, ", ".join(key), None, [_value(at, key, row, seed) for seed in seeds], 0))
        if row == CONTROL:
            continue
        own = [at["base", row, seed]["test"] - at["base", CONTROL, seed]["test"] for seed in seeds]
        paper = row.partition(" (")[0]  # all forms of SEAL are held against the one in the paper
        cells.append(direction(row, "base, to long", PAPER["base"].get(paper), own))
        for column in dict.fromkeys(key[0] for key in questions):
            same = [key for key in questions if key[0] == column]
            gains = [
                statistics.mean(_value(at, key, row, seed) - _value(at, key, CONTROL, seed) for key in same)
                for seed in seeds
            ]
            cells.append(direction(row, f"{column}, to long", PAPER[column].get(paper), gains))
    return cells


def _value(at: dict[Key, Any], key: Key, row: str, seed: int) -> float:
    full = (*key, row, seed)
    found = at[full]
    return float(found["chosen"] if isinstance(found, dict) else found)


def _network(folder: Path, trained: str, seed: int, data: Data) -> Any:
    return frozen(Backbone("", str(folder.parent / trained), "last", seed), data)


def _features(folder: Path, target: str, trained: str, seed: int) -> tuple[Data, list[torch.Tensor]]:
    """The target, and what the network's head would see of its parts."""
    data = target_data(target)
    network = _network(folder, trained, seed, data)
    kept = folder.parents[1] / FEATURES
    parts = [part for part in (data.train, data.val, data.test) if part is not None]
    return data, [frozen_features(network, part, kept)[LAST] for part in parts]  # type: ignore[arg-type]


def _labels(data: Data) -> torch.Tensor:
    return torch.cat([part.y for part in (data.train, data.val, data.test)])  # type: ignore[union-attr]


@lru_cache(maxsize=4)
def target_data(path: str) -> Data:
    """A target with as many training images as are probed; of Omniglot, the characters of its second half."""
    if Path(path).stem == "omniglot28":
        with np.load(path, allow_pickle=False) as arrays:
            return load((arrays["x_evaluation"], arrays["y_evaluation"]))
    whole = load(path, val=0)
    most = len(whole.train) if whole.train is not None else 0  # type: ignore[arg-type]
    return load(path, train=min(PROBED, int(0.8 * most)))
