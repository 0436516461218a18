"""Every registered method, and the variants of settings that take another path: what the trials run on."""

from __future__ import annotations

import functools
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch

import fallow
from fallow import models
from fallow.methods import REGISTRY, build
from tests.conftest import small_images

VARIANTS = (
    "restart:reset_optimizer=True",
    "llf:biases=False,norm_affine=False,optimizer_state=keep",
    "seal:scale=0.5,late=freeze",
    "seal:scale=0.5,late=redraw,decay=False",
    "seal:scale=0.5,reverse=True,momentum=keep",
    "seal:ascent=adaptive",
    "ema:decay=0.9",
    "swa:start=0.5,rate=1",
    "mixup:alpha=1",
    "cutmix:probability=1",
    "dropout:where=dense,rate=0.05",
    "balanced:by=sampling",
    "probe:strength=0.01",
    "finetune:rate=0.05,first=0,lowest=1",
    "implicit-decay:inner=6,batches=2",
    "implicit-decay:per=weight,solver=neumann,products=3,inner=9,warmup=9,batches=2,outer=rmsprop,patience=2",
    "llf+ema",
    "seal:ascent=adaptive+swa:start=0.5",
    "seal:scale=1",
)
SMALL = {  # fewer unlabelled images, steps and products: the same moments in a fourth of the time
    "fixmatch": "fixmatch:ratio=1,steps=4",
    "confidence": "confidence:ratio=1,steps=4,threshold=0.5,warmup=4,every=4",
    "imaml": "imaml:products=2+maml:steps=3",
    "mumomaml": "mumomaml:width=8",
}
SPECS = [*(SMALL.get(name, name) for name, kind in REGISTRY.items() if not kind.tasks), *VARIANTS]
TASK_SPECS = [
    *(SMALL.get(name, name) for name, kind in REGISTRY.items() if kind.tasks and not kind.control and name != "maml"),
    "maml:execution=vmap",  # what is faster is found by a measurement, which need not find the same twice
    "maml:order=1,execution=loop",
    "maml:batch_norm=per-step,optimizer=momentum,execution=vmap",
    "maml:anneal=0.5+l2f:per=tensor,depth=2,norms=False,start=0.9+learned-rates+multi-step-loss:until=0.9",
]
CONTROL_SPECS = ["maml-trpo", "maml-trpo:steps=2+l2f", "maml-ppo+meta-sgd"]
CONTROL_SETTINGS: dict[str, Any] = {"iterations": 3, "every": 3, "meta_batch": 3, "test_steps": 1, "seed": 4}
ADVICE = pytest.mark.filterwarnings(  # what methods say of trials as short as these, on a model with norms
    "ignore:implicit-decay learns nothing in",
    "ignore:implicit-decay under a label smoothing of 0.1",
    "ignore:implicit-decay leaves 5 layers to the optimiser's own decay",
    "ignore:the training loss is far from its minimum",
    r"ignore:seal's ascent of \d+ steps will move its layers by less than \S+ % of their size, and forget nothing",
)
WEIGHTS = "TRIAL_WEIGHTS"
MODEL = "scnn:width=4,dense=16"
TASK_MODEL = "mlp:hidden=32"
TASK_SETTINGS: dict[str, Any] = {"iterations": 24, "every": 12, "lr": 0.01, "seed": 4}
# Adam blows rounding up where gradients vanish: two processes are compared without it
PLAIN = TASK_SETTINGS | {"optimizer": "sgd", "lr": 0.01, "momentum": 0.0}
SETTINGS: dict[str, Any] = {"generations": 3, "epochs": 4, "batch_size": 16, "lr": 0.05, "seed": 4}
# in float32 a threshold or a kink decides otherwise on another processor: whole trajectories are compared in float64
EXACT: dict[str, Any] = {"precision": "float64"}


@functools.cache
def weights() -> str:
    """A file of what the model of the trials has learned of other classes; the same one for all processes."""
    if WEIGHTS in os.environ:
        return os.environ[WEIGHTS]
    before = fallow.fit(MODEL, small_images(classes=5, seed=1), generations=1, epochs=6, lr=0.05, seed=7)
    file = Path(tempfile.mkdtemp()) / "weights.pt"
    torch.save(before.network.state_dict(), file)
    return str(file)


def needs(spec: str) -> dict[str, Any]:
    """What a method must be given besides data: weights, for those that start from them."""
    return {"weights": weights()} if any(part.pretrained for part in build(spec).parts) else {}


@functools.cache
def task_weights(model: str) -> str:
    """A file of weights for a model of tasks; random ones do, the same in every process."""
    with torch.random.fork_rng():
        torch.manual_seed(7)
        net = models.build(model, shape=(1, 8, 8), classes=3)
    file = Path(tempfile.mkdtemp()) / "weights.pt"
    torch.save(net.state_dict(), file)
    return str(file)


def task_needs(spec: str, model: str = TASK_MODEL) -> dict[str, Any]:
    """What a few-shot method must be given besides tasks."""
    return {"weights": task_weights(model)} if any(part.pretrained for part in build(spec).parts) else {}


def draws_locally(spec: str) -> bool:
    """Whether each process draws for its own share: several train as well as one, not alike."""
    local = ("mixup", "cutmix", "dropout", "perturb=local", "form=probe", "signal=shuffled")
    return any(word in spec for word in local)


def ordinary_start(spec: str) -> bool:
    """Whether the first generation is ordinary training."""
    return not spec.startswith("lw") and not any(average in spec for average in ("ema", "swa"))


def extras(number: int) -> dict[str, Any]:
    """Every other trial with two processes cuts its batches up, and shifts images where that can still be learnt."""
    if number % 2 == 0:
        return {}
    return {"accumulate": 2} if draws_locally(SPECS[number]) else {"accumulate": 2, "augment": "crop"}
