from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from fallow.evaluate import Score, score


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
    assert tuple(found) == pytest.approx(by_hand(net, some[:used]))
    assert not score(net.eval(), some).better(found) or limit != 100
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
    others = score(net, some[1:])

    def all_reduce(sums: torch.Tensor, reduce_op: str) -> torch.Tensor:
        assert reduce_op == "sum"
        more = [others.loss * others.examples, others.accuracy * others.examples, others.examples, others.examples]
        return sums + torch.tensor(more)

    assert tuple(score(net, some[:1], all_reduce=all_reduce)) == pytest.approx(tuple(score(net, some)))


def test_nothing_to_look_at() -> None:
    found = score(model(), [])
    assert found.loss != found.loss
    assert found.examples == 0


def test_which_is_better() -> None:
    a, b, c = Score(1.0, 0.5, 9), Score(2.0, 0.6, 9), Score(0.9, 0.5, 9)
    assert b.better(a)
    assert c.better(a)
    assert not a.better(a)
    assert a.better(None)
