"""What to compare: methods × seeds × data sets × models, from flags or a TOML file, kept beside the results."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fallow.base import toml
from fallow.base.errors import RequestError, unknown
from fallow.base.names import LONGEST
from fallow.base.numbers import LARGEST, require_whole
from fallow.comparison.race import BASELINE, CONTROLS, HELD, TASKS_CONTROL, Rules, plain
from fallow.core.settings import Settings
from fallow.evaluate.metrics import Metric
from fallow.evaluate.race import FURTHEST, looks_until

METHODS = ("llf", "seal", "lw", "fam", "sam", "ema", "swa", "mixup", "cutmix", "dropout")
UNEVEN = "balanced"  # enters with them where balanced accuracy judges, because the classes are uneven
SEEDS, QUICK_SEEDS = 20, 4  # the most that may be spent on a method
AUTO = "auto"  # names the model that fits the data
GROW = ("data", "methods", "models", "seeds")  # an existing comparison may be asked for more of these
FREE = (
    "looks",
    "exploratory",
    "minutes",
    "prove_worse",
    "labels",
    "recipes",
    "refit",
)  # they follow, or say how long it goes on
BUDGETS = {"passes": "forward-backward passes", "steps": "steps of the optimiser"}
SCORES = {"last": "after the last epoch", "best": "at the best epoch on validation"}


@dataclass(frozen=True)
class Plan:
    """What to compare. Empty ``models``, and settings that are not given, follow from the data.

    >>> Plan(data=("digits",), methods=("llf",)).methods  # the controls belong to every comparison
    ('normal', 'long', 'restart', 'llf')
    """

    data: tuple[str, ...]
    methods: tuple[str, ...] = METHODS
    models: tuple[str, ...] = ()
    seeds: int = SEEDS
    seed: int = 0  # the first of them
    looks: tuple[int, ...] = ()  # at how many seeds one judges, by default up to ``seeds``
    same: float | None = None  # what makes no difference, in points or in the metric's unit; half a point of a share
    prove_worse: bool = False  # losers run on until they are proved to be worse
    minutes: float | None = None  # the race ends when they are spent
    exploratory: tuple[str, ...] = ()  # methods that the guarantee does not cover: they came after a look
    tune: int = 0  # trials of settings for each runner, the controls included; 0: as they are
    folds: int = 0  # so many seeds are the folds of one partition: each example is a test example in one of them
    labels: bool = False  # what would more of them bring?
    refit: bool = True  # the winner learns from all labels in the end, validation included
    quick: bool = False
    budget: str = "passes"
    score: str = "last"
    train: int | None = None
    val: float = 0.2
    size: int | None = None
    strict: bool = False
    as_: str | None = None  # what examples are, and what stays together: see `fallow.data.load`
    groups: str | None = None
    target: str | None = None
    drop: str | None = None
    weights: str | None = None
    tasks: dict[str, Any] = field(default_factory=dict)  # for methods that learn from them: see `load_tasks`
    settings: dict[str, Any] = field(default_factory=dict)  # fields of Settings
    recipes: dict[str, Any] = field(default_factory=dict)  # by data and model, settings that are not given

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):
            if not _fits(value := getattr(self, item.name), item):
                would = "give a list of names" if item.name in GROW[:3] else "see fallow compare --help"
                raise RequestError(f"{item.name} of a plan cannot be {value!r}: {would}")
        if not self.data:
            raise RequestError("there is no data to compare on: name a data set or a path, or a plan with one")
        self._change(
            data=tuple(map(_source, self.data)),
            settings={k: v for k, v in self.settings.items() if v is not None and (k, v) != ("augment", "try")},
        )
        for what, names in (("data", self.data), ("model", self.models)):
            if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
                raise RequestError(f"{what} {twice[0]!r} is named twice: name it once")
        require_whole("seeds", self.seeds, 1, FURTHEST)
        require_whole("seed", self.seed, 0, LARGEST - 2 * FURTHEST)
        if self.tune == 1:
            raise RequestError("tune is 1: one trial is no choice, so give 2 or more, or 0 for none")
        require_whole("tune", self.tune, 0, FURTHEST)
        for name, least in (("same", 0.0), ("minutes", 1e-9)):
            if (value := getattr(self, name)) is not None and not least <= value < float("inf"):
                raise RequestError(f"{name} is {value}: it must be a number {'from' if not least else 'above'} 0")
        if self.folds:
            require_whole("folds", self.folds, 2, FURTHEST)
            self._change(seeds=-(-self.seeds // self.folds) * self.folds)  # whole repeats
        if list(self.looks) != sorted({*self.looks} - {0, 1}):
            raise RequestError(f"looks is {list(self.looks)}: it must rise from 2 seeds or more")
        if not self.looks or self.seeds > self.looks[-1]:
            whole = tuple(range(self.folds, self.seeds + 1, self.folds)) if self.folds else ()
            self._change(looks=whole or looks_until(max(2, self.seeds)))
        if self.budget not in BUDGETS:
            raise unknown("budget", self.budget, BUDGETS)
        if self.score not in SCORES:
            raise unknown("score", self.score, SCORES)
        if not 0 < self.val < 1:
            raise RequestError(f"val is {self.val}: a comparison chooses on validation, give a share between 0 and 1")
        if "seed" in self.settings:
            raise RequestError("seed is set in the settings: give seed and seeds of the plan instead")
        Settings.of(**self.settings)
        self._check_recipes()
        self._change(methods=_with_controls(self.methods))

    def _check_recipes(self) -> None:
        """Recipes may come out of a file: they hold settings, and name no network that is somebody else's."""
        for source, chosen in self.recipes.items():
            if not isinstance(chosen, dict) or not all(isinstance(each, dict) for each in chosen.values()):
                raise RequestError(f"the recipe of {source!r} holds no settings: leave it out, and it is chosen again")
            refuse_foreign(chosen, self.models, Path("a recipe of the plan"))
            for settings in chosen.values():
                Settings.of(**settings)

    def models_of(self, source: str) -> list[str]:
        """The models to train on a data set; ``auto`` is its recipe's own."""
        known = self.recipes.get(source, self.models)
        own = next((model for model in known if model not in self.models), next(iter(known)))
        return list(dict.fromkeys(own if model == AUTO else model for model in self.models or (AUTO,)))

    def recipe(self, source: str, model: str) -> dict[str, Any]:
        """The settings of the training of a model on a data set: those given, the rest by the recipe."""
        return self.recipes[source][model] | self.settings

    def _change(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @classmethod
    def of(cls, **changes: Any) -> Plan:
        """A plan from plain values, lists for tuples; a mistyped key is answered with the nearest."""
        known = [item.name for item in dataclasses.fields(cls)]
        for key, value in changes.items():
            if key not in known:
                raise unknown("key of a plan", key, known)
            if isinstance(value, list):
                changes[key] = tuple(value)
        return cls(**changes)

    @classmethod
    def read(cls, path: Path, named: Iterable[str] = ()) -> dict[str, Any]:
        """The keys of a TOML file, not checked yet: flags may add to them.

        What is not fallow's own is imported only where the command itself names it: a plan may be somebody else's.
        """
        found = toml.read(path, "plan")
        for key, names_of in (("models", list), ("methods", networks)):
            if isinstance(listed := found.get(key), list) and all(isinstance(name, str) for name in listed):
                refuse_foreign(names_of(listed), named, path)
        return found

    @property
    def fewshot(self) -> bool:
        """Whether the methods learn from tasks."""
        from fallow.methods import build

        return build(self.methods[0]).tasks

    @property
    def held(self) -> range:
        """The seeds to tune on, where that is asked for; none of them races."""
        start = self.seed * max(1, self.folds)
        return range(start, start + HELD) if self.tune else range(0)

    @property
    def first(self) -> int:
        """The first seed that races."""
        if self.folds:
            return self.folds * (self.seed + bool(self.tune))  # a partition of its own
        return self.seed + len(self.held)

    def load_options(self) -> dict[str, Any]:
        """How to load a data set, besides its seed."""
        from fallow.methods import build

        if self.fewshot:
            return {"tasks": {"size": self.size} | self.tasks}
        rest = self.train is not None and any(build(method).semi for method in self.methods)
        how = {key: getattr(self, key) for key in ("train", "val", "size", "strict", "as_", "groups", "target")}
        how |= {"folds": self.folds} if self.folds else {}
        return how | {
            "drop": self.drop or "",
            "rest": rest,
        }  # what --train leaves out can be learned from without its labels

    def rules(self, metric: Metric) -> Rules:
        """What is frozen for every race."""
        same = self.same / 100 if self.same is not None and metric.share else self.same
        return Rules(self.looks, self.seeds, self.first, same, self.prove_worse, self.exploratory)

    def toml(self) -> str:
        """As a file that ``fallow compare --plan`` takes."""
        return toml.text({key: value for key, value in self.describe().items() if value != {}})

    def describe(self) -> dict[str, Any]:
        """As plain values."""
        return json.loads(json.dumps(dataclasses.asdict(self)))

    def merged(self, stored: dict[str, Any], where: Path, *, looked: bool = True) -> Plan:
        """The plan with everything that was asked before; one that trains or judges otherwise is refused.

        What was asked once stays in the table: leaving the losers out afterwards would flatter the winners. If someone
        ``looked`` at results before, the looks are frozen, and methods that come now are exploratory; seeds beyond
        the last look make all of them so.
        """
        mine = self.describe()
        if not isinstance(stored, dict) or stored.keys() != mine.keys():
            raise RequestError(f"{where} holds a plan that is damaged: delete {where / 'experiment.db'}, and repeat it")
        refuse_foreign(
            [*stored["models"], *networks(stored["methods"])], [*self.models, *networks(self.methods)], where
        )
        for key, value in mine.items():
            other = key not in (*GROW, *FREE) and stored.get(key) != value
            other |= key == "data" and not set(stored["data"]) & set(self.data)
            other |= key == "models" and bool(stored["models"]) != bool(value)
            if other:
                raise RequestError(
                    f"{where} holds another comparison: its {key} is {stored.get(key)!r}, not {value!r}; "
                    "choose another --out"
                )
        union: dict[str, Any] = {key: tuple(dict.fromkeys([*stored[key], *mine[key]])) for key in GROW[:3]}
        timed = self.minutes is not None and stored["minutes"] is not None  # then the time said how many
        more: dict[str, Any] = {
            "seeds": stored["seeds"] if timed else max(stored["seeds"], self.seeds),
            "labels": stored["labels"] or self.labels,
            "recipes": self.recipes | stored["recipes"],
        }
        both = dataclasses.replace(self, **union, **more)
        if not looked:
            return both
        beyond = both.seeds > stored["looks"][-1]
        late = [name for name in both.methods if beyond or name not in stored["methods"]]
        asked = (name for name in (*stored["exploratory"], *late) if not plain(name))
        looks = both.looks if beyond else tuple(stored["looks"])
        return dataclasses.replace(both, looks=looks, exploratory=tuple(dict.fromkeys(asked)))


def networks(specs: Iterable[str]) -> list[str]:
    """The models that methods build by name.

    >>> networks(["llf", "confidence:network=mine:net"])
    ['mine:net']
    """
    from fallow.methods import build

    return [name for spec in specs for part in build(spec).parts for name in part.networks]


def refuse_foreign(stored: Iterable[Any], named: Iterable[str], where: Path) -> None:
    """Refuse models out of a file that are not fallow's own, unless they are named again: importing them runs code."""
    from fallow.models import MODELS

    known = {name.strip() for name in named}
    for name in stored:
        if (
            isinstance(name, str)
            and name.strip().partition(":")[0] not in (*MODELS, AUTO)
            and name.strip() not in known
        ):
            raise RequestError(
                f"{where} names the model {name!r}, which is not fallow's own: name it in the command, too"
            )


# the meta-training where nothing is said: Adam at a constant rate, as MAML's paper has it
TASKS: dict[str, Any] = {
    "generations": 1, "epochs": 20, "batch_size": 4, "lr": 1e-3, "optimizer": "adamw", "weight_decay": 0.0,
    "schedule": "constant",
}  # fmt: skip


def split_names(text: str) -> list[str]:
    """Names in one string, separated by blanks or commas; a comma before ``key=`` belongs to a name's settings.

    >>> split_names("llf,seal:scale=0.1,late=freeze ema")
    ['llf', 'seal:scale=0.1,late=freeze', 'ema']
    >>> split_names("mlp:hidden=64,64,scnn")
    ['mlp:hidden=64,64', 'scnn']
    """
    ends = r"\s*,[\s,]*(?=[A-Za-z_][\w.+-]*(?:[:,\s]|$))|(?<![,\s])\s+"
    found = [name for name in re.split(ends, text.strip(" ,\n\t")) if name]
    if not found:
        raise RequestError(f"{text!r} names nothing: give names, separated by commas")
    return found


def _source(name: str) -> str:
    """One spelling for one path: a data set named as ``images`` and as ``./images/`` is the same."""
    from fallow.data import bundled

    if bundled(name):
        return name
    path = os.path.normpath(name) if name else name
    return f".{os.sep}{path}" if bundled(path) else path


def _with_controls(specs: Iterable[str]) -> tuple[str, ...]:
    """The methods in their own spelling, each once, after the controls that belong to them."""
    from fallow.methods import build

    built = [build(spec) for spec in specs]
    if tasks := [method.name for method in built if method.tasks]:
        if others := [method.name for method in built if not method.tasks]:
            raise RequestError(
                f"{tasks[0]} learns from tasks and {others[0]} from labelled examples: compare them in two calls"
            )
        controls = [] if any(plain(str(method)) for method in built) else [build(TASKS_CONTROL)]
        built.sort(key=lambda method: not plain(str(method)))
    else:
        generational = any(method.generational for method in built)
        controls = [build(c) for c in (BASELINE, *CONTROLS) if c != "restart" or generational]
    unique: list[Any] = []
    for method in (*controls, *built):
        if not any(method.name == other.name and method.settings() == other.settings() for other in unique):
            unique.append(method)  # 1 and 1.0 are the same setting, though not the same text
    return tuple(map(str, unique))


def _fits(value: Any, item: dataclasses.Field) -> bool:
    """Whether a value is of a field's kind."""
    kinds = {"int": (int,), "float": (int, float), "str": (str,), "bool": (bool,), "dict[str, Any]": (dict,)}
    if item.type in ("tuple[str, ...]", "tuple[int, ...]"):
        kind = str if "str" in item.type else int
        return isinstance(value, tuple) and all(isinstance(each, kind) for each in value)
    parts = [part.strip() for part in str(item.type).split("|")]
    if value is None:
        return "None" in parts
    wanted = tuple(kind for part in parts for kind in kinds.get(part, ()))
    return isinstance(value, wanted) and (bool in wanted or not isinstance(value, bool))


def default_folder(plan: Plan) -> Path:
    """Where a comparison lives if nobody says: the same command finds it again."""
    from fallow.data import folder_name

    return Path("comparisons") / ("+".join(map(folder_name, plan.data))[:LONGEST] + ("-quick" if plan.quick else ""))
