from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from fallow.reproduce import lw_table1
from fallow.reproduce.stacked import INITS, Stack


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
