from __future__ import annotations

import math

import pytest
import torch

import fallow
from fallow.core.clock import Clock
from fallow.core.method import Method
from fallow.core.schedule import Schedule
from tests.core.small import Net, points

E, S = 5, 7  # epochs, steps


def factors(schedule: Schedule) -> list[float]:
    clock = Clock(1, E, S)
    found = []
    for clock.epoch in range(E):
        for clock.step in range(S):
            found.append(schedule(clock))
    return found


def test_cosine() -> None:
    wanted = [0.5 * (1 + math.cos(math.pi * t / (E * S))) for t in range(E * S)]
    assert factors(Schedule("cosine")) == pytest.approx(wanted, abs=1e-15)


def test_constant() -> None:
    assert factors(Schedule("constant")) == [1.0] * (E * S)


def test_multistep_falls_to_a_fifth_as_torch_does() -> None:
    clock, schedule = Clock(1, 10, S), Schedule("multistep")
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    torchs = torch.optim.lr_scheduler.MultiStepLR(optimizer, [3, 6, 8], gamma=0.2)
    for clock.epoch in range(10):
        for clock.step in range(S):
            assert schedule(clock) == pytest.approx(torchs.get_last_lr()[0])
        optimizer.step()
        torchs.step()


def test_one_cycle_is_torchs_but_for_its_last_steps() -> None:
    """Torch counts to the last step and ends at a ten-thousandth of where it began; ours would reach 0 after it."""
    clock, schedule = Clock(1, 20, 50), Schedule("one-cycle")
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    torchs = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1.0, total_steps=1000, cycle_momentum=False)
    found = []
    for clock.epoch in range(20):
        for clock.step in range(50):
            found.append(schedule(clock))
            assert found[-1] == pytest.approx(torchs.get_last_lr()[0], abs=6e-3)
            optimizer.step()
            torchs.step()
    assert found[0] == pytest.approx(1 / 25)
    assert max(found) == found[300] == pytest.approx(1)
    assert found[650] == pytest.approx(0.5)


@pytest.mark.parametrize("epochs", [1, 2, 0.5, 1.3])
@pytest.mark.parametrize("kind", ["cosine", "constant", "plateau"])
def test_warm_up_rises_linearly_to_the_schedule(kind: str, epochs: float) -> None:
    bare, warm = factors(Schedule(kind)), factors(Schedule(kind, warmup=epochs))
    length = epochs * S
    for t in range(E * S):
        assert warm[t] == pytest.approx(bare[t] * min(1, (t + 1) / length))
    assert warm[0] > 0


def test_plateau_halves_whenever_the_loss_stops_falling() -> None:
    schedule, clock = Schedule("plateau", plateau=2), Clock(1, E, S)
    found = []
    for loss in (3, 2, 2, 2, 1.9, 1.9, 1.8, 5, 5, 5, 5):
        schedule.observe(loss)
        found.append(schedule(clock))
    assert found == [1, 1, 1, 0.5, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25, 0.125]
    copy = Schedule("plateau", plateau=2)
    copy.load_state_dict(schedule.state_dict())
    assert copy == schedule
    schedule.restart()
    assert schedule == Schedule("plateau", plateau=2)


def test_others_do_not_halve() -> None:
    schedule = Schedule("constant", plateau=1)
    for _ in range(5):
        schedule.observe(1.0)
    assert factors(schedule) == [1.0] * (E * S)


class Rates(Method):
    name = "rates"
    generational = True

    def begin(self, ctx) -> None:
        self.rates: list[float] = []

    def before_step(self, ctx) -> None:
        self.rates.append(ctx.optimizer.param_groups[0]["lr"])


@pytest.mark.parametrize("kind", ["cosine", "plateau"])
def test_restarts_with_every_generation(kind: str) -> None:
    rates = Rates()
    settings = {"generations": 2, "epochs": 3, "batch_size": 8, "schedule": kind, "plateau": 1, "warmup": 1}
    # a rate this small never lowers the loss in float32, so that "plateau" halves after the second epoch
    fallow.fit(Net(), points(), rates, lr=1e-12, **settings)
    half = len(rates.rates) // 2
    assert rates.rates[:half] == rates.rates[half:]
    assert rates.rates[0] == 1e-12 / 2  # the first of two steps of warm-up
    if kind == "plateau":
        assert rates.rates[half - 1] == 1e-12 / 2


def test_an_ascent_is_no_plateau() -> None:
    """Without validation the training loss is observed; that it rises while climbing lowers no rate."""
    settings = {"generations": 2, "epochs": 8, "batch_size": 8, "schedule": "plateau", "plateau": 1, "lr": 0.02}
    result = fallow.fit(Net(), points(val=False), "seal:scale=20,share=0.5,late=freeze", **settings)
    rows = [row for row in result.history if row["generation"] == 2 and row["phase"] == "ascent"]
    assert rows[-1]["train_loss"] > rows[0]["train_loss"]
    first = next(row for row in result.history if row["generation"] == 2 and row["phase"] == "descent")
    assert first["lr"] == 0.02
