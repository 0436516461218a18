"""Every registered method, and the variants of settings that take another path: what the trials run on."""

from __future__ import annotations

from typing import Any

from fallow.methods import REGISTRY

VARIANTS = (
    "restart:reset_optimizer=True",
    "llf:biases=False,norm_affine=False,optimizer_state=keep",
    "seal:scale=0.5,late=freeze",
    "seal:scale=0.5,late=redraw,decay=False",
    "seal:scale=0.5,reverse=True,momentum=keep",
    "seal:ascent=adaptive",
)
SPECS = [*REGISTRY, *VARIANTS]
MODEL = "scnn:width=4,dense=16"
SETTINGS: dict[str, Any] = {"generations": 3, "epochs": 4, "batch_size": 16, "lr": 0.05, "seed": 4}
