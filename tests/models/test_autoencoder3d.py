"""FAM's autoencoder: its sizes, what it refuses, He's draws of a deconvolution, and κ of its 64×8 layer."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from fallow.base.errors import RequestError
from fallow.data.dice import dice_loss
from fallow.flatness import Watch, explain, relative_flatness
from fallow.flatness.choose import evaluate
from fallow.flatness.probe import probe
from fallow.models import build
from tests.flatness.reference import dense, distance, finite_difference, gradients


def test_the_papers_sizes() -> None:
    with torch.device("meta"):
        net = build("autoencoder3d", shape=(1, 64, 64, 64), classes=2)
    assert tuple(net.decode.linear.weight.shape) == (64, 8)
    assert sum(p.numel() for p in net.parameters()) == pytest.approx(1e6, rel=0.05)
    assert len(net.blocks) == 5 + 2 + 4


def test_sizes_that_it_cannot_take() -> None:
    with pytest.raises(RequestError, match="multiples of 32; use a smaller depth, or unet"):
        build("autoencoder3d", shape=(1, 48, 64, 64), classes=2)
    with pytest.raises(RequestError, match=r"a volume \(C, D, H, W\) would fit"):
        build("autoencoder3d", shape=(1, 64, 64), classes=2)


def test_deconvolutions_keep_the_size_of_what_passes() -> None:
    """As many products in a sum as the stride leaves: what ReLU gives keeps its mean square."""
    torch.manual_seed(0)
    layer = build("autoencoder3d:width=16,depth=2", shape=(1, 8, 8, 8), classes=2).up2.deconv
    x = torch.randn(8, layer.in_channels, 8, 8, 8).relu()
    inner = layer(x).detach()[..., 2:-2, 2:-2, 2:-2].relu()
    assert float(inner.square().mean() / x.square().mean()) == pytest.approx(1, rel=0.3)


def shapes(count: int = 3) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    net = build("autoencoder3d:width=2,depth=2", shape=(1, 8, 8, 8), classes=2).double()
    assert tuple(net.decode.linear.weight.shape) == (64, 8)
    return net, torch.randn(count, 1, 8, 8, 8, dtype=torch.float64), (torch.rand(count, 8, 8, 8) < 0.2).long()


@pytest.mark.parametrize("loss", [dice_loss, functional.cross_entropy], ids=["dice", "cross-entropy"])
def test_flatness_of_the_decoded_code_is_the_dense_hessians(loss) -> None:
    net, x, y = shapes()
    choice = explain(net, "decode.linear", x, y, loss)
    assert (choice.form, choice.exact) == ("forward", True)
    wanted = dense(net, "decode.linear", x, y, loss)
    for form in ("forward", "tail"):
        assert distance(relative_flatness(net, "decode.linear", x, y, loss, form), wanted, net) < 1e-10


def test_its_gradient_is_that_of_finite_differences() -> None:
    net, x, y = shapes(2)

    def kappa() -> torch.Tensor:
        return relative_flatness(net, "decode.linear", x, y, dice_loss)

    found = dict(zip(dict(net.named_parameters()), gradients(kappa(), net), strict=True))
    for name in ("down1.conv.weight", "decode.linear.weight", "up2.deconv.weight", "head.weight"):
        parameter = net.get_parameter(name)
        direction = torch.randn_like(parameter)
        slope = finite_difference(kappa, parameter, direction / direction.norm(), h=1e-6)
        assert slope == pytest.approx(float((found[name] * direction).sum() / direction.norm()), rel=1e-4)


def test_the_probe_goes_forward_and_has_the_mean() -> None:
    net, x, y = shapes()
    seen, choice = Watch(net, "decode.linear", x).look(lambda: dice_loss(net(x), y))
    draw = torch.Generator().manual_seed(1)
    found = torch.stack([probe(seen, 1, draw).detach() for _ in range(400)])
    wanted = evaluate(seen, choice).detach()
    assert abs(found.mean() - wanted) < 4 * found.std() / 20


def test_forward_is_refused_where_it_is_not_exact() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    x, y = torch.randn(5, 3), torch.randint(2, (5,))
    with pytest.raises(RequestError, match="not linear but for kinks"):
        relative_flatness(net, "0", x, y, form="forward")
