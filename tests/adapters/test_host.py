"""A guest in a loop written by hand does what fallow's own loop does."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import pytest
import torch
from torch.nn import functional
from torch.utils.data import DataLoader, RandomSampler

from fallow.adapters.host import Guest, accepted
from fallow.base.errors import RequestError
from fallow.methods import REGISTRY, SWA
from tests.adapters.small import (
    EPOCHS,
    GENERATIONS,
    METHODS,
    RATE,
    assert_close,
    assert_same,
    batches,
    examples,
    network,
    own_loop,
    sgd,
)  # fmt: skip


def trained(method: str, scheduler: Any = None, **options: Any) -> dict[str, torch.Tensor]:
    net = network()
    optimizer, loader = sgd(net.parameters()), batches()
    guest = Guest(method, net, optimizer, loader, generations=GENERATIONS, epochs=EPOCHS, steps=len(loader), **options)
    moves = scheduler(optimizer) if scheduler else None
    for epoch in range(GENERATIONS * EPOCHS):
        guest.begin_epoch(epoch)
        for x, y in loader:

            def closure(x: Any = x, y: Any = y) -> torch.Tensor:
                optimizer.zero_grad()
                loss = guest.penalised((x, y), lambda: functional.cross_entropy(net(x), y))
                loss.backward()
                return loss

            optimizer.step(closure)
            if moves is not None:
                moves.step()
    guest.end()
    return net.state_dict()


def taken(name: str) -> bool:
    """Whether other loops can have this method; dropout draws from the host's generator, wherever that stands."""
    try:
        return bool(accepted(name)) and name not in ("normal", "dropout", "implicit-decay", "balanced")
    except RequestError:
        return False


EVERY = [*METHODS, "seal:ascent=adaptive", "llf+fam", "dsd+ema", *filter(taken, REGISTRY)]


@pytest.mark.filterwarnings("ignore:seal's ascent")  # in so few steps
@pytest.mark.parametrize("method", sorted(set(EVERY)))
def test_agrees_with_the_own_loop(method: str) -> None:
    assert_close(trained(method), own_loop(method))


def test_a_schedule_restarts_with_the_generation() -> None:
    assert_close(trained("llf", schedule="cosine"), own_loop("llf", schedule="cosine"))


@pytest.mark.parametrize("method", ["llf", "seal:scale=0.5"])
def test_a_scheduler_of_the_hosts_sets_the_rates(method: str) -> None:
    restarts = partial(torch.optim.lr_scheduler.CosineAnnealingWarmRestarts, T_0=EPOCHS * len(batches()))
    assert_close(trained(method, restarts), own_loop(method, schedule="cosine"))


@pytest.mark.parametrize("method", ["llf", "lw", "rescale", "wels", "seal", "llf+fam"])
@pytest.mark.parametrize("at", [0, 1, EPOCHS])
def test_resumes_from_an_epoch_that_has_begun(method: str, at: int) -> None:
    """A state taken after ``begin_epoch`` and before a step: what the epoch began with is not done again."""

    def epoch(guest: Guest, net: Any, optimizer: Any, loader: Any) -> None:
        for x, y in loader:
            optimizer.zero_grad()
            guest.penalised((x, y), lambda x=x, y=y: functional.cross_entropy(net(x), y)).backward()
            optimizer.step()

    def begun() -> tuple[Guest, Any, Any, Any]:
        net = network()
        optimizer, loader = sgd(net.parameters()), batches()
        return (
            Guest(method, net, optimizer, loader, generations=GENERATIONS, epochs=EPOCHS, steps=len(loader)),
            net, optimizer, loader,
        )  # fmt: skip

    guest, net, optimizer, loader = begun()
    for index in range(at):
        guest.begin_epoch(index)
        epoch(guest, net, optimizer, loader)
    guest.begin_epoch(at)
    kept = copy.deepcopy((guest.state(), net.state_dict(), optimizer.state_dict()))
    epoch(guest, net, optimizer, loader)
    again, other, its, _ = begun()
    for held, state in zip((again, other, its), kept, strict=True):
        (held.load_state if held is again else held.load_state_dict)(state)
    again.begin_epoch(at)
    epoch(again, other, its, loader)
    assert_same(net.state_dict(), other.state_dict())


def test_a_method_that_must_see_the_loss_says_so() -> None:
    net = network()
    optimizer, loader = sgd(net.parameters()), batches()
    guest = Guest("fam", net, optimizer, loader, generations=1, epochs=1, steps=len(loader))
    guest.begin_epoch(0)
    x, y = next(iter(loader))
    functional.cross_entropy(net(x), y).backward()
    with pytest.raises(RequestError, match=r"fam looks at forward passes: give it the loss by guest\.penalised"):
        optimizer.step()


def test_sam_needs_a_closure() -> None:
    net = network()
    optimizer = sgd(net.parameters())
    guest = Guest("sam", net, optimizer, batches(), generations=1, epochs=1, steps=3)
    guest.begin_epoch(0)
    with pytest.raises(RequestError, match="closure"):
        optimizer.step()
    guest.leave()
    optimizer.step()  # the host's again


@pytest.mark.parametrize(
    ("method", "generations", "why"),
    [
        ("normal", 2, "one generation"), ("born-again", 2, "loss"), ("implicit-decay", 1, "validation"),
        ("seal", 4, "none left to relearn"), ("finetune", 1, "learned from"),
    ],
)  # fmt: skip
def test_refuses_before_the_first_step(method: str, generations: int, why: str) -> None:
    net = network()
    with pytest.raises(RequestError, match=why):
        Guest(method, net, sgd(net.parameters()), batches(), generations=generations, epochs=1, steps=3)


def test_a_plateau_would_never_come() -> None:
    net = network()
    with pytest.raises(RequestError, match="plateau"):
        Guest("llf", net, sgd(net.parameters()), batches(), generations=1, epochs=1, steps=3, schedule="plateau")


@pytest.mark.parametrize("method", ["llf", "swa:start=0.5"])
def test_a_frozen_norm_goes_on_evaluating(method: str) -> None:
    """A look at what was forgotten, or an average's statistics, must not set a frozen norm to training."""
    net = network()
    net.one.add_module("frozen", torch.nn.BatchNorm1d(10).double().requires_grad_(False).eval())
    before = {name: buffer.clone() for name, buffer in net.one.frozen.named_buffers()}
    optimizer = sgd(p for p in net.parameters() if p.requires_grad)
    generations = 2 if method == "llf" else 1
    guest = Guest(method, net, optimizer, batches(), generations=generations, epochs=4, steps=3)
    for index in range(4 * generations):
        guest.begin_epoch(index)
        for x, y in batches():
            optimizer.zero_grad()
            functional.cross_entropy(net(x), y).backward()
            optimizer.step()
        with guest.shown():
            pass
    guest.end()
    assert [path for path, module in net.named_modules() if not module.training] == ["one.frozen"]
    assert_same(dict(net.one.frozen.named_buffers()), before)


def test_modes_are_changed_back_as_the_model_does_it() -> None:
    """A layer may merge weights when it is told to evaluate, and parts them when it is told to train."""

    class Merging(torch.nn.Linear):
        merged = False

        def train(self, mode: bool = True) -> Any:
            self.merged = not mode
            return super().train(mode)

    net = network()
    net.head = Merging(10, 3).double()
    guest = Guest("llf", net, sgd(net.parameters()), batches(), generations=2, epochs=1, steps=3)
    epoch(guest, 0, 3)
    guest.begin_epoch(1)  # has looked
    assert "fallow/forgot_to" in guest.logged
    assert not net.head.merged


@pytest.mark.parametrize("sampler", [False, True])
def test_a_loader_with_a_generator_of_its_own_gives_the_batches_that_it_would_give(sampler: bool) -> None:
    def seen(guided: bool) -> list[torch.Tensor]:
        net, data = network(), examples()
        own, optimizer = torch.Generator().manual_seed(5), sgd(net.parameters())
        order: Any = {"sampler": RandomSampler(data, generator=own)} if sampler else {"shuffle": True, "generator": own}
        loader = DataLoader(data, 8, **order)
        guest = Guest("llf", net, optimizer, loader, generations=2, epochs=1, steps=3) if guided else None
        found = []
        for index in range(2):
            if guest is not None:
                guest.begin_epoch(index)
            for x, _ in loader:
                found.append(x)
                optimizer.step()
        return found

    assert all(map(torch.equal, seen(False), seen(True)))


def test_an_optimiser_that_asks_for_the_loss_itself_is_refused() -> None:
    net = network()
    with pytest.raises(RequestError, match="LBFGS asks for the loss several times a step"):
        Guest("llf", net, torch.optim.LBFGS(net.parameters()), batches(), generations=2, epochs=1, steps=3)


@pytest.mark.parametrize("method", ["dropout", "fam", "lw"])
def test_a_compiled_model_would_pass_over_hooks_in_silence(method: str) -> None:
    net: Any = torch.compile(network(), backend="eager")
    with pytest.raises(RequestError, match="needs hooks on layers, which a compiled model does not call"):
        Guest(method, net, sgd(net.parameters()), batches(), generations=1, epochs=1, steps=3)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ([], "no batch to look at"), ((batch for batch in batches()), "only once"),
        ([((torch.zeros(2, 6), torch.zeros(2)), torch.zeros(2))], "tuple of 2: let the batch be a mapping"),
    ],
)  # fmt: skip
def test_batches_that_cannot_be_looked_at_are_refused(given: Any, why: str) -> None:
    net = network()
    with pytest.raises(RequestError, match=why):
        Guest("llf", net, sgd(net.parameters()), given, generations=2, epochs=1, steps=3)


def test_a_second_guest_takes_the_rate_that_it_finds() -> None:
    net = network()
    optimizer = sgd(net.parameters())
    for rate in (RATE, 0.0):
        optimizer.param_groups[0]["lr"] = rate
        before = {name: value.clone() for name, value in net.named_parameters()}
        guest = Guest("restart", net, optimizer, batches(), generations=1, epochs=1, steps=3, schedule="cosine")
        guest.begin_epoch(0)
        for x, y in batches():
            optimizer.zero_grad()
            functional.cross_entropy(net(x), y).backward()
            optimizer.step()
        guest.end()
    assert_same(dict(net.named_parameters()), before)


class Tokens(torch.nn.Module):
    """A class for every word."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.hidden, self.head = torch.nn.Embedding(9, 4), torch.nn.Linear(4, 4), torch.nn.Linear(4, 9)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.hidden(self.words(x)).relu())


def by_words(output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(output.flatten(0, 1), y.flatten())


def by_one(output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return functional.binary_cross_entropy_with_logits(output[:, 0], y.double())


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("words", [False, True])
def test_targets_that_cross_entropy_does_not_take(words: bool, given: bool) -> None:
    """Tokens, or one output for two classes: what was forgotten is not measured, and nothing else stops or warns."""
    x, y = examples().tensors
    if words:
        net, loss, batch = Tokens(), by_words, (torch.arange(15).view(3, 5) % 9, torch.arange(15).view(3, 5) % 7)
    else:
        net, loss, batch = network(), by_one, (x, y % 2)
        net.head = torch.nn.Linear(10, 1).double()
    options: dict[str, Any] = {"generations": 2, "epochs": 1, "steps": 1, "loss": loss if given else None}
    guest = Guest("llf", net, sgd(net.parameters()), [batch], **options)
    for index in range(2):
        guest.begin_epoch(index)
        guest.optimizer.zero_grad()
        loss(net(batch[0]), batch[1]).backward()
        guest.optimizer.step()
    assert guest.logged == {}
    guest.end()
    if not given:
        with pytest.raises(RequestError, match="give loss, a function of both"):
            Guest("fam", net, sgd(net.parameters()), [batch], **options)


def epoch(guest: Guest, index: int, steps: int) -> None:
    guest.begin_epoch(index)
    for _ in range(steps):
        guest.optimizer.step()


def test_an_epoch_ends_also_where_a_step_was_left_out() -> None:
    """As a scaler of gradients does with one that overflows."""
    net = network()
    method = SWA(start=0.5)
    guest = Guest(method, net, sgd(net.parameters()), batches(), generations=1, epochs=4, steps=3)
    for index, steps in enumerate((3, 3, 2, 2)):
        epoch(guest, index, steps)
    guest.end()
    assert method.count == 3  # the ends of the second, the third and the last


def test_other_numbers_of_steps_than_announced_are_told() -> None:
    net = network()
    guest = Guest("llf", net, sgd(net.parameters()), batches(), generations=1, epochs=2, steps=4)
    epoch(guest, 0, 2)
    with pytest.warns(UserWarning, match="2 steps of the optimiser, and steps=4 were announced"):
        guest.begin_epoch(1)
    with pytest.raises(RequestError, match="this is one more"):
        epoch(guest, 1, 5)
    with pytest.raises(RequestError, match="epoch 2 is one too many"):
        guest.begin_epoch(2)
    with pytest.raises(RequestError, match="steps is 0"):
        Guest("llf", net, sgd(net.parameters()), batches(), generations=1, epochs=2, steps=0)


def test_an_optimiser_of_another_model_is_refused() -> None:
    with pytest.raises(RequestError, match="trains none of the model's parameters"):
        Guest("llf", network(), sgd(network().parameters()), batches(), generations=2, epochs=1, steps=3)


def test_a_model_that_does_not_take_the_batches_is_refused() -> None:
    net = torch.nn.Linear(2, 2)
    with pytest.raises(RequestError, match="cannot take"):
        Guest("llf", net, sgd(net.parameters()), batches(), generations=1, epochs=1, steps=3)


def test_a_scheduler_made_before_the_guest_meets_the_ascent() -> None:
    net = network()
    optimizer = sgd(net.parameters())
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5**epoch)
    loader = batches()
    guest = Guest("seal:scale=0.5", net, optimizer, loader, generations=2, epochs=4, steps=len(loader))
    for epoch in range(2 * 4):
        guest.begin_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            functional.cross_entropy(net(x), y).backward()
            optimizer.step()
        scheduler.step()
        assert [group["lr"] for group in optimizer.param_groups] == [RATE * 0.5 ** (epoch + 1)] * 2
    guest.end()


def test_a_loop_that_is_left_in_the_middle_of_an_ascent_has_its_optimiser_back(monkeypatch: pytest.MonkeyPatch) -> None:
    net = network()
    optimizer, loader = sgd(net.parameters()), batches()
    options: dict[str, Any] = {"generations": 2, "epochs": 4, "steps": len(loader)}
    guest = Guest("seal:scale=0.5,decay=false", net, optimizer, loader, **options)
    before = [{key: group[key] for key in ("lr", "maximize", "weight_decay")} for group in optimizer.param_groups]

    def stop() -> None:
        assert [group["lr"] for group in optimizer.param_groups] == [RATE * 0.5, RATE]
        raise KeyboardInterrupt

    for epoch in range(4):
        guest.begin_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            functional.cross_entropy(net(x), y).backward()
            optimizer.step()
    guest.begin_epoch(4)
    monkeypatch.setattr(guest, "plain_step", stop)
    with pytest.raises(KeyboardInterrupt):
        optimizer.step()
    guest.leave()
    held = [{key: value for key, value in group.items() if key in before[0]} for group in optimizer.param_groups]
    assert held == before
    assert not any("scale" in group for group in optimizer.param_groups)
