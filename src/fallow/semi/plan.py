"""What is asked of a study, and the data that it is about."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from fallow.base.errors import RequestError, unknown
from fallow.base.files import expanded
from fallow.base.numbers import is_finite, require, require_whole
from fallow.base.spec import parse
from fallow.core.settings import Settings
from fallow.data import Data, Examples, add_unlabelled, budget, bundled, load, mix_in, set_apart
from fallow.data.sources.listed import lists
from fallow.data.sources.table import SUFFIXES, read_cells
from fallow.data.sources.wanted import TARGETS
from fallow.methods import build
from fallow.methods.semi.confidence import ConfidenceNetwork
from fallow.methods.semi.fixmatch import FixMatch
from fallow.semi.supervised import supervised

METHODS = ("supervised", "fixmatch", "confidence")
SOURCES = ("data", "unlabelled", "ood")


@dataclass(frozen=True)
class StudyPlan:
    """A method, the images that it may see, and how it is trained; the defaults take minutes on a laptop."""

    data: str
    method: str = "fixmatch"  # with settings: "fixmatch:threshold=0.9"
    labels: int | None = None  # None: all there are
    val: int = 300  # validation labels
    images: int | None = None  # unlabelled images of the data itself; None: all there are
    unlabelled: str | None = None  # more of them
    ood: str | None = None  # images of other classes, to mix in
    ood_classes: str | None = None  # or: classes of the data, by commas, that count as foreign
    ood_share: float = 0.5  # of the unlabelled images that are foreign
    size: int | None = None  # side of the images of a folder
    as_: str | None = None  # "images", where arrays do not look like them
    groups: str | None = None  # what stays on one side of every split
    model: str = "scnn:width=8,dense=64"
    network: str = ""  # of the confidence; "": like the model
    epochs: int = 20
    steps: int = 50  # in an epoch
    batch_size: int = 64  # labelled images in a step; μ times as many unlabelled ones come along
    lr: float = 0.03
    weight_decay: float = 5e-4
    augment: str = "auto"  # the weak augmentation
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind not in METHODS:
            raise unknown("method", self.kind, METHODS)
        for key in ("labels", "val", "images", "size", "steps"):
            if (value := getattr(self, key)) is not None:
                require_whole(key, value)
        share = self.ood_share
        require(is_finite(share) and 0 < share < 1, "ood_share", share, "above 0 and below 1")
        how = self.settings()
        Settings.of(**{key: value for key, value in how.items() if key != "test_at_end"})
        if self.ood is not None and self.ood_classes is not None:
            raise RequestError("foreign images are those of --ood or of --ood-classes: give one of the two")
        if self.labels is None and self.unlabelled is None and not self.foreign and self.kind != "supervised":
            raise RequestError(
                "every training image would be labelled: keep some labels by --labels 250, or give --unlabelled FOLDER"
            )

    @property
    def kind(self) -> str:
        """The method's name."""
        return self.method.partition(":")[0]

    @property
    def foreign(self) -> bool:
        """Whether foreign images are mixed in."""
        return self.ood is not None or self.ood_classes is not None

    def chosen(self) -> FixMatch:
        """The method that is studied."""
        name, settings = parse(self.method)
        spec = "fixmatch" + self.method.removeprefix("supervised") if name == "supervised" else self.method
        made: Any = build(spec)
        if "steps" not in settings:
            made = replace(made, steps=self.steps)
        if isinstance(made, ConfidenceNetwork) and self.network:
            made = replace(made, network=self.network)
        return supervised(made) if name == "supervised" else made

    def settings(self) -> dict[str, Any]:
        """For `fallow.fit`."""
        return {
            "generations": 1, "epochs": self.epochs, "batch_size": self.batch_size, "lr": self.lr,
            "weight_decay": self.weight_decay, "augment": self.augment, "label_smoothing": 0.0, "seed": self.seed,
            "test_at_end": True,
        }  # fmt: skip

    def describe(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)

    def how(self) -> dict[str, Any]:
        """All but the places of the images."""
        return {key: value for key, value in asdict(self).items() if key not in SOURCES}

    def sources(self) -> dict[str, str]:
        """The places of the images, for workers that may stand elsewhere."""
        given = {key: value for key in SOURCES if (value := getattr(self, key)) is not None}
        return {key: value if bundled(value) else str(expanded(value).resolve()) for key, value in given.items()}


def gather(plan: StudyPlan) -> Data:
    """The labelled, validation, test and unlabelled images of a study."""
    _refuse_tables(plan)
    data = load(plan.data, seed=plan.seed, size=plan.size, as_=plan.as_, groups=plan.groups)
    if not isinstance(data.train, Examples) or not data.pictures:
        raise RequestError(f"{plan.data} holds no images in memory: give grey or colour images (smaller ones: --size)")
    source: Any = plan.ood
    if plan.ood_classes is not None:
        data, source = set_apart(data, [name.strip() for name in plan.ood_classes.split(",")])
    assert isinstance(data.train, Examples)
    labels = len(data.train) if plan.labels is None else plan.labels
    held = 0 if data.val is None else len(data.val)  # type: ignore[arg-type]
    data = budget(data, labels, val=min(plan.val, held), unlabelled=plan.images, seed=plan.seed)
    if plan.unlabelled is not None:
        data = add_unlabelled(data, plan.unlabelled)
    if source is not None:
        data = mix_in(data, source, plan.ood_share, seed=plan.seed)
    return data


def _refuse_tables(plan: StudyPlan) -> None:
    """A table holds no images, unless it lists some, or its rows are said to be some and a column is named label."""
    path = expanded(plan.data)
    if bundled(plan.data) or path.suffix.lower() not in SUFFIXES or not path.is_file():
        return
    if lists(path, cells := read_cells(path)):
        return
    if plan.as_ == "images" and sum(name.lower() in TARGETS for name in cells) != 1:
        raise RequestError(f"which column of {plan.data} holds the classes? call it label, and no other so")
    if plan.as_ != "images":
        raise RequestError(
            f"{plan.data} is a table, and semi learns from images: give a folder of them, "
            "or say --as images if the columns are pixels"
        )
