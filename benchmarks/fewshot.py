"""Meta-gradients of MAML, second order, 5 inner steps: fallow against a hand-written loop over tasks and ``higher``.

``eager_vs_loop``, ``compiled_vs_loop``, ``eager_vs_higher``: the sinusoid's network 1-40-40-1, 5 shots, meta-batch 25;
``conv4_vs_loop``: the 4-conv net with 64 filters at 28 × 28, 5-way 1-shot with 15 queries a class, meta-batch 4. A
ratio is their time over ours. All must agree first. The hand-written loops call ``functional.linear`` and
``conv2d`` on lists of weights, with nothing between: there is no faster way to write them. Without higher its ratio is
left out: ``pip install --no-deps higher``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.timing import Work, compare, interleave
from fallow import Learner, models
from fallow.adaptation.execution import Execution, flat
from fallow.adaptation.objective import normalised

STEPS, RATE = 5, 0.01
AGREE = {
    "sinusoid": 1e-5,
    "conv4": 1e-2,
}  # rounding may let another pixel win a pooling
Forward = Callable[[Sequence[Tensor], Tensor], Tensor]


def sinusoid() -> tuple[nn.Module, tuple[Tensor, ...], Forward, Any]:
    """The small network: calling an operation costs more than the operation."""
    torch.manual_seed(0)
    net = models.build("mlp:hidden=40,40,init=torch", shape=(1,), classes=1)
    x, query_x = 10 * torch.rand(2, 25, 5, 1) - 5

    def forward(p: Sequence[Tensor], x: Tensor) -> Tensor:
        x = torch.relu(functional.linear(x, p[0], p[1]))
        x = torch.relu(functional.linear(x, p[2], p[3]))
        return functional.linear(x, p[4], p[5])

    return net, (x, x.sin(), query_x, query_x.sin()), forward, functional.mse_loss


def images() -> tuple[nn.Module, tuple[Tensor, ...], Forward, Any]:
    """The 4-conv net: the operations are what costs."""
    torch.manual_seed(0)
    net = models.build("conv4", shape=(1, 28, 28), classes=5)
    x, query_x = torch.randn(4, 5, 1, 28, 28), torch.randn(4, 75, 1, 28, 28)

    def forward(p: Sequence[Tensor], x: Tensor) -> Tensor:
        for i in range(0, 12, 3):
            x = functional.conv2d(x, p[i], padding=1)
            x = functional.batch_norm(x, None, None, p[i + 1], p[i + 2], training=True)
            x = functional.max_pool2d(functional.leaky_relu(x), 2)
        return functional.linear(x.flatten(1), p[12], p[13])

    y, query_y = torch.arange(5).repeat(4, 1), torch.arange(5).repeat(4, 15)
    return net, (x, y, query_x, query_y), forward, functional.cross_entropy


def by_hand(net: nn.Module, batch: tuple[Tensor, ...], forward: Forward, criterion: Any) -> list[Tensor]:
    """What one writes without a library; each task's graph is freed."""
    start = list(net.parameters())
    total = [torch.zeros_like(p) for p in start]
    for x, y, query_x, query_y in zip(*batch, strict=True):
        params: list[Tensor] = list(start)
        for _ in range(STEPS):
            found = torch.autograd.grad(criterion(forward(params, x), y), params, create_graph=True)
            params = [p - RATE * g for p, g in zip(params, found, strict=True)]
        loss = criterion(forward(params, query_x), query_y) / len(batch[0])
        for sum_, g in zip(total, torch.autograd.grad(loss, start), strict=True):
            sum_.add_(g)
    return total


def by_higher(net: nn.Module, batch: tuple[Tensor, ...], criterion: Any) -> list[Tensor]:
    higher = import_module("higher")
    inner = torch.optim.SGD(net.parameters(), lr=RATE)
    net.zero_grad()
    for x, y, query_x, query_y in zip(*batch, strict=True):
        with higher.innerloop_ctx(net, inner, copy_initial_weights=False) as (model, descent):
            for _ in range(STEPS):
                descent.step(criterion(model(x), y))
            (criterion(model(query_x), query_y) / len(batch[0])).backward()
    return [p.grad for p in net.parameters() if p.grad is not None]


def ours(learner: Learner, run: Execution, batch: Any) -> list[Tensor]:
    learner.zero_grad()
    with normalised(learner.model, "batch", training=True):
        run(batch)[0].backward()
    return [p.grad for p in flat(learner.meta()) if p.grad is not None]


def difference(found: Sequence[Tensor], right: Sequence[Tensor]) -> float:
    """Of two gradients, relative to the second."""
    one, two = (torch.cat([g.flatten() for g in each]).double() for each in (found, right))
    return float((one - two).norm() / two.norm())


def measure(repetitions: int | None = None) -> dict[str, Any]:
    torch.set_num_threads(1)
    said: dict[str, Any] = {}
    times: dict[str, Any] = {}
    pairs: dict[str, tuple[str, str]] = {}
    for problem, label in ((sinusoid, "sinusoid"), (images, "conv4")):
        net, batch, forward, criterion = problem()
        learner = Learner(net, criterion, steps=STEPS, rate=RATE)
        rivals: dict[str, Callable[[], list[Tensor]]] = {
            "loop": lambda n=net, b=batch, f=forward, c=criterion: by_hand(n, b, f, c)
        }
        if label == "sinusoid":
            eager, compiled = Execution(learner, "vmap"), Execution(learner, "vmap", compile=True)
            rivals["eager"] = lambda le=learner, r=eager, b=batch: ours(le, r, b)
            rivals["compiled"] = lambda le=learner, r=compiled, b=batch: ours(le, r, b)
            try:
                import_module("higher")
                rivals["higher"] = lambda n=net, b=batch, c=criterion: by_higher(n, b, c)
            except ImportError:
                said["higher"] = "left out: not installed"
            pairs |= {"eager_vs_loop": ("sinusoid loop", "sinusoid eager")}
            pairs |= {"compiled_vs_loop": ("sinusoid loop", "sinusoid compiled")}
            if "higher" in rivals:
                pairs |= {"eager_vs_higher": ("sinusoid higher", "sinusoid eager")}
        else:
            run = Execution(learner, "loop")
            rivals["eager"] = lambda le=learner, r=run, b=batch: ours(le, r, b)
            pairs |= {"conv4_vs_loop": ("conv4 loop", "conv4 eager")}
        right = rivals["loop"]()
        for name, rival in rivals.items():
            worst = difference(rival(), right)
            said[f"relative difference to the loop, {label} {name}"] = f"{worst:.1e}"
            if worst > AGREE[label]:
                raise SystemExit(f"{name} differs by {worst:.1e} on {label}: what is timed must be equal")

        def prepared(work: Callable[[], list[Tensor]], units: int) -> Callable[[], Work]:
            def several() -> int:
                for _ in range(units):
                    work()
                return units

            return lambda: several

        units = {"sinusoid": {"eager": 5, "compiled": 20}, "conv4": {}}[label]
        timed = interleave(
            {f"{label} {name}": prepared(work, units.get(name, 1)) for name, work in rivals.items()},
            repetitions or {"sinusoid": 20, "conv4": 5}[label],
        )
        times |= timed
    found = [compare({k: times[k] for k in pair}, {name: pair}) for name, pair in pairs.items()]
    return {
        "ratios": {k: v for f in found for k, v in f["ratios"].items()},
        "spread": {k: v for f in found for k, v in f["spread"].items()},
        "microseconds": {k: v for f in found for k, v in f["microseconds"].items()},
        "counts": said,
    }
