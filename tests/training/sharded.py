"""Run by torchrun in two processes: train weights that are sharded by FSDP2, and keep what became of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from lightning.fabric import Fabric
from lightning.fabric.strategies import ModelParallelStrategy
from torch import nn
from torch.distributed.fsdp import fully_shard

import fallow
from tests.conftest import small_images
from tests.contract.catalogue import SETTINGS

MODEL = "mlp:hidden=16,16"  # convolutions lie otherwise where they are not sharded, and round otherwise
TRAINED = ("restart", "fam", "sam")
REFUSED = ("llf", "seal", "ema", "mixup+swa")


def shard(model: nn.Module, mesh: dict) -> nn.Module:
    fully_shard(model, mesh=mesh["data_parallel"])
    return model


def main(folder: Path) -> None:
    strategy = ModelParallelStrategy(shard, data_parallel_size=2, tensor_parallel_size=1)
    fabric = Fabric(accelerator="cpu", devices=2, strategy=strategy)
    fabric.launch()
    images, apart, refused = small_images(), {}, {}
    for spec in TRAINED:
        found = fallow.fit(MODEL, images, spec, engine=fabric, **SETTINGS).network.state_dict()
        whole = {name: each.full_tensor() if hasattr(each, "full_tensor") else each for name, each in found.items()}
        if fabric.is_global_zero:
            alone = fallow.fit(MODEL, images, spec, **SETTINGS).network.state_dict()
            apart[spec] = max(float((whole[name] - alone[name]).abs().max()) for name in alone)
        fabric.barrier()
    for spec, more in [*((spec, {}) for spec in REFUSED), ("normal", {"out": folder / "run"})]:
        try:
            fallow.fit(MODEL, images, spec, engine=fabric, **SETTINGS, **more)
        except fallow.RequestError as error:
            refused[spec] = str(error)
    if fabric.is_global_zero:
        (folder / "found.json").write_text(json.dumps({"apart": apart, "refused": refused}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
