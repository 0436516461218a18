"""What SEAL asks of trained networks besides their accuracy: curvature, what blocks know, and what transfers.

``fallow reproduce seal-kept-large`` asks it of the networks that :mod:`fallow.reproduce.seal_large` trains.
"""

from __future__ import annotations

from pathlib import Path

from fallow.diagnose import prediction_depth, spectrum
from fallow.diagnose.subjects import Subject, subjects
from fallow.experiment import Run
from fallow.reproduce.runs import Key, named
from fallow.reproduce.seal_transfer import questions_of

CURVED, PROBES, STEPS = 400, 2, 40  # images, directions and Lanczos steps: a Hessian product takes seconds
LOOKED = 2000  # images of each part for neighbours


def curvature(folder: Path, data: str, trained: str, seed: int) -> dict[str, float]:
    """The numbers of table 6, by images that the network has learned."""
    subject = _subject(folder, data, trained, CURVED)
    found = spectrum(
        subject.model, subject.loss, *subject.train, probes=PROBES, steps=STEPS, batch_size=64, seed=seed
    )  # fmt: skip
    assert found.top_of_batches is not None
    return {
        "largest eigenvalue": found.largest.value,
        "smallest eigenvalue": found.smallest.value,
        "negative mass, %": 100 * found.negative_mass.value,
        "negative among the top of batches, %": 100 * found.top_of_batches.negative_share,
    }


def depth(folder: Path, data: str, trained: str) -> dict[str, float]:
    """Figure 2: the accuracy in % of five neighbours on early blocks and on the last, and the mean depth in blocks."""
    subject = _subject(folder, data, trained, LOOKED)
    found = prediction_depth(subject.model, subject.train, subject.test)
    known = 100 * found.accuracies
    early = float(known[: len(known) // 2].mean())
    return {"neighbours, early": early, "neighbours, last": float(known[-1]), "mean depth": found.mean}


def questions(trained: str, data: str, targets: dict[str, str], seed: int) -> dict[Key, Run]:
    """What is asked of one network, by what it is and perhaps the target."""
    transfer = questions_of("1", 0, targets) | questions_of("4", 0, targets)
    return {
        ("curvature",): _asked("curvature", trained, f"{__name__}:curvature", {"data": data}, seed=seed),
        ("depth",): _asked("depth", trained, f"{__name__}:depth", {"data": data}),
        **{
            key: _asked(
                ", ".join(key), trained, f"{questions_of.__module__}:{work}", {"target": targets[target]}, seed=seed,
                **more,
            )
            for key, (work, target, more) in transfer.items()
        },
    }  # fmt: skip


def _asked(what: str, trained: str, work: str, paths: dict[str, str], **arguments: object) -> Run:
    return Run(named((what, trained)), work, {"trained": trained, **arguments}, 0.1, (trained,), paths)


def _subject(folder: Path, data: str, trained: str, examples: int) -> Subject:
    return subjects([folder.parent / trained], data=data, examples=examples)[0]
