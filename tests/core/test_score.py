from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import torch
from torch import nn
from torch.nn import functional

from fallow.evaluate import Score, score
from fallow.evaluate.metrics import CLASSES, NUMBERS


def batches(sizes: tuple[int, ...] = (5, 3, 7)) -> list[tuple[torch.Tensor, torch.Tensor]]:
    draw = torch.Generator().manual_seed(0)
    return [(torch.randn(n, 4, generator=draw), torch.randint(3, (n,), generator=draw)) for n in sizes]


def model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5))


def by_hand(net: nn.Module, some: list) -> tuple[float, float, int]:
    net.eval()
    loss, right, count = 0.0, 0, 0
    for x, y in some:
        for one, label in zip(x, y, strict=True):
            output = net(one[None])[0]
            loss += functional.cross_entropy(output, label).item()
            right += int(output.argmax() == label)
            count += 1
    return loss / count, right / count, count


@pytest.mark.parametrize(("limit", "used"), [(None, 3), (1, 1), (5, 1), (6, 2), (8, 2), (9, 3), (100, 3)])
def test_as_a_plain_loop(limit: int | None, used: int) -> None:
    net, some = model(), batches()
    found = score(net.train(), iter(some), limit=limit)
    assert net.training
    assert (found.loss, found.accuracy, found.examples) == pytest.approx(by_hand(net, some[:used]))
    assert found.output is not None
    assert found.y is not None
    assert len(found.output) == len(found.y) == found.examples
    assert not score(net.eval(), some).better(found, CLASSES["accuracy"]) or limit != 100
    assert not net.training


def test_the_mode_comes_back_after_an_error() -> None:
    net = model().train()
    with pytest.raises(RuntimeError):
        score(net, [(torch.zeros(2, 9), torch.zeros(2, dtype=torch.long))])
    assert net.training


def test_targets_that_are_no_classes() -> None:
    x, y = torch.randn(6, 4), torch.randn(6, 3)
    found = score(model(), [(x, y)], functional.mse_loss)
    assert found.accuracy is None
    assert found.loss == pytest.approx(functional.mse_loss(model().eval()(x), y).item())


def test_processes_share() -> None:
    net, some = model(), batches()
    barrier, sent = Barrier(2), {}

    class Process:
        """One of two: what it gets is the sum of what both send."""

        world_size = 2

        def __init__(self, rank: int) -> None:
            self.global_rank = rank

        def all_reduce(self, tensor: torch.Tensor, reduce_op: str) -> torch.Tensor:
            assert reduce_op == "sum"
            sent[self.global_rank] = tensor
            barrier.wait()
            total = sent[0] + sent[1]
            barrier.wait()
            return total

    def share(rank: int) -> Score:
        return score(copy.deepcopy(net), some[:1] if rank == 0 else some[1:], engine=Process(rank))

    alone = score(net, some)
    with ThreadPoolExecutor(2) as processes:
        for found in processes.map(share, (0, 1)):
            assert found.loss == pytest.approx(alone.loss)
            assert found.accuracy == alone.accuracy
            assert torch.equal(found.output, alone.output)


def test_nothing_to_look_at() -> None:
    found = score(model(), [])
    assert found.loss != found.loss
    assert found.examples == 0


def test_which_is_better() -> None:
    right, error = CLASSES["accuracy"], NUMBERS["rmse"]
    a, b, c = (
        Score(loss, {"accuracy": share, "rmse": share}, 9) for loss, share in ((1.0, 0.5), (2.0, 0.6), (0.9, 0.5))
    )
    assert b.better(a, right)
    assert a.better(b, error)  # less is better
    assert a.better(b, None)  # by loss
    assert c.better(a, right)
    assert c.better(a, error)
    assert not a.better(a, right)
    assert a.better(None, right)
    none, later = (Score(loss, {"rmse": float("nan")}, 4) for loss in (1.0, 0.9))
    assert a.better(none, error)  # whatever came first
    assert not none.better(a, error)
    assert later.better(none, error)  # by loss
