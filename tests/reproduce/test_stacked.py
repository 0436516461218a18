from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fallow.core import loop
from fallow.core.context import Context
from fallow.data.examples import Data, Examples
from fallow.reproduce import lw_table1
from fallow.reproduce.stacked import INITS, Stack
from fallow.training.prepare import prepare
from fallow.weights import masks


@pytest.fixture
def stack() -> Stack:
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(3, 40, 6, generator=draw), torch.randint(0, 4, (3, 40), generator=draw)
    made = Stack(x, y, (6, 5, 5, 4), ["he", "xavier"], draw)
    # normalisations other than the identity, so that their place in the gradient is tested too
    made.mean.uniform_(-0.3, 0.3, generator=draw)
    made.std.uniform_(0.5, 2.0, generator=draw)
    return made


def network(stack: Stack, data: int, net: int) -> tuple[nn.ParameterList, torch.Tensor]:
    """One network of the stack in plain autograd, and its logits."""
    tensors = nn.ParameterList(nn.Parameter(p[data, net].clone().double()) for p in stack.parameters)
    h = stack.x[data].double()
    for layer in range(3):
        h = h @ tensors[2 * layer] + tensors[2 * layer + 1]
        h = h.relu() if layer < 2 else h
        h = (h - stack.mean[layer, data, net]) / stack.std[layer, data, net]
    return tensors, h


def test_logits_and_gradients_are_those_of_autograd(stack: Stack) -> None:
    penalty = torch.tensor([0.02, 0.5])
    found = stack.gradients(penalty)
    for data in range(3):
        for net in range(2):
            tensors, logits = network(stack, data, net)
            torch.testing.assert_close(stack.forward(stack.x)[1][data, net].double(), logits, rtol=1e-4, atol=1e-5)
            squares = sum((p**2).sum() for p in tensors if len(p) > 1)
            loss = functional.cross_entropy(logits, stack.y[data]) + penalty[net] * squares
            for mine, parameter in zip(found, torch.autograd.grad(loss, list(tensors)), strict=True):
                torch.testing.assert_close(mine[data, net].double(), parameter, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("adam", [False, True])
def test_training_is_that_of_torchs_optimisers(stack: Stack, adam: bool) -> None:
    tensors, _ = network(stack, 1, 0)
    kind = torch.optim.Adam if adam else torch.optim.SGD
    optimizer = kind(tensors.parameters(), lr=0.05)
    plain = copy.copy(stack)
    for _ in range(5):
        h = stack.x[1].double()
        for layer in range(3):
            h = h @ tensors[2 * layer] + tensors[2 * layer + 1]
            h = h.relu() if layer < 2 else h
            h = (h - plain.mean[layer, 1, 0]) / plain.std[layer, 1, 0]
        optimizer.zero_grad()
        functional.cross_entropy(h, stack.y[1]).backward()
        optimizer.step()
    stack.train(5, 0.05, adam=adam)
    for mine, parameter in zip(stack.parameters, tensors, strict=True):
        torch.testing.assert_close(mine[1, 0].double(), parameter.detach(), rtol=1e-3, atol=1e-4)


def test_normalise_gives_mean_0_and_deviation_1(stack: Stack) -> None:
    stack.normalise(1, [0])
    hidden, _ = stack.forward(stack.x)
    z = (hidden[1] - stack.mean[1][:, :, None, None]) / stack.std[1][:, :, None, None]
    assert z[:, 0].flatten(1).mean(1).abs().max() < 1e-5
    assert (z[:, 0].flatten(1).std(1, correction=0) - 1).abs().max() < 1e-5
    assert z[:, 1].flatten(1).mean(1).abs().max() > 1e-2  # the other network is not touched


def test_rescale_and_redraw(stack: Stack) -> None:
    stack.weights[1].mul_(3.0)
    before = stack.weights[2].clone()
    stack.rescale(1, [1])
    assert torch.allclose(stack.weights[1][:, 1].flatten(1).norm(dim=1), stack.norms[1][:, 1])
    assert not torch.allclose(stack.weights[1][:, 0].flatten(1).norm(dim=1), stack.norms[1][:, 0])
    mask = lw_table1.smallest(stack, 2, [0])
    stack.redraw(2, [0], mask)
    changed = stack.weights[2] != before
    assert torch.equal(changed[:, [0]], mask)
    assert not changed[:, 1].any()


def test_initial_deviations() -> None:
    big = Stack(torch.zeros(2, 4, 200), torch.zeros(2, 4, dtype=torch.long), (200, 100, 8), ["he", "xavier"],
                torch.Generator().manual_seed(0))  # fmt: skip
    for net, init in enumerate(("he", "xavier")):
        assert big.weights[0][:, net].std().item() == pytest.approx(INITS[init](200, 100), rel=0.02)


def test_the_methods_order_on_synthetic_data() -> None:
    """Two seeds at α = 1: LW far above the baseline, as in the paper."""
    torch.set_num_threads(1)
    runs = [("BL", "he"), ("LW", "he")]
    stack, x, y = lw_table1.stack_of(1.0, [0, 1], runs)
    lw_table1.train(stack, [method for method, _ in runs], steps=100)
    found = stack.accuracy(x, y).mean(0)
    assert found[1] > found[0] + 0.1


# ---- round by round against the methods themselves -------------------------------------------------------------

METHODS = {  # of the table; nothing is forgotten by the baseline, which at a constant rate may as well restart
    "BL": "restart", "WELSR": "welsr", "DSD": "dsd", "WELS": "wels", "FC": "fc", "LW": "lw:repeats=3",
}  # fmt: skip
SIZES, STEPS, ROUNDS = (9, 7, 6, 4), 6, 9
LAYERS = range(3)


class Single(nn.Module):
    """One network of the stack.

    The paper's K = 3 makes a block of the last layer too, where fallow keeps a head above all blocks. For LW there is
    one, ``above``: frozen at the identity, it takes no part in anything.
    """

    def __init__(self, above: bool) -> None:
        super().__init__()
        for layer, (into, out) in enumerate(pairwise(SIZES)):
            relu = [nn.ReLU()] if layer < 2 else []
            self.add_module(f"layer{layer}", nn.Sequential(nn.Linear(into, out), *relu))
        self.blocks = ("layer0", "layer1", "layer2")[: 3 if above else 2]
        for module in self.modules():
            self.initialise(module)
        self.above: nn.Module | None = None
        if above:
            self.above = nn.Linear(SIZES[-1], SIZES[-1], bias=False)
            self.above.weight = nn.Parameter(torch.eye(SIZES[-1]), requires_grad=False)

    def initialise(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
            nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        x = x.double()
        for layer in LAYERS:
            x = self.get_submodule(f"layer{layer}")(x)
        return x if self.above is None else self.above(x)

    def tensors(self) -> list[Tensor]:
        """Weights and biases as the stack lays them out: in × out and 1 × out, layer by layer."""
        linears = [self.get_submodule(f"layer{layer}.0") for layer in LAYERS]
        return [t.detach().clone() for linear in linears for t in (linear.weight.T, linear.bias[None])]


class Watched:
    """A training by one of fallow's methods: what every round began and ended with, what was drawn and where."""

    def __init__(self, method: str, x: Tensor, y: Tensor, seed: int) -> None:
        self.x, self.y = x, y
        torch.manual_seed(seed)
        self.model = model = Single(above=method == "LW")
        self.begun: list[list[Tensor]] = []
        self.drawn = [[torch.full_like(t, torch.nan) for t in model.tensors()] for _ in range(ROUNDS)]
        self.masks: list[list[Tensor]] = []
        self.norms: list[Tensor] = []
        self.ended: list[list[Tensor]] = []
        data = Data("points", Examples(x, y), None, None, list("abcd"), x.shape[1:])
        ctx = prepare(
            model, data, METHODS[method], seed=seed, generations=ROUNDS, epochs=STEPS, batch_size=len(x),
            lr=lw_table1.RATE, momentum=0.0, weight_decay=0.0, schedule="constant", label_smoothing=0.0,
        )  # fmt: skip
        self.start = model.tensors()
        redraw, begin, end = ctx.redraw, ctx.method.begin_generation, ctx.method.end_generation

        def noted_redraw(*args: Any, **policy: Any) -> list[str]:
            before = model.tensors()
            names = redraw(*args, **policy)
            pairs = zip(before, model.tensors(), strict=True)
            self.drawn[ctx.clock.generation] = [torch.where(new != old, new, torch.nan) for old, new in pairs]
            return names

        def noted_begin(ctx: Context) -> None:
            begin(ctx)
            self.begun.append(model.tensors())
            self.masks.append([mask.T.clone() for mask in getattr(ctx.method, "masks", {}).values()])
            norms = getattr(ctx.method, "norms", {})
            values = [(norms[f"layer{i}"].mean, norms[f"layer{i}"].std) if norms else (0.0, 1.0) for i in LAYERS]
            self.norms.append(torch.tensor(values))

        def noted_end(ctx: Context) -> None:
            end(ctx)
            self.ended.append(model.tensors())

        ctx.redraw = noted_redraw  # type: ignore[method-assign]
        ctx.method.begin_generation, ctx.method.end_generation = noted_begin, noted_end  # type: ignore[method-assign]
        loop.run(ctx)


class Fed(Stack):
    """A stack that is given what fallow's methods drew: NaN wherever they drew nothing, so that it would show."""

    def __init__(self, runs: list[list[Watched]]) -> None:
        self.runs = runs  # data sets × networks
        self.given = [run.start for row in runs for run in row]
        self.begun: list[list[Tensor]] = []
        self.normed: list[Tensor] = []
        self.ended: list[list[Tensor]] = []
        x, y = (torch.stack([getattr(row[0], key) for row in runs]) for key in ("x", "y"))
        super().__init__(x.double(), y, SIZES, ["he"] * len(METHODS), torch.Generator())
        self.begin(0)

    def begin(self, number: int) -> None:
        self.given = [run.drawn[number] for row in self.runs for run in row]

    def draw(self, layer: int) -> Tensor:
        return torch.stack([given[2 * layer] for given in self.given]).unflatten(0, (len(self.runs), -1))

    def train(self, *args: Any, **options: Any) -> None:
        self.begun.append([p.clone() for p in self.parameters])
        self.normed.append(torch.stack([self.mean, self.std], -1))  # layers × D × M × 2
        super().train(*args, **options)
        self.ended.append([p.clone() for p in self.parameters])
        self.begin(min(len(self.ended), ROUNDS - 1))


@pytest.fixture
def double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    with torch.random.fork_rng():
        yield
    torch.set_default_dtype(torch.float32)


def test_every_round_is_that_of_the_methods(double: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """All nine rounds of all six methods on two data sets: the same weights before and after every training."""
    draw = torch.Generator().manual_seed(3)
    names, runs = list(METHODS), []
    for i in range(2):
        x, y = torch.randn(48, SIZES[0], generator=draw).float(), torch.randint(0, SIZES[-1], (48,), generator=draw)
        runs.append([Watched(name, x, y, seed=10 * i + j) for j, name in enumerate(names)])
    stack = Fed(runs)
    asked = []

    def random_mask(stack: Fed, layer: int, which: list[int]) -> Tensor:
        (net,) = which
        asked.append((names[net], number := len(stack.ended)))
        return torch.stack([row[net].masks[number][layer][None] for row in runs])

    monkeypatch.setattr(lw_table1, "SIZES", SIZES)
    monkeypatch.setattr(lw_table1, "random_mask", random_mask)
    lw_table1.train(stack, names, rounds=ROUNDS, steps=STEPS)

    # WELS draws its subset once, WELSR another before every round but the first
    assert set(asked) == {("WELS", 0)} | {("WELSR", number) for number in range(1, ROUNDS)}
    for i, row in enumerate(runs):
        for j, (name, run) in enumerate(zip(names, row, strict=True)):
            for number in range(ROUNDS):
                for stacked, single in ((stack.begun, run.begun), (stack.ended, run.ended)):
                    mine = [p[i, j] for p in stacked[number]]
                    torch.testing.assert_close(mine, single[number], rtol=1e-9, atol=1e-12, msg=f"{name}, {number}")
                torch.testing.assert_close(stack.normed[number][:, i, j], run.norms[number], rtol=1e-9, atol=1e-12)
            moved = [(a != b).any() for a, b in zip(run.ended[0], run.begun[1], strict=True)]
            assert any(moved) == (name != "BL")  # there was something to compare


@pytest.mark.parametrize("shape", [(5, 3), (7, 7), (128, 32)])
def test_subsets_have_the_size_of_the_methods(shape: tuple[int, int]) -> None:
    stack = Stack(torch.zeros(2, 1, shape[0]), torch.zeros(2, 1, dtype=torch.long), shape, ["he"] * 3,
                  torch.Generator().manual_seed(0))  # fmt: skip
    wanted = masks.random_mask({"w": torch.zeros(shape)}, 0.2, torch.Generator())["w"].sum()
    for mask in (lw_table1.random_mask(stack, 0, [0, 2]), lw_table1.smallest(stack, 0, [0, 2])):
        assert torch.equal(mask.flatten(2).sum(2), wanted.expand(2, 2))
    again = lw_table1.random_mask(stack, 0, [0, 2])
    assert not torch.equal(again, lw_table1.random_mask(stack, 0, [0, 2]))  # another subset each time
