"""What to do when nothing is said: a network and its training, by the kind and the number of examples and the time.

Chosen by measurement (test accuracy of the last epoch; one seed; CPU seconds of one thread on a busy machine):

==========================================  =====================================================  ========  ====
examples                                    network, epochs, augmentation                          accuracy  CPU s
==========================================  =====================================================  ========  ====
300 of mnist, 240 to train, 60 to validate  fallow 0.1: scnn, 4 × 20 epochs at .01                 90.6 (a)  17
                                            resnet18:width=16, 60 epochs, crop                     95.4      73
                                            the same, its head drawn a tenth as large (b)          95.1      80
                                            scnn:width=32,dense=128,norm=batch, 100 epochs, crop   96.5      65
                                            **scnn:width=16,dense=128,norm=batch, 200, crop**      96.4      46
300 of mnist to train                       **the same, 160 epochs**                               97.4      53 (c)
500 of fashion_mnist, 400 to train          resnet18:width=16, 60 epochs, crop                     78.6 (a)  68
                                            **scnn:width=16,dense=128,norm=batch, 100, crop**      81.9      35
1,000 of cifar10_sub to train               resnet18:width=16, 100 epochs, flip+crop               54.8 (a)  245
                                            **the same, beside many other processes**              55.0      556 (c)
pets32, 2,944 to train                      **resnet18:width=16, 60 epochs, flip+crop**            40.3 (a)  428
                                            **the same, beside other processes**                   43.2      960 (c)
digits, 1,150 to train; two seeds           scnn:width=8,dense=64,norm=batch, 20 epochs, crop      98.9      3.0
                                            scnn:width=16,dense=128,norm=batch, 20, crop           99.6      5.3
                                            **the same in batches of 64**                          99.4      2.8
==========================================  =====================================================  ========  ====

(a) Measured elsewhere, with all labels to train. (b) With norms, logits start with a standard deviation of .8 to 1, and
a smaller head gains nothing; without norms it was 2. (c) With its trials of augmentations, three sevenths of it.

Tables, two seeds: accuracy of scikit-learn's cancer, wine and digits and of 800 made patients, RMSE of diabetes, of 600
rows of Friedman's first function and of 2,000 made houses (``python -m benchmarks tables`` has such):

=================================================  ======  ====  ======  ========  ========  ========  ======
all ``norm=batch``, at .05, decay .01              cancer  wine  digits  patients  diabetes  Friedman  houses
=================================================  ======  ====  ======  ========  ========  ========  ======
mlp                                                93.9    95.8  98.6    65.6      67.8      1.60      .485
with RealMLP's embeddings, beside the inputs       93.0    95.8  98.9    64.1      67.2      1.50      .463
with piecewise-linear ones (8 bins)                93.4    97.2  98.3    63.1      67.9      1.52      .465
**with periodic ones and ReLU, embed=8**           93.0    95.8  98.5    67.2      64.1      1.48      .454
the best yardstick on test                         95.2    97.2  97.6    67.2      57.7      1.60      .470
=================================================  ======  ====  ======  ========  ========  ========  ======

A decay of .03 is better for Friedman (1.33) and worse for houses (.531) and cancer (89.5); dropout beside norms helps
diabetes alone (58.8; Friedman 2.56, houses .571). On the few rows of diabetes nothing beat ridge.

Signals, 160 to train, 1,200 to test, one seed, shifts, 25 epochs where nothing is said: accuracy of made shapes,
heartbeats, places of a bump and frequencies, RMSE of chirps. ``python -m benchmarks signals`` has six such sets.

=============================================  ======  ==========  ======  ===========  =========
one-cycle rate up to .1                        shapes  heartbeats  places  frequencies  chirps
=============================================  ======  ==========  ======  ===========  =========
scnn:width=16,dense=128,norm=batch             97.4    70.0        96.2    89.5 (60)    .567 (60)
resnet1d with one mean over all of time        94.0    59.2        91.8    93.8 (60)    .367 (60)
resnet1d with eight means and no dense layer   95.9    72.8        97.0    90.4         1.438
**resnet1d** (3 CPU seconds for 25 epochs)     96.8    73.8        96.7    91.9         .352 (60)
=============================================  ======  ==========  ======  ===========  =========

k-NN has 84.5 of the places, 76.9 of the frequencies and .648 of the chirps. Without shifts the network with one mean
had 34.4 of the heartbeats.

Volumes, one seed: of 150 made ones of 24³ voxels (``python -m benchmarks volumes``) resnet3d learns to tell 93.7 %, an
mlp 43.6 and k-NN 44.2 of three shapes; of adrenal glands (MedMNIST, 64³, 1,188 to train, 77 % of one class) 78.2 %.

Numbers, RMSE in deviations of the target, two seeds, a quarter of the epochs (of chirps half as many for the first two
columns); ``-``: the loss became infinite. At a rate that classes bear, the squared error of a head on 128 features
after a norm is too steep, unless gradients are clipped.

===================================  ==========  ==========  ==========  =============
one-cycle rate up to                 .1          .03         .01         **.1, clip 1**
===================================  ==========  ==========  ==========  =============
first sample of a sine, 77 signals   .76  .82    .19  .20    .29  .24    .27  .16
chirps, 160 signals, shifts          .43  .51    .21  .21    .25  .24    .19  .18
value of a digit, 256 images of 8×8  .84  1.00   .41  .37    .41  .43    .34  .32
redness, 128 images in colour        -    -      -    1.00   .79  .26    .27  .23
===================================  ==========  ==========  ==========  =============

Numbers of tables, three seeds: 120 rows of iris, the fourth column from the others, diabetes and Friedman's, as RMSE in
deviations of the target. Short trainings that somebody asks for need the clipping, the whole recipe does not mind it.

===================================  ==============  ==============  ===============
rate up to .05                       no clip         clip 1          **clip 3**
===================================  ==============  ==============  ===============
iris, 20 epochs                      .99  .98  1.07  .29  .29  .21   .30  .38  .28
diabetes, 20 epochs                  .86  .82  .90   .84  .79  .84   .89  .78  .84
iris, the recipe                     .33  .29  .24   .29  .30  .26   .31  .32  .25
diabetes, the recipe                 .86  .83  .75   .89  .81  .88   .84  .78  .83
Friedman, the recipe                 .28  .28  .26   .27  .29  .27   .27  .29  .27
===================================  ==============  ==============  ===============

What no habit can know, shifts and flips, validation chooses by short trials: :mod:`fallow.training.augmentation`. Of
the 60 and 100 validation examples of the first two above, the losses were .54 without, .33 with shifts and .41 with
mirroring beside them (30 CPU seconds for all three), and .65, .55 and .54, of which the last is chance.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from fallow import models
from fallow.base.errors import RequestError
from fallow.base.numbers import is_finite, require
from fallow.core.method import Method
from fallow.data import Data, Examples, Files
from fallow.data.texts import SEGMENT
from fallow.models.resnet1d import SHORTEST
from fallow.models.resnet3d import SMALLEST

GENERATIONS = 4  # of equal length; `long` has their epochs in one
QUICK, LEAST = 4, 3  # times shorter, and the epochs that a generation keeps: with fewer nothing is learned again
TRIALS = 0.75  # of a training, what trials of augmentations cost
SPEED, STEP = 8e10, 1.5e-3  # floating-point operations in a second of one thread, and seconds of a step besides
READ = 64  # tokens that a text is taken to have

TRAINING: dict[str, Any] = {  # what all rows share
    "batch_size": 32, "optimizer": "sgd", "momentum": 0.9, "nesterov": True, "weight_decay": 5e-4,
    "schedule": "one-cycle", "label_smoothing": 0.1, "augment": "try",
}  # fmt: skip


@dataclass(frozen=True)
class RecipeRow:
    """One line of the table: a network, its rate, and how long it trains."""

    model: str
    lr: float
    seen: int  # examples in a training: its epochs are as many as that takes,
    epochs: tuple[int, int]  # but no fewer and no more than these,
    minutes: float  # and no more than fit into this time of one thread
    more: dict[str, Any] = field(default_factory=dict)  # other than TRAINING


DECAYED = {"weight_decay": 1e-2, "augment": "none"}
ADAM: dict[str, Any] = {"optimizer": "adamw", "weight_decay": 1e-2, "augment": "none", "label_smoothing": 0.0}
#                         model                                 rate   seen    epochs   minutes
TABLE = {
    "tiny images":    RecipeRow("scnn:width=16,dense=128,norm=batch", 0.10, 23_000, (20, 200), 2, {"batch_size": 64}),
    "grey images":    RecipeRow("scnn:width=16,dense=128,norm=batch", 0.10, 48_000, (30, 200), 4),
    "colour images":  RecipeRow("resnet18:width=16", 0.10, 100_000, (60, 100), 8),
    "signals":        RecipeRow("resnet1d", 0.10, 48_000, (30, 200), 4),
    "short signals":  RecipeRow("scnn:width=16,dense=128,norm=batch", 0.10, 48_000, (30, 200), 4),
    "tables":         RecipeRow("mlp:norm=batch,embed=8", 0.05, 48_000, (30, 200), 2, DECAYED),
    "wide tables":    RecipeRow("mlp:norm=batch", 0.05, 48_000, (30, 200), 2, DECAYED),
    "volumes":        RecipeRow("resnet3d", 0.10, 48_000, (30, 200), 4),
    "texts":          RecipeRow("bag", 0.01, 48_000, (10, 40), 4, ADAM | {"weight_decay": 0.3}),
    "masks":          RecipeRow("unet", 0.01, 20_000, (30, 100), 8, {"augment": "auto"}),
    "other":          RecipeRow("mlp:norm=batch", 0.05, 48_000, (30, 200), 4, {"augment": "none"}),
}  # fmt: skip
WIDE = 256  # columns, beyond which embeddings of each would cost more than the rest of the network
FINE = 2e-5  # the rate at which a network that reads texts is tuned (Devlin et al. 2019)
SMALLER = 1e-4  # of minilm; 570 sentences on eight topics, four epochs: 77.5 % on test, at 2e-5 60.1
CAREFUL = 0.01  # the rate of a network that is no row's own and has no norms, or was trained before
CLIP, LOOSE = 1.0, 3.0  # of the gradient, where numbers are learned at a rate of classes; the same of tables


def kind_of(shape: tuple[int, ...]) -> str:
    """The row of the table that examples of a shape belong to.

    >>> kind_of((3, 64, 48)), kind_of((6, 500)), kind_of((20,))
    ('colour images', 'signals', 'tables')
    """
    if len(shape) in (2, 3) and min(shape[1:]) >= 4:
        if len(shape) == 2:
            return "signals" if shape[1] >= SHORTEST else "short signals"
        if min(shape[1:]) < 12:
            return "tiny images"
        return "grey images" if shape[0] == 1 else "colour images"
    if len(shape) == 4 and min(shape[1:]) >= SMALLEST:
        return "volumes"
    if len(shape) != 1:
        return "other"
    return "tables" if shape[0] <= WIDE else "wide tables"


def recipe(
    data: Data, model: str | None = None, *, minutes: float | None = None, quick: bool = False, frozen: bool = False
) -> dict[str, Any]:
    """A model and the settings to train it with, as :func:`fallow.fit` takes them.

    ``minutes`` is the time that one training may take on one thread: its epochs become as many as fit, up to four
    times as many as without. ``quick`` has a quarter of the epochs, and three a generation at least. A ``model`` that
    is named has the training of the row that its data belong to, at a smaller rate where it has no norms or was
    trained before. Where its first layers are ``frozen``, what they give is computed once, so that nothing is
    augmented. Where numbers are learned, gradients are clipped.

    >>> from fallow.data import load
    >>> found = recipe(load("digits"))
    >>> found["model"], found["lr"], found["generations"] * found["epochs"]
    ('scnn:width=16,dense=128,norm=batch', 0.1, 20)
    """
    if minutes is not None:
        require(is_finite(minutes) and minutes > 0, "minutes", minutes, "a number above 0")
    row = TABLE["texts" if data.texts else "masks" if data.target.kind == "dense" else kind_of(data.shape)]
    model = row.model if model is None else model
    settings = TRAINING | row.more
    least, most = row.epochs
    epochs = min(most, max(least, row.seen / examples_of(data)))
    network = _network(model, data)
    longest = row.minutes if minutes is None else minutes
    fitting = 60 * longest / seconds(network, data, settings["batch_size"])
    epochs = min(epochs if minutes is None else 4 * epochs, fitting)
    if quick:
        epochs = max(epochs / QUICK, min(epochs, GENERATIONS * LEAST))
    each = max(1, round(epochs / GENERATIONS))
    pretrained = getattr(network, "inputs", None) is not None
    own = model == row.model or (_normed(network) and not pretrained and not models.starts_trained(model))
    if own and data.target.kind == "numbers":
        settings["clip"] = CLIP if len(data.shape) > 1 else LOOSE  # the rate of tables was chosen for both
    careful = CAREFUL
    if data.texts and not frozen:
        careful = FINE if network is None else SMALLER
    if frozen:
        settings["augment"] = "none"
    elif pretrained or data.val is None or data.texts or not isinstance(data.train, Examples | Files):
        settings["augment"] = "auto"  # nothing to choose by, or the trials would cost more than they tell
    return {
        "model": model, "generations": GENERATIONS, "epochs": each, "lr": row.lr if own else careful,
        "evaluate_every": max(1, GENERATIONS * each // 40),
    } | settings  # fmt: skip


def training(
    data: Data,
    method: Method,
    model: str | None,
    given: dict[str, Any],
    minutes: float | None = None,
    quick: bool = False,
) -> tuple[str, dict[str, Any]]:
    """The recipe for one training by a method, with what is ``given`` instead: the network, and its settings.

    Ordinary training has all epochs of the recipe, not those of one generation. Trials of augmentations, unless one is
    given, take their part of the ``minutes``.
    """
    frozen = given.get("freeze") is not None
    found = recipe(data, model, minutes=minutes, quick=quick, frozen=frozen)
    if minutes is not None and found["augment"] == "try" and "augment" not in given:
        found = recipe(data, model, minutes=minutes / (1 + TRIALS), quick=quick)
    if not frozen and any(part.pretrained for part in method.parts):
        found["augment"] = "auto"  # as long as its layers are frozen, none
    if not method.generational and not {"generations", "epochs"} & set(given):
        found |= {"generations": 1, "epochs": found["generations"] * found["epochs"]}
    return found.pop("model"), found | given


def said(model: str, settings: dict[str, Any], method: Method | None = None) -> str:
    """The recipe in a line, as far as a method follows it.

    >>> said("mlp", {"generations": 4, "epochs": 5, "lr": 0.1, "schedule": "one-cycle", "batch_size": 32})
    'mlp, 4 × 5 epochs in batches of 32, one-cycle rate up to 0.1'
    """
    length = settings["generations"], settings["epochs"]
    if method is not None:
        length = method.plan(*length)
    epochs = " × ".join(str(number) for number in length if number > 1) or "1"
    what = f"{model}, {epochs} epoch{'s' * (epochs != '1')} in batches of {settings['batch_size']}"
    if method is not None and any("lr" in part.ignores for part in method.parts):
        return what
    upwards = "up to" if settings["schedule"] == "one-cycle" else "from"
    clipped = f", gradients clipped at {settings['clip']:g}" if settings.get("clip") else ""
    return f"{what}, {settings['schedule']} rate {upwards} {settings['lr']:g}{clipped}"


def duration(model: str, data: Data, settings: dict[str, Any]) -> float:
    """About how many seconds a training of all generations takes on one thread."""
    epochs = settings["generations"] * settings["epochs"]
    return epochs * seconds(_network(model, data), data, settings["batch_size"])


def seconds(network: nn.Module | None, data: Data, batch_size: int) -> float:
    """About how long an epoch takes on one thread: forward, and twice as much backward."""
    examples, shape = examples_of(data), data.shape
    inputs = getattr(network, "inputs", None)
    if inputs is not None:
        shape = (shape[0], inputs.fast or inputs.size, inputs.fast or inputs.size)
    example = torch.zeros(1, *shape)
    if data.texts:
        example = torch.ones(1, 3, READ, dtype=torch.long)
        example[:, SEGMENT] = 0
    work = 0 if network is None else 3 * operations(network, example)
    return examples * work / SPEED + -(-examples // batch_size) * STEP


def examples_of(data: Data) -> int:
    """The number of training examples, or a guess where nobody can count them."""
    return data.sizes["train"] or 10_000


def operations(network: nn.Module, example: Tensor) -> int:
    """Floating-point operations of the convolutions and linear layers for one example: two for each product.

    >>> operations(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 5)), torch.zeros(1, 3))
    64
    """
    total = 0

    def count(layer: nn.Module, _: Any, output: Tensor) -> None:
        nonlocal total
        weight: Tensor = layer.weight  # type: ignore[assignment]
        total += 2 * output.numel() * weight[0].numel()

    layers = [each for each in network.modules() if isinstance(each, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d)]
    hooks = [layer.register_forward_hook(count) for layer in layers]
    with torch.no_grad():
        network.eval()(example)
    for hook in hooks:
        hook.remove()
    return total


def _network(model: str, data: Data) -> nn.Module | None:
    """The network, untrained, to look at; None where it is not fallow's own, or does not fit, as will be said."""
    if not models.catalogued(model):
        return None
    try:
        with torch.random.fork_rng(devices=[]):
            return models.build(model, shape=data.shape, classes=data.target.outputs, pretrained=False)
    except RequestError:
        return None


def _normed(network: nn.Module | None) -> bool:
    kinds = (nn.modules.batchnorm._BatchNorm, nn.GroupNorm, nn.LayerNorm)
    return network is not None and any(isinstance(each, kinds) for each in network.modules())
