from __future__ import annotations

import numpy as np
import pytest

from fallow.base.errors import RequestError
from fallow.evaluate.labels import curve, worth

SIZES = [250, 500, 750, 1000]


def law(n: float, e: float = 0.2, u: float = 0.3, c: float = 0.6) -> float:
    return e * (u + (1 - u) * (n / 1000) ** -c)


def measured(draw: np.random.Generator, noise: float, seeds: int = 5, **shape: float) -> np.ndarray:
    """At all sizes and at twice the labels."""
    sizes = {n: law(n, **shape) for n in (*SIZES, 2000)}
    grown = {n: (error / sizes[1000]) ** 0.5 for n, error in sizes.items()}  # as noise does
    luck = 0.01 * draw.standard_normal(seeds)  # of a split, the same at every size
    return np.array([error + grown[n] * (luck + noise * draw.standard_normal(seeds)) for n, error in sizes.items()])


def test_without_noise_it_goes_through_the_points() -> None:
    found = curve(SIZES, np.array([[law(n)] * 3 for n in SIZES]))
    for n in (*SIZES, 2000):
        assert found.at(n).mean == pytest.approx(law(n), abs=2e-3)
    assert found.at(2000).high - found.at(2000).low < 0.02


def test_the_weights_are_those_of_brute_force() -> None:
    """Against the posterior of one curve, integrated over e on a fine grid with the noise known to be what it is."""
    draw = np.random.default_rng(0)
    errors = measured(draw, 0.05, seeds=100)[:-1]
    found = curve(SIZES, errors)
    variance = found.noise**2
    assert variance == pytest.approx(0.05**2 / 100, rel=0.2)
    i, j = (int((np.abs(found.u - u) + np.abs(found.c - c)).argmin()) for u, c in ((0.3, 0.6), (0.31, 0.63)))
    e = np.linspace(0.0, 0.5, 20001)
    likelihood = []
    for k in (i, j):
        shape = np.array([found.u[k] + (1 - found.u[k]) * (n / 1000) ** -found.c[k] for n in SIZES])
        grown = (errors.mean(1) / errors[-1].mean())[:, None]
        miss = (np.square(errors.mean(1)[:, None] - e * shape[:, None]) / grown).sum(0) / variance
        likelihood.append(np.exp(-miss / 2).sum())
    assert found.weight[i] / found.weight[j] == pytest.approx(likelihood[0] / likelihood[1], rel=0.1)


@pytest.mark.parametrize("shape", [{"u": 0.0, "c": 0.4}, {"u": 0.5, "c": 0.8}, {"u": 0.9, "c": 1.0}])
def test_the_interval_holds_what_twice_the_labels_bring(shape: dict[str, float]) -> None:
    draw, held = np.random.default_rng(1), []
    for _ in range(100):
        errors = measured(draw, 0.006, **shape)
        said = curve(SIZES, errors[:-1]).at(2000)
        held.append(said.low <= errors[-1].mean() <= said.high)
    assert np.mean(held) >= 0.85


def test_nothing_is_said_beyond_twice_the_labels() -> None:
    found = curve(SIZES, np.array([[law(n)] * 3 for n in SIZES]))
    with pytest.raises(RequestError, match="beyond twice"):
        found.at(2001)
    with pytest.raises(RequestError, match="three sizes"):
        curve([1, 2], np.zeros((2, 3)))


def test_sizes_without_errors() -> None:
    """As easy data have them: no division by what is not there."""
    found = curve(SIZES, [[0.1, 0.2], [0.05, 0.0], [0.0, 0.0], [0.02, 0.0]]).at(2000)
    assert 0 <= found.low <= found.mean <= found.high < 0.2


def test_the_forecast_is_in_its_interval_where_no_power_law_fits() -> None:
    """Below a label for each class, errors fall straight."""
    errors = [[0.75 - 0.01 * seed, 0.52 + 0.01 * seed, 0.37 - 0.01 * seed, 0.225] for seed in range(4)]
    found = curve([15, 30, 45, 60], np.transpose(errors)).at(120)
    assert found.low <= found.mean <= found.high


def test_what_a_method_is_worth_in_labels() -> None:
    control = curve(SIZES, np.array([[law(n)] * 3 for n in SIZES]))
    assert worth(np.array([law(1400)] * 3), SIZES, control) == pytest.approx(1400, rel=0.01)
    assert worth(np.array([law(2500)] * 3), SIZES, control) is None
    assert worth(np.array([law(800)] * 3), SIZES, control) == pytest.approx(800, rel=0.01)
    assert worth(np.array([0.9] * 3), SIZES, control) == 250
