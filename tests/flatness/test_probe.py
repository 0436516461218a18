from __future__ import annotations

import pytest
import torch

from fallow.flatness import Watch, relative_flatness
from fallow.flatness.choose import evaluate
from tests.flatness.networks import make
from tests.flatness.reference import dense, gradients, smoothed

GROUPS, PROBES = 50, 40  # 2,000 probes, averaged in groups


@pytest.mark.parametrize(
    ("name", "simplified"), [("gelu", False), ("gelu", True), ("batch norm, relu", False), ("conv, gelu", True)]
)
def test_no_bias(name: str, simplified: bool) -> None:
    """One probe for each sample, or one for all where they interact or the layer has positions."""
    model, layer, x, y = make(name)
    wanted = dense(model, layer, x, y, smoothed, simplified).item()
    watch = Watch(model, layer, form="probe", simplified=simplified)
    observed, choice = watch.look(lambda: smoothed(model(x), y))
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        found = torch.stack([evaluate(observed, choice, PROBES, draw) for _ in range(GROUPS)])
    error = found.std() / GROUPS**0.5
    assert abs(found.mean() - wanted) < 3 * error
    assert error < 0.05 * found.abs().mean()


def test_the_gradient_has_no_bias_either() -> None:
    model, layer, x, y = make("layer norm, gelu")
    wanted = torch.cat([g.flatten() for g in gradients(dense(model, layer, x, y, smoothed), model)])
    watch = Watch(model, layer, form="probe")
    observed, choice = watch.look(lambda: smoothed(model(x), y))
    draw = torch.Generator().manual_seed(1)
    each = [gradients(evaluate(observed, choice, 10, draw), model) for _ in range(60)]
    found = torch.stack([torch.cat([g.flatten() for g in one]) for one in each])
    error = found.std(0) / len(found) ** 0.5
    assert ((found.mean(0) - wanted).abs() <= 4 * error + 1e-12).all()  # of 60 numbers, one may be off by 3


def test_more_probes_average() -> None:
    model, layer, x, y = make("relu")

    def spread(probes: int) -> float:
        draw = torch.Generator().manual_seed(0)
        found = [relative_flatness(model, layer, x, y, form="probe", probes=probes, generator=draw) for _ in range(30)]
        return torch.stack(found).std().item()

    assert spread(16) < 0.5 * spread(1)
