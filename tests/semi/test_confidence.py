"""The Confidence Network: its meta-gradient against finite differences, its forms, its controls."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

import fallow
from fallow.core.context import Context
from fallow.data import Data, Examples, mix_in
from fallow.evaluate.separation import auroc
from fallow.hypergradients.solvers import CG, Identity
from fallow.methods import build
from fallow.methods.semi.confidence import ConfidenceNetwork
from fallow.methods.semi.network import Confidence, Shared
from fallow.methods.semi.signal import cosines, slopes
from fallow.semi.control import CONTROLS, with_validation
from fallow.training.prepare import prepare
from tests.conftest import small_images
from tests.semi.small import MODEL, doubled, standing

SETTINGS = {"generations": 1, "epochs": 3, "batch_size": 16, "lr": 0.05, "seed": 4}


def small_net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(9, 5), nn.Tanh(), nn.Linear(5, 3)).double()


def each_gradient(net: nn.Module, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
    """One gradient for each image, by brute force."""

    def loss(weights, x, y):
        return functional.cross_entropy(functional_call(net, weights, (x[None],)), y[None])

    weights = {name: p.detach() for name, p in net.named_parameters()}
    return vmap(grad(loss), (None, 0, 0))(weights, x, y)


def test_slopes_are_inner_products_with_each_images_gradient() -> None:
    net = small_net()
    x, y = torch.randn(7, 1, 3, 3).double(), torch.arange(7) % 3
    direction = [torch.randn_like(p) for p in net.parameters()]
    each = each_gradient(net, x, y)
    expected = sum((g * v).flatten(1).sum(1) for g, v in zip(each.values(), direction, strict=True))
    torch.testing.assert_close(slopes(net, x, y, direction), expected)


@pytest.mark.parametrize("bias", [True, False])
def test_cosines_are_those_of_the_last_layers_gradients(bias: bool) -> None:
    net = small_net()
    if not bias:
        net[3].bias = None
    x, y = torch.randn(7, 1, 3, 3).double(), torch.arange(7) % 3
    val = torch.randn(11, 1, 3, 3).double(), torch.arange(11) % 3

    def last(x, y):
        each = each_gradient(net, x, y)
        return torch.cat([part.flatten(1) for name, part in each.items() if name.startswith("3.")], 1)

    expected = functional.cosine_similarity(last(x, y), last(*val).mean(0)[None])
    torch.testing.assert_close(cosines(net, net[3], x, y, val), expected)


def ready(settings: str) -> Context:
    """Everything in float64, the weights not all 1, the labels of a step given."""
    ctx = standing(f"confidence:threshold=0.5,ratio=3,warmup=0,{settings}")
    method = ctx.method
    method.batch = doubled(ctx)
    method.told = []
    method.confidence.double()
    method.outer.param_groups[0]["lr"] = 0.0  # only the gradient is wanted
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in method.confidence.parameters():
            p.add_(0.1 * torch.randn(p.shape, generator=draw, dtype=p.dtype))
    method.val_x = method.val_x.double()
    ctx.model.eval()
    method.loss(ctx, method.batch)
    assert 0 < sum(float(sure.sum()) for _, sure in method.told) < 36
    return ctx


def losses(ctx: Context):
    """L_T(θ, ω) and L_V(θ), written out."""
    method = ctx.method
    x, y, weak, strong = (t.flatten(0, 1) if i > 1 else t for i, t in enumerate(method.batch[:4]))
    [(label, sure)] = method.told[:1]

    def train(weights, omega):
        c = functional_call(method.confidence, omega, (weak,))
        each = functional.cross_entropy(functional_call(ctx.model, weights, (strong,)), label, reduction="none")
        return functional.cross_entropy(functional_call(ctx.model, weights, (x,)), y) + (c * sure * each).mean()

    def val(weights):
        return functional.cross_entropy(functional_call(ctx.model, weights, (method.val_x,)), method.val_y)

    return train, val


def test_the_meta_gradient_is_that_of_the_validation_loss_after_a_step() -> None:
    """dL_V(θ − η·∂L_T(θ, ω)/∂θ)/dω by central differences, η being small: what the identity stands for."""
    ctx = ready("form=plain")
    train, val = losses(ctx)
    weights = {name: p.detach() for name, p in ctx.model.named_parameters()}
    omega = {name: p.detach().clone() for name, p in ctx.method.confidence.named_parameters()}
    draw = torch.Generator().manual_seed(1)
    along = {name: torch.randn(p.shape, generator=draw, dtype=p.dtype) for name, p in omega.items()}
    eta, epsilon = 1e-6, 1e-5

    def after(sign: float) -> float:
        moved = {name: p + sign * epsilon * along[name] for name, p in omega.items()}
        slope = grad(train)(weights, moved)
        there = {name: p - eta * slope[name] for name, p in weights.items()}
        back = {name: p + eta * slope[name] for name, p in weights.items()}
        return float(val(there) - val(back)) / (2 * eta)

    expected = (after(1) - after(-1)) / (2 * epsilon)
    ctx.method.meta_update(ctx)
    found = sum(float((p.grad * along[name]).sum()) for name, p in ctx.method.confidence.named_parameters())
    assert abs(expected) > 1e-6
    assert found == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("solver", ["identity", "cg"])
def test_the_meta_gradient_is_the_hypergradient(solver: str) -> None:
    ctx = ready(f"form=plain,solver={solver},products=4")
    train, val = losses(ctx)
    weights, omega = dict(ctx.model.named_parameters()), dict(ctx.method.confidence.named_parameters())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nowhere near a minimum
        expected, _ = fallow.hypergradient(
            lambda: train(weights, omega), lambda: val(weights), weights, omega,
            Identity() if solver == "identity" else CG(4, damping="auto"),
        )  # fmt: skip
    if solver == "cg":  # its Hessian is of the loss with the present weights C
        ctx.method.told = ctx.method.told[:1]
    counted = ctx.method.counts.clone()
    ctx.method.meta_update(ctx)
    assert torch.equal(ctx.method.counts, counted)  # the record is of the steps alone
    for p, want in zip(omega.values(), expected, strict=True):
        torch.testing.assert_close(p.grad, want, rtol=1e-6, atol=1e-10)


@pytest.mark.parametrize("form", ["centred", "cosine"])
def test_a_signal_that_is_the_same_for_all_moves_only_the_mean(form: str) -> None:
    ctx = ready(f"form={form},signal=constant,anchor=0.0")
    ctx.method.meta_update(ctx)
    assert all(p.grad.abs().max() < 1e-12 for p in ctx.method.confidence.parameters())
    ctx = ready(f"form={form},signal=constant,anchor=1.0")
    weak = ctx.method.batch[2].flatten(0, 1)[ctx.method.told[0][1].bool()]
    ((ctx.method.confidence(weak).mean() - 1) ** 2).backward()
    expected = [p.grad.clone() for p in ctx.method.confidence.parameters()]
    ctx.method.meta_update(ctx)
    for p, want in zip(ctx.method.confidence.parameters(), expected, strict=True):
        torch.testing.assert_close(p.grad, want, rtol=1e-6, atol=1e-10)


def foreign(share: float = 0.5) -> Data:
    """Half of the unlabelled images are of another kind: stripes."""
    x = torch.zeros(120, 1, 8, 8, dtype=torch.uint8)
    x[:, :, ::2] = torch.randint(100, 255, (120, 1, 4, 8), generator=torch.Generator().manual_seed(1)).to(torch.uint8)
    return mix_in(small_images(n=24), Examples(x, torch.zeros(120, dtype=torch.long)), share)


def test_weights_start_at_one_and_stay_so_in_the_warm_up() -> None:
    settings = SETTINGS | {"epochs": 2}
    plain = fallow.fit(MODEL, foreign(), "fixmatch:threshold=0.5", **settings).network
    waiting = fallow.fit(MODEL, foreign(), "confidence:threshold=0.5,warmup=1000", **settings)
    assert all(torch.equal(a, b) for a, b in zip(plain.parameters(), waiting.model.parameters(), strict=True))
    assert waiting.history[-1]["weight_mean"] == 1
    assert waiting.history[-1]["weight_std"] == 0


def test_the_controls_weigh_as_they_say() -> None:
    data = foreign()
    method = build("confidence:source=oracle")
    ctx = prepare(MODEL, data, method, **SETTINGS)
    _, _, weak, _, which = next(iter(method.stream(ctx)))
    assert torch.equal(
        method.weights(ctx, weak.flatten(0, 1), which.flatten()), (data.unlabelled.y >= 0)[which.flatten()].float()
    )
    zero = ConfidenceNetwork(source="zero", warmup=1)
    assert zero.weights(ctx, weak, which) == 1
    ctx.clock.step = 1
    assert zero.weights(ctx, weak, which) == 0
    untrained = fallow.fit(MODEL, data, "confidence:source=untrained", **SETTINGS).history
    assert untrained[0]["weight_std"] > 0.01
    assert untrained[0]["weight_mean"] == untrained[-1]["weight_mean"]
    assert set(CONTROLS) == {
        "zero after warm-up", "constant signal", "shuffled signal", "untrained network", "oracle",
    }  # fmt: skip
    for settings in CONTROLS.values():
        ConfidenceNetwork(**settings)


def test_shuffling_keeps_the_values_and_loses_the_order() -> None:
    ctx = ready("signal=shuffled")
    given = torch.arange(30.0)
    mixed = ctx.method.controlled(ctx, given)
    assert torch.equal(mixed.sort().values, given)
    assert not torch.equal(mixed, given)


def test_weights_that_run_away_end_the_meta_updates_and_that_is_said() -> None:
    spec = "confidence:threshold=0.4,warmup=1,every=1,form=plain,rate=10000000.0,limit=3.0"
    with pytest.warns(RuntimeWarning, match=r"the confidence weights diverged \(their mean is .*no more meta-updates"):
        result = fallow.fit(MODEL, foreign(), spec, **SETTINGS)
    assert result.history[-1]["weight_mean"] == 1  # the best so far
    assert len(result.history) == 3  # and the training went on


def test_the_network_of_the_lowest_validation_loss_is_kept_and_frozen_elsewhere(tmp_path: Path) -> None:
    method = ConfidenceNetwork(threshold=0.5, warmup=2, every=1, rate=0.01)
    file = str(tmp_path / "joint" / "confidence.safetensors")
    frozen = replace(method, source="frozen", file=file)
    found = {
        name: fallow.fit(MODEL, foreign(), made, out=tmp_path / name, **SETTINGS)
        for name, made in (("joint", method), ("frozen", frozen))
    }
    kept, again = (load_file(tmp_path / run / "confidence.safetensors") for run in ("joint", "frozen"))
    assert all(torch.equal(kept[name], again[name]) for name in kept)
    assert len({row["weight_mean"] for row in found["frozen"].history}) == 1
    rows = found["joint"].history
    best = min(rows, key=lambda row: row["val_loss"])
    assert found["frozen"].history[0]["weight_mean"] == pytest.approx(best["weight_mean"])


def test_a_shared_trunk_follows_the_classifier_and_trains_only_its_head() -> None:
    ctx = standing("confidence:threshold=0.4,warmup=0,every=1,network=shared,steps=3")
    method = ctx.method
    body = method.confidence.body
    assert isinstance(body, Shared)
    for batch in method.stream(ctx):
        method.update(ctx, lambda batch=batch: ctx.backward(batch))
        method.end_step(ctx)
        ctx.clock.step += 1
    for mine, theirs in zip(body.classifier.parameters(), method.evaluated(ctx).parameters(), strict=True):
        assert torch.equal(mine, theirs)
    assert len(method.outer.param_groups[0]["params"]) == 4
    x = torch.randn(5, 1, 8, 8)
    seen = []
    body.classifier.head.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    c = method.confidence(x)
    torch.testing.assert_close(c, 2 * torch.sigmoid(body.head(seen[0]).squeeze(1)))


def test_a_network_is_even_to_begin_with_whatever_its_kind() -> None:
    for spec in ("confidence", "confidence:network=mlp", "confidence:network=shared", "confidence:form=plain"):
        ctx = standing(spec)
        c = ctx.method.confidence(torch.randn(6, 1, 8, 8))
        assert c.tolist() == [1.0] * 6, spec
    assert Confidence(nn.Linear(4, 1), bounded=True, even=False)(torch.randn(9, 4)).std() > 0


def test_validation_labels_can_join_the_training_labels() -> None:
    data = small_images(n=24)
    both = with_validation(data)
    assert len(both.train) == 54
    assert both.val is None
    assert torch.equal(both.train.y, torch.cat([data.train.y, data.val.y]))


def test_auroc_is_the_share_of_pairs_in_order() -> None:
    draw = torch.Generator().manual_seed(0)
    high, low = torch.randint(0, 9, (20,), generator=draw) + 2.0, torch.randint(0, 9, (13,), generator=draw) + 0.0
    pairs = [float(a > b) + 0.5 * float(a == b) for a in high for b in low]
    assert auroc(high, low) == pytest.approx(sum(pairs) / len(pairs))


def test_refusals(tmp_path: Path) -> None:
    data = small_images(n=24)
    with pytest.raises(fallow.RequestError, match="confidence learns on validation labels, and there are none"):
        fallow.fit(MODEL, replace(data, val=None), "confidence")
    with pytest.raises(fallow.RequestError, match="source=oracle knows foreign images, and there are none"):
        fallow.fit(MODEL, data, "confidence:source=oracle")
    for spec, line in (
        ("confidence:form=plane", "did you mean 'plain'"),
        ("confidence:signal=no", "unknown value for signal"),
        ("confidence:every=0", "every is 0: it must be a whole number from 1"),
        ("confidence:rate=0", "rate is 0: it must be above 0"),
        ("confidence:anchor=-1", "anchor is -1"),
        ("confidence:solver=cg", "it goes with form=centred or form=plain"),
        ("confidence:source=frozen", "source=frozen and file=… go together"),
    ):
        with pytest.raises(fallow.RequestError, match=line):
            build(spec)
    with pytest.raises(fallow.RequestError, match="there is no"):
        fallow.fit(MODEL, data, ConfidenceNetwork(source="frozen", file=str(tmp_path / "x.safetensors")))
    fallow.fit(MODEL, data, "confidence", out=tmp_path / "run", generations=1, epochs=1)
    other = ConfidenceNetwork(source="frozen", file=str(tmp_path / "run" / "confidence.safetensors"), network="mlp")
    with pytest.raises(fallow.RequestError, match="does not fit this confidence network"):
        fallow.fit(MODEL, data, other)
