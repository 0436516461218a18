"""A hypergradient of 784-784-10 with a decay per weight, batch 50, by Neumann's series of 3, 10 and 50 terms.

``speedup_k*`` is the fastest of betty, torchopt and a textbook's double-backward loop over fallow, in one interleaved
run; all must agree to 1e-5 first. Betty's and torchopt's own solvers run on the same losses, without the loops around
them. One that is not installed is left out, and named: ``pip install --no-deps betty-ml torchopt optree graphviz``.
"""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.timing import Work, compare, interleave
from fallow import hypergradient
from fallow.hypergradients.penalty import SquaredDecay
from fallow.hypergradients.solvers import Neumann

TERMS, ALPHA, BATCH = (3, 10, 50), 0.1, 50
AGREE = 1e-5  # the largest difference to the textbook's result, relative to it

Rival = Callable[["Problem", int], Sequence[Tensor]]


class Problem:
    """Two batches, a network trained on the first, and its decay."""

    def __init__(self) -> None:
        draw = torch.Generator().manual_seed(0)
        self.x, self.val_x = torch.rand(2, BATCH, 784, generator=draw)
        self.y, self.val_y = torch.randint(10, (2, BATCH), generator=draw)
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(784, 784), nn.ReLU(), nn.Linear(784, 10))
        self.params = list(self.net.parameters())
        self.raw = [torch.full_like(p, -4.0, requires_grad=True) for p in self.params]
        adam = torch.optim.Adam(self.params, lr=1e-4)
        for _ in range(100):
            adam.zero_grad()
            self.train_loss().backward()
            adam.step()
        adam.zero_grad()

    def data_loss(self) -> Tensor:
        return functional.cross_entropy(self.net(self.x), self.y)

    def train_loss(self) -> Tensor:
        penalty = sum((functional.softplus(r) * p).square().sum() for r, p in zip(self.raw, self.params, strict=True))
        return self.data_loss() + penalty

    def val_loss(self) -> Tensor:
        return functional.cross_entropy(self.net(self.val_x), self.val_y)


def fallow(problem: Problem, terms: int) -> Sequence[Tensor]:
    decay = SquaredDecay(problem.raw)
    solver = Neumann(terms, alpha=ALPHA)
    found, _ = hypergradient(
        problem.data_loss, problem.val_loss, problem.params, problem.raw, solver, penalty=decay
    )  # fmt: skip
    return found


def textbook(problem: Problem, terms: int) -> Sequence[Tensor]:
    """What one writes by hand: the whole loss differentiated twice, one product per term."""
    v = torch.autograd.grad(problem.val_loss(), problem.params)
    first = torch.autograd.grad(problem.train_loss(), problem.params, create_graph=True)
    total = list(v)
    for _ in range(terms):
        product = torch.autograd.grad(first, problem.params, v, retain_graph=True)
        v = [a - ALPHA * b for a, b in zip(v, product, strict=True)]
        total = [a + b for a, b in zip(total, v, strict=True)]
    mixed = torch.autograd.grad(first, problem.raw, [ALPHA * a for a in total])
    return [-a for a in mixed]


def betty(problem: Problem, terms: int) -> Sequence[Tensor]:
    neumann = import_module("betty.hypergradient.neumann").neumann
    v = torch.autograd.grad(problem.val_loss(), problem.params)
    lower = SimpleNamespace(
        paths=[],
        config=SimpleNamespace(neumann_iterations=terms, neumann_alpha=ALPHA),
        cur_batch=None,
        training_step_exec=lambda batch: problem.train_loss(),
        trainable_parameters=lambda: problem.params,
    )
    return neumann(v, lower, SimpleNamespace(trainable_parameters=lambda: problem.raw))


def torchopt(problem: Problem, terms: int) -> Sequence[Tensor]:
    root = import_module("torchopt.diff.implicit").custom_root
    solve = import_module("torchopt.linear_solve").solve_inv(ns=True, maxiter=terms, alpha=ALPHA)
    names = [name for name, _ in problem.net.named_parameters()]

    def output(params: Sequence[Tensor], x: Tensor) -> Tensor:
        return torch.func.functional_call(problem.net, dict(zip(names, params, strict=True)), x)

    def train_loss(params: tuple[Tensor, ...], raw: tuple[Tensor, ...]) -> Tensor:
        penalty = sum((functional.softplus(r) * p).square().sum() for r, p in zip(raw, params, strict=True))
        return functional.cross_entropy(output(params, problem.x), problem.y) + penalty

    @root(torch.func.grad(train_loss), argnums=1, solve=solve)
    def trained(params: tuple[Tensor, ...], raw: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return params  # they are trained already

    best = trained(tuple(p.detach() for p in problem.params), tuple(problem.raw))
    loss = functional.cross_entropy(output(best, problem.val_x), problem.val_y)
    return torch.autograd.grad(loss, problem.raw)


PEERS = {"betty": "betty-ml", "torchopt": "torchopt"}  # and the distributions that hold them


def difference(found: Sequence[Tensor], right: Sequence[Tensor]) -> float:
    """Of two gradients, relative to the second."""
    one, two = (torch.cat([g.detach().flatten() for g in each]).double() for each in (found, right))
    return float((one - two).norm() / two.norm())


def measure(repetitions: int | None = None) -> dict[str, Any]:
    warnings.simplefilter("ignore")  # a series that diverges takes as long; torchopt's calls are deprecated
    problem = Problem()
    methods: dict[str, Rival] = {"fallow": fallow, "textbook": textbook}
    said: dict[str, Any] = {}
    for name, distribution in PEERS.items():
        try:
            import_module(name)
            said[name] = version(distribution)
            methods[name] = globals()[name]
        except ImportError as error:
            said[name] = f"left out ({error})"
    rivals: dict[str, Callable[[], Work]] = {}
    for terms in TERMS:
        right = textbook(problem, terms)
        worst = max(difference(rival(problem, terms), right) for rival in methods.values())
        said[f"largest relative difference, {terms} terms"] = f"{worst:.1e}"
        if worst > AGREE:
            raise SystemExit(f"the results differ by {worst:.1e} with {terms} terms: what is timed must be equal")
        for name, rival in methods.items():

            def once(rival: Rival = rival, terms: int = terms) -> int:
                rival(problem, terms)
                return 1

            rivals[f"{name} {terms}"] = lambda once=once: once
    times = interleave(rivals, repetitions or 20)
    pairs = {}
    for terms in TERMS:
        others = [f"{name} {terms}" for name in methods if name != "fallow"]
        fastest = min(others, key=lambda name: statistics.median(times[name]["cpu"]))
        pairs[f"speedup_k{terms}"] = (fastest, f"fallow {terms}")
        said[f"fastest of the others, {terms} terms"] = fastest.split()[0]
    return compare(times, pairs) | {"counts": said}
