"""One run of a comparison."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from fallow.base.files import expanded
from fallow.experiment import device, heed

CHECKPOINT_EVERY = 10.0  # seconds


def train(
    folder: Path,
    *,
    data: str,
    version: str,
    load: dict[str, Any],
    model: str,
    weights: str | None,
    method: str,
    seed: int,
    settings: dict[str, Any],
    root: str,
    own: dict[str, Any] | None = None,
    tested: bool = True,
) -> dict[str, Any]:
    """Train, or go on with what is left of the training; paths are meant from ``root``, ``own`` is as tuning chose.

    What is done is not resumed, as its outcome is known: of hundreds of runs the checkpoints would fill disks.
    """
    from fallow.core.record import RunFolder
    from fallow.data import Data
    from fallow.methods import build
    from fallow.training.fit import fit

    loaded = _load(absolute(data, root), json.dumps(load), seed, version)
    if not tested and isinstance(loaded, Data):
        loaded = replace(loaded, test=None)
    result = fit(
        model,
        loaded,
        build(method).tuned(own) if own else method,
        weights=Path(root, weights) if weights is not None else None,
        out=folder,
        resume=(folder / "run.json").exists(),
        device=device(),
        observer=heed,
        checkpoint_every=CHECKPOINT_EVERY,
        test_at_end=True,
        features=folder.parent.parent / "features",
        seed=seed,
        **settings,
    )
    RunFolder(folder).thin()
    return result.describe()


def again(
    folder: Path,
    *,
    data: str,
    version: str,
    load: dict[str, Any],
    model: str,
    weights: str | None,
    method: str,
    seed: int,
    settings: dict[str, Any],
    whole: bool,
    metric: str,
    root: str,
) -> dict[str, Any]:
    """Train the winner, on all labels if ``whole``; how many, and its score on test."""
    from fallow.core.record import RunFolder
    from fallow.evaluate.score import key_of
    from fallow.training.fit import fit

    loaded = _taught(_load(absolute(data, root), json.dumps(load), seed, version), whole)
    result = fit(
        model, loaded, method, weights=Path(root, weights) if weights is not None else None, out=folder,
        resume=(folder / "run.json").exists(), device=device(), observer=heed, checkpoint_every=CHECKPOINT_EVERY,
        test_at_end=True, features=folder.parent.parent / "features", seed=seed, metric=metric, **settings,
    )  # fmt: skip
    RunFolder(folder).thin()
    return {"labels": loaded.sizes["train"], "test": result.last.get(key_of("test", metric))}


def learn(
    folder: Path,
    *,
    data: str,
    version: str,
    load: dict[str, Any],
    model: str,
    name: str,
    chosen: dict[str, float],
    seed: int,
    whole: bool,
    metric: str,
    root: str,
) -> dict[str, Any]:
    """Let a yardstick learn, with what was chosen for it, and keep it as a run."""
    from fallow.training.yardsticks import keep, relearned

    loaded = _taught(_load(absolute(data, root), json.dumps(load), seed, version), whole)
    found = relearned(loaded, name, chosen, seed)
    keep(found, loaded, folder)
    return {"labels": loaded.sizes["train"], "test": found.metrics.get("test", {}).get(metric)}


def yardstick(
    folder: Path,
    *,
    data: str,
    version: str,
    load: dict[str, Any],
    seed: int,
    metric: str,
    pretrained: bool,
    root: str,
) -> dict[str, list[Any]]:
    """What ordinary learners reach on a seed's split, on pretrained features too if asked."""
    from fallow.comparison.yardsticks import scores

    loaded = _load(absolute(data, root), json.dumps(load), seed, version)
    return scores(loaded, metric, seed, folder.parents[2] / "features" if pretrained else None)


def _taught(data: Any, whole: bool) -> Any:
    """The data, or with validation among the training examples."""
    from fallow.data.examples import united

    return replace(data, train=united(data.train, data.val), val=None) if whole and data.val is not None else data


def trial(folder: Path, **arguments: Any) -> dict[str, Any]:
    """Train with settings on trial: only validation judges them, and so there is no test, and no model to keep."""
    from fallow.core.record import RunFolder

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about settings that nobody asked for; what races says it again
        found = train(folder, **arguments, tested=False)
    RunFolder(folder).thin(weights=False)
    return found


def augmented(
    folder: Path,
    *,
    data: str,
    version: str,
    load: dict[str, Any],
    model: str,
    seed: int,
    settings: dict[str, Any],
    augment: str,
    root: str,
) -> list[float]:
    """A short training with an augmentation: the losses of parts of validation."""
    from fallow.core.settings import Settings
    from fallow.training import augmentation

    loaded = _load(absolute(data, root), json.dumps(load), seed, version)
    chosen = Settings.of(**settings | {"augment": augment, "seed": seed})
    return augmentation.trial(loaded, model, chosen, device())


@lru_cache(maxsize=2)  # the runs of a seed come one after another; a worker may have loaded another version before
def _load(source: str, options: str, seed: int, version: str) -> Any:
    return read(source, seed, json.loads(options))


def read(source: Any, seed: int, options: dict[str, Any]) -> Any:
    """The data of a seed; with ``rest``, the images whose labels are not kept stay as unlabelled ones.

    With ``folds``, so many seeds one after another are the folds of one partition; ``keep`` keeps so many of the
    training examples, of which fewer are always among more.
    Tasks for validation and test are the same for every seed.
    """
    from fallow.data import budget, fewer, load
    from fallow.data.tasks.load import load_tasks

    if "tasks" in options:
        return load_tasks(source, **options["tasks"])
    how = dict(options)
    if kept := how.pop("keep", None):
        return fewer(read(source, seed, how), kept, seed)
    if number := how.pop("folds", 0):
        seed, how["fold"] = seed // number, (seed % number, number)
    if not how.pop("rest"):
        return load(source, seed=seed, **how)
    labels = how.pop("train")
    whole = load(source, seed=seed, **how)
    share = round(labels * how["val"] / (1 - how["val"]))
    held = 0 if whole.val is None else len(whole.val)  # type: ignore[arg-type]
    return budget(whole, labels, val=min(held, max(len(whole.classes), share)), seed=seed)


def absolute(source: str, root: str) -> str:
    """The source for workers that may stand elsewhere: paths become absolute."""
    from fallow.data import bundled

    return source if bundled(source) else str(Path(root, expanded(source)).resolve())
