from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import fallow
from fallow import L2F
from fallow.adaptation.attenuation import owners
from fallow.adaptation.execution import Execution, flat
from fallow.adaptation.inner import adapt
from fallow.adaptation.learner import Learner
from fallow.adaptation.objective import Objective, normalised
from fallow.adaptation.optimisers import OPTIMISERS
from fallow.methods.fewshot.anil import ANIL
from fallow.methods.fewshot.boil import BOIL
from fallow.methods.fewshot.imaml import IMAML
from fallow.methods.fewshot.multistep import MultiStepLoss, step_weights
from fallow.methods.fewshot.mumomaml import MuMoMAML
from fallow.methods.fewshot.piece import Piece
from fallow.methods.fewshot.rates import LearnedRates, MetaSGD
from tests.adaptation.reference import naive

STEPS, RATE, TASKS = 3, 0.1, 4


def curves(model_seed: int = 0) -> tuple[nn.Module, tuple[Tensor, ...]]:
    torch.manual_seed(model_seed)
    model = nn.Sequential(nn.Linear(1, 6), nn.Tanh(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 1)).double()
    x, query_x = torch.randn(2, TASKS, 5, 1, dtype=torch.float64)
    phase = torch.rand(TASKS, 1, 1, dtype=torch.float64)
    return model, (x, (x + phase).sin(), query_x, (query_x + phase).sin())


def images() -> tuple[nn.Module, tuple[Tensor, ...]]:
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3), nn.LeakyReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(3 * 9, 3),
    ).double()  # fmt: skip
    x, query_x = torch.randn(TASKS, 6, 1, 6, 6).double(), torch.randn(TASKS, 9, 1, 6, 6).double()
    return model, (x, torch.arange(3).repeat(TASKS, 2), query_x, torch.arange(3).repeat(TASKS, 3))


PROBLEMS = {"curves": (curves, functional.mse_loss), "images": (images, functional.cross_entropy)}


def nudge(learner: Learner) -> None:
    """Move learned rates and φ from where they start, so that all of them differ."""
    draw = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, child in learner.named_children():
            if name != "model":
                for p in child.parameters():
                    by = torch.rand(p.shape, generator=draw, dtype=p.dtype)
                    p.mul_(1 + 0.5 * by).add_(0.02 * by)


def gradients(
    learner: Learner, batch: tuple[Tensor, ...], execution: str, order: int, weights: Tensor | None
) -> list[Tensor]:
    for p in learner.parameters():
        p.grad = None
    with normalised(learner.model, "batch", training=True):
        loss, _ = Execution(learner, execution)(batch, weights, order=order)
        loss.backward()
    return [p.grad if p.grad is not None else torch.zeros_like(p) for p in flat(learner.meta())]


def reference(learner: Learner, batch: tuple[Tensor, ...], order: int, weights: list[float] | None) -> list[Tensor]:
    def rate(step: int, name: str) -> Tensor | float:
        return learner.learned_rates(step)[name] if hasattr(learner, "learned_rates") else learner.rate

    gamma = None
    if hasattr(learner, "attenuator"):
        owner = learner.attenuator.owner
        count = max(owner.values()) + 1

        def gamma(found: list[Tensor]) -> dict[str, Tensor]:
            named = dict(zip(learner.names, found, strict=True))
            means = [
                torch.cat([g.flatten() for name, g in named.items() if owner.get(name) == i]).mean()
                for i in range(count)
            ]
            each = learner.attenuator(torch.stack(means))
            return {name: each[i] for name, i in owner.items()}

    with normalised(learner.model, "batch", training=True):
        loss = naive(
            learner.model, learner.criterion, batch, steps=STEPS, rate=rate, order=order, gamma=gamma, weights=weights,
            adapted=set(learner.adapted), optimizer=learner.optimizer,
        )  # fmt: skip
        return list(torch.autograd.grad(loss, flat(learner.meta()), allow_unused=True, materialize_grads=True))


METHODS: dict[str, list[Piece]] = {
    "maml": [],
    "l2f": [L2F()],
    "l2f as in the public code": [L2F(depth=2, per="tensor", norms=False)],
    "l2f from near 1": [L2F(start=0.95, hidden=7)],
    "constant γ": [L2F(gamma="constant", start=0.8)],
    "meta-sgd": [MetaSGD()],
    "learned rates": [LearnedRates(start=0.05)],
    "multi-step loss": [MultiStepLoss()],
    "anil": [ANIL()],
    "boil": [BOIL()],
    "mumomaml": [MuMoMAML(width=5)],
    "mumomaml by attention": [MuMoMAML(width=5, kind="sigmoid"), ANIL()],
    "mumomaml by softmax": [MuMoMAML(width=5, kind="softmax"), L2F(gamma="constant"), BOIL()],
    "all": [L2F(), LearnedRates(), MultiStepLoss(), ANIL()],
}


@pytest.mark.parametrize("execution", ["vmap", "loop"])
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("method", [name for name in METHODS if "mumomaml" not in name])
def test_meta_gradients_equal_the_naive_loop(method: str, problem: str, order: int, execution: str) -> None:
    make, criterion = PROBLEMS[problem]
    model, batch = make()
    pieces = METHODS[method]
    learner = Learner(model, criterion, steps=STEPS, rate=RATE, pieces=pieces)
    nudge(learner)
    listed = next((w for piece in pieces if (w := piece.weights(STEPS, 0.05)) is not None), None)
    weights = None if listed is None else torch.tensor(listed, dtype=torch.float64)
    found = gradients(learner, batch, execution, order, weights)
    right = reference(learner, batch, order, listed)
    assert len(found) == len(right) > 0
    for a, b in zip(found, right, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-9)
    assert any(g.abs().max() > 1e-3 for g in right)


class Added(nn.Module):
    """Its weights are the sum of two, whose gradients are one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = (nn.Parameter(torch.randn(1, 6)) for _ in range(2))
        self.head = nn.Linear(6, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(x @ (self.a + self.b)))


@pytest.mark.parametrize("execution", ["vmap", "loop"])
@pytest.mark.parametrize("pieces", [[], [ANIL()]], ids=["maml", "anil"])
def test_parameters_that_are_added_have_gradients_of_their_own(pieces: list[Piece], execution: str) -> None:
    _, batch = curves()
    learner = Learner(Added().double(), functional.mse_loss, steps=STEPS, rate=RATE, pieces=pieces)
    found = gradients(learner, batch, execution, 1, None)
    for a, b in zip(found, reference(learner, batch, 1, None), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-9)


def test_a_modulated_network_is_the_network_with_its_layers_scaled_and_shifted() -> None:
    """FiLM as the paper writes it, on what the layers give, against the same on the parameters."""
    model, (x, y, *_) = curves()
    learner = Learner(model, functional.mse_loss, pieces=[MuMoMAML(width=5)])
    same, _ = next(learner.path(learner.meta(), x, y, order=1, batched=True))
    assert all(bool((p == (1.0 if name.endswith("scale") else 0.0)).all()) for name, p in same.items() if "/" in name)
    nudge(learner)
    start, _ = next(learner.path(learner.meta(), x, y, order=1, batched=True))
    _, found = learner.objective(True)(start, x, y)
    for task in range(TASKS):
        tau = learner.modulator(x[task], y[task])
        z = x[task]
        for layer in (0, 2):
            z = torch.tanh(tau[f"{layer}/scale"] * model[layer](z) + tau[f"{layer}/shift"])
        torch.testing.assert_close(found[task], model[4](z))
    images_model, (x, y, *_) = images()
    learner = Learner(images_model, functional.cross_entropy, pieces=[MuMoMAML(width=5)])
    assert list(learner.modulator.sizes) == ["1"]  # the norm, for the convolution that it follows
    nudge(learner)
    with normalised(images_model, "batch", training=True):
        start, _ = next(learner.path(learner.meta(), x, y, order=1, batched=True))
        _, found = learner.objective(True)(start, x, y)
        tau = learner.modulator(x[0], y[0])
        z = images_model[1](images_model[0](x[0]))
        z = tau["1/scale"][:, None, None] * z + tau["1/shift"][:, None, None]
        torch.testing.assert_close(found[0], images_model[2:](z))


def test_an_embedding_does_not_hang_on_the_order_of_the_support() -> None:
    model, (x, y, *_) = curves()
    learner = Learner(model, functional.mse_loss, pieces=[MuMoMAML(width=5)])
    torch.testing.assert_close(
        learner.modulator.encoder(x[0].flip(0), y[0].flip(0)), learner.modulator.encoder(x[0], y[0])
    )


DIFFERENTIABLE = [name for name in METHODS if not name.startswith("l2f") and name != "all"]
MODULATED = [name for name in METHODS if "mumomaml" in name]  # whose gradient the naive loop does not know


@pytest.mark.parametrize(
    ("method", "problem"), [*((name, "curves") for name in DIFFERENTIABLE), *((name, "images") for name in MODULATED)]
)
def test_meta_gradients_equal_finite_differences(method: str, problem: str) -> None:
    """Not l2f: its embedding is a constant to the meta-gradient, which finite differences do not know."""
    make, criterion = PROBLEMS[problem]
    model, batch = make()
    pieces = METHODS[method]
    learner = Learner(model, criterion, steps=STEPS, rate=RATE, pieces=pieces)
    nudge(learner)
    listed = next((w for piece in pieces if (w := piece.weights(STEPS, 0.05)) is not None), None)
    weights = None if listed is None else torch.tensor(listed, dtype=torch.float64)
    found = gradients(learner, batch, "vmap", 2, weights)
    for a, b in zip(gradients(learner, batch, "loop", 2, weights), found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-10)

    def loss() -> float:
        with normalised(learner.model, "batch", training=True):
            return float(Execution(learner, "vmap")(batch, weights)[0])

    for p, gradient in zip(flat(learner.meta()), found, strict=True):
        place = int(gradient.abs().argmax())
        with torch.no_grad():
            p.view(-1)[place] += 1e-5
            above = loss()
            p.view(-1)[place] -= 2e-5
            below = loss()
            p.view(-1)[place] += 1e-5
        assert float(gradient.view(-1)[place]) == pytest.approx((above - below) / 2e-5, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("pieces", [[], [L2F(), LearnedRates(start=0.05)]], ids=["alone", "with l2f and rates"])
@pytest.mark.parametrize("optimizer", ["momentum", "adam"])
@pytest.mark.parametrize("order", [1, 2])
def test_other_optimisers_of_the_inner_loop_equal_the_naive_loop(
    order: int, optimizer: str, pieces: list[Piece]
) -> None:
    model, batch = curves()
    learner = Learner(model, functional.mse_loss, steps=STEPS, rate=RATE, optimizer=optimizer, pieces=pieces)
    nudge(learner)
    right = reference(learner, batch, order, None)
    for execution in ("vmap", "loop"):
        for a, b in zip(gradients(learner, batch, execution, order, None), right, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-9)
    if not pieces and order == 2:
        params = adapt(model, batch[:2], functional.mse_loss, steps=STEPS, rate=RATE, optimizer=optimizer)
        losses, _ = Objective(model, functional.mse_loss, batched=True)(params, *batch[2:])
        for a, b in zip(torch.autograd.grad(losses.mean(), list(model.parameters())), right, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("optimizer", ["momentum", "adam"])
def test_the_directions_are_torchs(optimizer: str) -> None:
    """From gradients far above ε, where it does not matter on which side of the root it is."""
    torch.manual_seed(0)
    p = nn.Parameter(torch.zeros(5, dtype=torch.float64))
    options = {"momentum": 0.9} if optimizer == "momentum" else {"eps": 0.0}
    theirs = (torch.optim.SGD if optimizer == "momentum" else torch.optim.Adam)([p], lr=1.0, **options)
    ours, memory = torch.zeros_like(p), None
    for _ in range(4):
        p.grad = torch.randn(5, dtype=torch.float64) + 3
        theirs.step()
        (moved,), memory = OPTIMISERS[optimizer]([p.grad], memory)
        ours = ours - moved
    torch.testing.assert_close(ours, p.detach(), rtol=1e-9, atol=0)


@pytest.mark.parametrize(
    "pieces", [[], [L2F(gamma="constant", start=0.8), ANIL()], [BOIL()]], ids=["alone", "with γ and anil", "with boil"]
)
def test_the_implicit_gradient_is_that_of_a_long_inner_loop(pieces: list[Piece]) -> None:
    """Differentiated through all of its steps, which lead to the minimum."""
    model, batch = curves()
    few = tuple(part[:2] for part in batch)
    learner = Learner(
        model, functional.mse_loss, steps=150, rate=RATE, pieces=[*pieces, IMAML(strength=2.0, products=40)]
    )
    found = gradients(learner, few, "loop", 2, None)
    loss, _ = learner.meta_loss(learner.meta(), few, None, order=2, batched=True)
    right = torch.autograd.grad(loss, flat(learner.meta()), allow_unused=True, materialize_grads=True)
    for a, b in zip(found, right, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-9)
    assert max(g.abs().max() for g in right) > 1e-3


def test_the_implicit_gradient_is_a_dense_solve() -> None:
    """(I + H/λ)⁻¹ ∂L_query/∂φ, at whatever point the inner loop has reached."""
    model, batch = curves()
    learner = Learner(model, functional.mse_loss, steps=3, rate=RATE, pieces=[IMAML(strength=3.0, products=100)])
    names, right = (
        list(dict(model.named_parameters())),
        torch.zeros(sum(p.numel() for p in model.parameters())).double(),
    )
    for x, y, query_x, query_y in zip(*batch, strict=True):
        *_, (end, _) = learner.path(learner.meta(), x, y, order=1, batched=False)
        sizes = [end[name].numel() for name in names]

        def loss(
            vector: Tensor, x: Tensor, y: Tensor, sizes: list[int] = sizes, end: dict[str, Tensor] = end
        ) -> Tensor:
            parts = {name: part.view_as(end[name]) for name, part in zip(names, vector.split(sizes), strict=True)}
            return functional.mse_loss(torch.func.functional_call(model, parts, x), y)

        point = torch.cat([end[name].detach().flatten() for name in names])
        H = torch.func.hessian(loss)(point, x, y)
        right += torch.linalg.solve(
            torch.eye(len(H)).double() + H / 3.0, torch.func.grad(loss)(point, query_x, query_y)
        )
    found = torch.cat([g.flatten() for g in gradients(learner, batch, "loop", 2, None)])
    torch.testing.assert_close(found, right / TASKS, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("pieces", [[], [L2F(norms=False)]])
@pytest.mark.parametrize("execution", ["vmap", "loop"])
def test_norms_may_stay_in_the_inner_loop(execution: str, pieces: list[Piece]) -> None:
    """As in L2F's public code; the meta-gradient trains them all the same."""
    model, batch = images()
    learner = Learner(model, functional.cross_entropy, steps=STEPS, rate=RATE, adapt_norms=False, pieces=pieces)
    assert learner.adapted == ["0.weight", "0.bias", "5.weight", "5.bias"]
    nudge(learner)
    found = gradients(learner, batch, execution, 2, None)
    for a, b in zip(found, reference(learner, batch, 2, None), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-9)
    assert found[2].abs().max() > 0
    with normalised(model, "batch", training=False):
        meta = learner.meta()
        *_, (params, _) = learner.path(meta, *batch[:2], order=1, batched=True)
    assert all(torch.equal(p, model[1].weight) for p in params["1.weight"].expand(TASKS, 3))


def test_a_constant_gamma_is_the_same_for_all_tasks() -> None:
    model, batch = curves()
    learner = Learner(model, functional.mse_loss, steps=STEPS, rate=RATE, pieces=[L2F(gamma="constant", start=0.8)])
    start, losses = next(learner.path(learner.meta(), *batch[:2], order=1, batched=True))
    assert losses is None  # no gradient is taken to find γ
    for name, p in model.named_parameters():
        torch.testing.assert_close(start[name], (0.8 * p).expand(TASKS, *p.shape))
    with pytest.raises(fallow.RequestError, match="unknown gamma 'none'"):
        L2F(gamma="none")


def test_first_and_second_order_differ() -> None:
    model, batch = curves()
    learner = Learner(model, functional.mse_loss, steps=STEPS, rate=RATE)
    one, two = (gradients(learner, batch, "vmap", order, None)[0] for order in (1, 2))
    assert (one - two).abs().max() > 1e-3


def test_the_plain_functions_are_maml() -> None:
    model, (x, y, query_x, query_y) = curves()
    params = adapt(model, (x, y), functional.mse_loss, steps=STEPS, rate=RATE)
    losses, _ = Objective(model, functional.mse_loss, batched=True)(params, query_x, query_y)
    found = torch.autograd.grad(losses.mean(), list(model.parameters()))
    learner = Learner(model, functional.mse_loss, steps=STEPS, rate=RATE)
    right = reference(learner, (x, y, query_x, query_y), 2, None)
    for a, b in zip(found, right, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-9)


def test_a_norm_belongs_to_the_layer_before_it() -> None:
    model, _ = images()
    assert owners(model, "layer", True) == dict.fromkeys(
        ("0.weight", "0.bias", "1.weight", "1.bias"), 0
    ) | dict.fromkeys(("5.weight", "5.bias"), 1)


def test_tied_weights_have_one_gamma_and_cannot_be_modulated_twice() -> None:
    model = nn.Sequential(nn.Linear(1, 4), nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False), nn.Linear(4, 1))
    model[2].weight = model[1].weight
    assert owners(model, "layer", norms=True)["1.weight"] == 1
    assert list(owners(model, "tensor", norms=True)) == [name for name, _ in model.named_parameters()]
    for per in ("layer", "tensor"):
        learner = Learner(model, functional.mse_loss, steps=1, pieces=[L2F(per=per)])
        assert learner.adapt(torch.randn(2, 5, 1), torch.randn(2, 5, 1))(torch.zeros(2, 3, 1)).shape == (2, 3, 1)
    with pytest.raises(fallow.RequestError, match="cannot modulate '2'"):
        Learner(model, functional.mse_loss, steps=1, pieces=[MuMoMAML()])


def test_step_weights_sum_to_one_and_end_with_the_last() -> None:
    for progress in (0.0, 0.1, 0.3):
        assert sum(step_weights(5, progress, 0.2)) == pytest.approx(1)
    assert step_weights(5, 0.2, 0.2) == [0, 0, 0, 0, 1]
