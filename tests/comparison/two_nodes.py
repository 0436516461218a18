"""``python -m tests.comparison.two_nodes FOLDER``: a comparison on two nodes of Ray, the second of which is killed.

They stand for two machines of one core each. The network halts after some steps until the file $GATE is there, so
that both are in the midst of a run at that moment.
"""

from __future__ import annotations

import math
import os
import sys
import time
from pathlib import Path

from torch import Tensor, nn

from fallow.comparison import Plan
from fallow.experiment import State
from tests.comparison.small import plan, ran

STEPS = 6  # of four in an epoch
CONFIG = {  # a dead node is found soon, and workers are not the last to be served where the machine is busy
    "health_check_initial_delay_ms": 0, "health_check_period_ms": 1000, "health_check_failure_threshold": 3,
    "worker_niceness": 0,
}  # fmt: skip


class Gated(nn.Module):
    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), 8), nn.ReLU(), nn.Linear(8, classes))
        self.steps = 0

    def forward(self, x: Tensor) -> Tensor:
        self.steps += self.training
        while self.steps > STEPS and not Path(os.environ["GATE"]).exists():
            time.sleep(0.02)
        return self.layers(x)


def asked() -> Plan:
    model, settings = f"{__spec__.name}:Gated", {"epochs": 2, "augment": "none"}
    return plan("digits", "ema", train=60, models=[model], seeds=1, settings=settings)


def main(out: Path) -> None:
    from ray._private import ray_constants
    from ray.cluster_utils import Cluster

    gate = Path(os.environ["GATE"])
    ray_constants.ENABLE_RAY_CLUSTER = False  # its nodes are on the loopback alone
    cluster = Cluster(initialize_head=True, head_node_args={"include_dashboard": False, "_system_config": CONFIG})
    second = cluster.add_node()

    def watch(now: State) -> None:
        if not gate.exists() and len(now.progress) == 2 and min(now.progress.values()) > 0:
            cluster.remove_node(second, allow_graceful=False)
            gate.touch()

    try:
        ran(asked(), out, engine="ray", address=cluster.address, workers=2, watch=watch)
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
