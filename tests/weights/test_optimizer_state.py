import pytest
import torch
from torch import Tensor, nn, optim

from fallow.weights import reset_state

OPTIMIZERS = {
    "sgd": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "sgd-dampened": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.3),
    "sgd-nesterov": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "sgd-fused": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
    "adam": lambda p: optim.Adam(p, lr=0.1),
    "adamw-amsgrad": lambda p: optim.AdamW(p, lr=0.1, amsgrad=True),
    "adamw-fused": lambda p: optim.AdamW(p, lr=0.1, fused=True),
    "rmsprop": lambda p: optim.RMSprop(p, lr=0.1, momentum=0.9, centered=True),
    "adagrad": lambda p: optim.Adagrad(p, lr=0.1, initial_accumulator_value=0.5),
    "rprop": lambda p: optim.Rprop(p, lr=0.1),
}


def step(optimizer: optim.Optimizer, parameters: list[Tensor], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for p in parameters:
        p.grad = torch.randn(p.shape, generator=generator, dtype=p.dtype)
    optimizer.step()


def pair() -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(3, 4, generator=generator, dtype=torch.float64)) for _ in range(2)]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_reset_tensor_starts_exactly_as_in_a_new_optimiser(name):
    old, kept = pair()
    optimizer = OPTIMIZERS[name]([old, kept])
    untouched = pair()
    reference = OPTIMIZERS[name](untouched)
    for seed in range(3):
        step(optimizer, [old, kept], seed)
        step(reference, untouched, seed)
    reset_state(optimizer, [old])
    new = nn.Parameter(old.detach().clone())
    fresh = OPTIMIZERS[name]([new])
    for seed in range(3, 7):
        step(optimizer, [old, kept], seed)
        step(reference, untouched, seed)
        new.grad = old.grad.clone()
        fresh.step()
        assert torch.equal(old, new)
        assert torch.equal(kept, untouched[1])
    assert not torch.equal(old, untouched[0])  # the reset mattered


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_masked_elements_forget_and_the_others_do_not(name):
    parameters = pair()
    optimizer = OPTIMIZERS[name](parameters)
    for seed in range(3):
        step(optimizer, parameters, seed)
    before = {key: value.clone() for key, value in optimizer.state[parameters[0]].items() if isinstance(value, Tensor)}
    mask = torch.tensor([True, False, False, True]).expand(3, 4)
    reset_state(optimizer, parameters[:1], [mask])
    per_element = 0
    for key, value in before.items():
        after = optimizer.state[parameters[0]][key]
        if value.shape != mask.shape:
            assert torch.equal(after, value)  # the step counter is shared
            continue
        per_element += 1
        assert torch.equal(after[~mask], value[~mask])
        assert after[mask].eq({"sum": 0.5, "step_size": 0.1}.get(key, 0.0)).all()
    assert per_element >= 1
    step(optimizer, parameters, 9)


def test_masked_momentum_is_a_fresh_start_for_sgd():
    old, _ = pair()
    optimizer = optim.SGD([old], lr=0.1, momentum=0.9, nesterov=True)
    for seed in range(3):
        step(optimizer, [old], seed)
    mask = torch.rand(3, 4) < 0.5
    reset_state(optimizer, [old], [mask])
    new = nn.Parameter(old.detach().clone())
    fresh = optim.SGD([new], lr=0.1, momentum=0.9, nesterov=True)
    for seed in range(3, 6):
        step(optimizer, [old], seed)
        step(fresh, [new], seed)
        torch.testing.assert_close(old[mask], new[mask], rtol=1e-15, atol=1e-15)


def test_what_the_optimiser_does_not_know_is_no_error():
    parameters = pair()
    optimizer = optim.Adam(parameters[:1])
    reset_state(optimizer, parameters)
    assert len(optimizer.state) == 0
