import pytest
import torch
from torch import nn, optim

from fallow.base.errors import RequestError
from fallow.models import build
from fallow.weights import Partition, anneal, ascend, descend, split_groups


def mlp() -> nn.Module:
    return build("mlp", shape=(6,), classes=3, hidden=(5, 4))


def members(optimizer: optim.Optimizer) -> dict[str | None, list[int]]:
    return {group.get("side"): [id(p) for p in group["params"]] for group in optimizer.param_groups}


def test_one_group_per_side_with_options_and_state_kept():
    model = mlp()
    partition = Partition(model, 1)
    decayed = [p for p in model.parameters() if p.ndim > 1]
    rest = [p for p in model.parameters() if p.ndim == 1]
    optimizer = optim.SGD([{"params": decayed, "weight_decay": 0.1}, {"params": rest}], lr=0.2, momentum=0.9)
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    optimizer.step()
    state, held = dict(optimizer.state), optimizer.param_groups[0]
    sides = split_groups(optimizer, partition)
    assert [(g["side"], g["weight_decay"], g["lr"], len(g["params"])) for g in optimizer.param_groups] == [
        ("early", 0.1, 0.2, 1), ("late", 0.1, 0.2, 2), ("early", 0, 0.2, 1), ("late", 0, 0.2, 2),
    ]  # fmt: skip
    assert dict(optimizer.state) == state
    assert optimizer.param_groups[0] is held
    assert {side: len(groups) for side, groups in sides.items()} == {"early": 2, "late": 2}
    for side, part in (("early", partition.early), ("late", partition.late)):
        assert {id(p) for g in sides[side] for p in g["params"]} == {id(p) for p in part.parameters}
    again = [*optimizer.param_groups]
    split_groups(optimizer, partition)
    assert all(a is b for a, b in zip(again, optimizer.param_groups, strict=True))
    optimizer.step()


def test_parameters_of_no_side_stay_together():
    model = mlp()
    optimizer = optim.AdamW(model.named_parameters(), lr=0.1)
    sides = split_groups(optimizer, {"head": list(model.head.parameters()), "none": []})
    assert sides["none"] == []
    assert members(optimizer) == {
        None: [id(p) for p in [*model.hidden1.parameters(), *model.hidden2.parameters()]],
        "head": [id(p) for p in model.head.parameters()],
    }
    assert sides["head"][0]["param_names"] == ["head.weight", "head.bias"]
    assert len(optimizer.param_groups[0]["param_names"]) == 4
    with pytest.raises(RequestError, match="on the sides 'a' and 'b'"):
        split_groups(optimizer, {"a": [model.head.weight], "b": [model.head.weight]})


@pytest.mark.parametrize("kind", ["sgd", "sgd-fused", "sgd-loop", "adamw", "adamw-fused"])
def test_one_step_of_ascent_climbs_and_still_decays(kind):
    early, late = (nn.Parameter(torch.randn(3, 4, dtype=torch.float64)) for _ in range(2))
    lr, decay, scale = 0.1, 0.3, 0.05
    name, _, form = kind.partition("-")
    how = {"fused": {"fused": True}, "loop": {"foreach": False}}.get(form, {})
    maker = optim.SGD if name == "sgd" else optim.AdamW
    optimizer = maker([early, late], lr=lr, weight_decay=decay, **how)
    sides = split_groups(optimizer, {"early": [early], "late": [late]})
    ascend(sides["early"], scale)
    before = [early.detach().clone(), late.detach().clone()]
    for p in (early, late):
        p.grad = torch.randn_like(p)
    optimizer.step()
    direction = [p.grad if name == "sgd" else p.grad / (p.grad.abs() + 1e-8) for p in (early, late)]
    torch.testing.assert_close(early.detach(), before[0] + lr * scale * direction[0] - lr * scale * decay * before[0])
    torch.testing.assert_close(late.detach(), before[1] - lr * direction[1] - lr * decay * before[1])


def test_contract_of_scale_and_learning_rate():
    model = mlp()
    optimizer = optim.SGD(model.parameters(), lr=0.4)
    early = split_groups(optimizer, Partition(model, 1))["early"]
    descend(early)
    assert early[0]["lr"] == 0.4
    ascend(early, 0.25)
    ascend(early, 0.25)
    assert (early[0]["lr"], early[0]["scale"], early[0]["maximize"]) == (0.1, 0.25, True)
    ascend(early, 0.5)
    assert early[0]["lr"] == 0.2
    descend(early)
    descend(early)
    assert (early[0]["lr"], early[0]["scale"], early[0]["maximize"]) == (0.4, 1.0, False)
    with pytest.raises(RequestError, match="give a scale above 0"):
        ascend(early, 0.0)


def test_the_sides_of_another_model_are_refused():
    with pytest.raises(RequestError, match="trains none of these parameters"):
        split_groups(optim.SGD(mlp().parameters(), lr=0.1), Partition(mlp(), 1))


@pytest.mark.parametrize("cut", [2, 5])  # before the ascent, and in the middle of it
def test_a_training_that_anneals_resumes_to_the_bit(cut):
    """Loading a state gives the optimiser new groups, and those that were split off are no longer its own."""

    def started():
        torch.manual_seed(0)
        model = mlp()
        optimizer = optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        return model, optimizer, split_groups(optimizer, Partition(model, 1))["early"]

    def train(model, optimizer, early, epochs):
        for epoch in epochs:
            anneal(optimizer, early, epoch, 4, share=0.5, scale=0.3)
            optimizer.zero_grad()
            model(torch.arange(12.0).view(2, 6).sin()).square().sum().backward()
            optimizer.step()

    whole, half, resumed = started(), started(), started()
    train(*whole, range(8))
    train(*half, range(cut))
    for mine, theirs in zip(resumed[:2], half[:2], strict=True):
        mine.load_state_dict(theirs.state_dict())
    train(*resumed, range(cut, 8))
    assert all(torch.equal(p, q) for p, q in zip(resumed[0].parameters(), whole[0].parameters(), strict=True))


def test_an_optimiser_that_cannot_ascend_is_refused_before_anything_changes():
    model = mlp()
    optimizer = optim.LBFGS(model.parameters())
    with pytest.raises(RequestError, match=r"max_iter.* cannot ascend, having no 'maximize': use SGD, Adam") as caught:
        ascend(optimizer.param_groups)
    assert "\n" not in str(caught.value)
    assert optimizer.param_groups[0]["lr"] == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda adam: optim.lr_scheduler.LambdaLR(adam, [lambda epoch: 0.5**epoch, lambda epoch: 0.9**epoch]),
        lambda adam: optim.lr_scheduler.StepLR(adam, 2),
        lambda adam: optim.lr_scheduler.OneCycleLR(adam, [0.1, 0.2], total_steps=9),  # of as many phases as groups
        lambda adam: optim.lr_scheduler.CyclicLR(adam, [1e-3, 1e-2], 0.1, step_size_up=3, cycle_momentum=False),
        lambda adam: optim.lr_scheduler.SequentialLR(
            adam, [optim.lr_scheduler.LinearLR(adam), optim.lr_scheduler.ExponentialLR(adam, 0.9)], [3]
        ),
    ],
)
def test_a_scheduler_that_was_made_before_moves_the_new_groups_as_the_old_ones(make) -> None:
    def rates(split: bool) -> list[dict[str, float]]:
        net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
        weights, biases = ([p for p in net.parameters() if (p.ndim > 1) == flat] for flat in (True, False))
        adam = optim.AdamW([{"params": weights, "lr": 0.01}, {"params": biases, "lr": 0.02}])
        scheduler = make(adam)
        if split:
            split_groups(adam, Partition(net, 1))
        names = {id(parameter): name for name, parameter in net.named_parameters()}
        found = []
        for _ in range(7):
            adam.step()
            scheduler.step()
            found.append({names[id(p)]: group["lr"] for group in adam.param_groups for p in group["params"]})
        return found

    assert rates(split=True) == rates(split=False)
