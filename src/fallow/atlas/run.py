"""The comparisons of an atlas, one after another in folders of their own; interrupted, the same call goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fallow.atlas import rows as kept
from fallow.atlas.rows import Judgement
from fallow.atlas.sites import Site
from fallow.base.errors import RequestError
from fallow.comparison.plan import METHODS, QUICK_SEEDS, SEEDS, Plan
from fallow.models import lite0, minilm
from fallow.training.recipes import kind_of

if TYPE_CHECKING:
    from fallow.experiment import State

SMALL = "scnn:width=8,dense=64,norm=batch"  # in quick atlases, of images and signals: a run takes seconds
PROBE = "probe"
LOOK = {"lite0": 0.01, "minilm": 0.02}  # seconds that a pretrained network looks at a picture, or at a text
FILE = "atlas.csv"


def survey(
    sites: Sequence[Site],
    folder: Path,
    *,
    methods: Sequence[str] = METHODS,
    seeds: int | None = None,
    tune: int = 0,
    quick: bool = False,
    before: Sequence[Judgement] = (),
    told: Callable[[str], None] | None = None,
    watch: Callable[[State], None] | None = None,
    **how: Any,
) -> list[Judgement]:
    """Compare the methods in every site; the rows of the whole atlas, those known ``before`` included.

    Colour images and texts get two settings: a network from scratch, and a head on the features of a pretrained one, if
    it is installed. What was measured stays in ``folder``: other sites are added by another call. ``told`` hears what
    came out of each; ``how`` is for :func:`fallow.comparison.execute`.
    """
    from fallow.comparison import execute

    file = folder / FILE
    whole = {(*row.setting, row.method): row for row in [*before, *(kept.read(file) if file.exists() else ())]}
    for number, site in enumerate(sites, 1):
        done = execute(
            plan(site, methods, seeds, tune, quick), folder / "comparisons" / site.name, told=told, watch=watch, **how
        )
        findings = done.findings()
        found = kept.gathered(site, done, findings)
        settings = {row.setting for row in found}
        whole = {key: row for key, row in whole.items() if row.setting not in settings}
        whole |= {(*row.setting, row.method): row for row in found}
        kept.write(file, list(whole.values()))
        if told is not None:
            told(f"{number} of {len(sites)}, {site.name}: {findings.sentence}")
    return list(whole.values())


def plan(site: Site, methods: Sequence[str], seeds: int | None = None, tune: int = 0, quick: bool = False) -> Plan:
    """What is compared in a site: on the network that the data's recipe has, a small one where it is to be quick."""
    data = loaded(site)
    if data.target.kind != "classes":
        raise RequestError(f"{site.source} has {data.target.kind}, and an atlas is of accuracies: compare it alone")
    kind = "texts" if data.texts else kind_of(data.shape)
    models: tuple[str, ...] = (SMALL if quick and kind in ("grey images", "colour images", "signals") else "auto",)
    settings: dict[str, Any] = {"metric": "accuracy"}  # one meaning in all columns, of classes that are balanced or not
    knows = {"colour images": lite0, "texts": minilm}.get(kind)
    if knows is not None and knows.published() is not None:
        models, settings = (*models, knows.__name__.rpartition(".")[2]), settings | {"freeze": "head"}
        methods = (*methods, PROBE)
    most = QUICK_SEEDS if quick else SEEDS
    return Plan(
        data=(site.source,), methods=tuple(methods), models=models, seeds=most if seeds is None else seeds, tune=tune,
        quick=quick, train=site.labels, as_=site.as_, refit=False, settings=settings,
    )  # fmt: skip


def loaded(site: Site) -> Any:
    """The data of a site, with the first seed."""
    from fallow.data import load

    return load(site.source, train=site.labels, as_=site.as_, seed=0)


def estimate(plans: Sequence[Plan]) -> list[float]:
    """CPU seconds of every comparison if no method is dropped, by a few steps of each network on each data set.

    A run looks at its test examples once, at a third of a pass; pretrained networks look at every picture once. What
    trials of settings and yardsticks take is not in it.
    """
    from fallow.comparison.minutes import paces
    from fallow.comparison.policy import runs
    from fallow.comparison.recipes import with_recipes
    from fallow.comparison.run import few
    from fallow.comparison.work import read
    from fallow.training.pace import FORWARD

    known: dict[tuple[str, str], float] = {}
    found = []
    for asked in plans:
        (source,) = asked.data
        data = read(source, asked.first, asked.load_options())
        here = with_recipes(asked, {source: data})
        if any((source, model) not in known for model in here.models_of(source)):
            began, spent = time.monotonic(), time.process_time()
            paced = paces(here, {source: few(data, {"freeze": "head"})})
            share = min(1.0, (time.process_time() - spent) / (time.monotonic() - began))  # of a core: others work, too
            known |= {key: share * seconds for key, seconds in paced.items()}
        total = 0.0
        for run in runs(replace(here, tune=0), {source: data}, {source: ""}):
            batches = data.sizes["test"] / run.arguments["settings"]["batch_size"]
            total += (run.cost + FORWARD * batches) * known[source, run.arguments["model"]]
        for look in (LOOK[model] for model in here.models if model in LOOK):
            total += look * (data.sizes["test"] + asked.seeds * (data.sizes["train"] + data.sizes["val"]))
        found.append(total)
    return found
