from __future__ import annotations

import gc
import threading
import warnings
import weakref
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import fallow
from fallow import hypergradient
from fallow.hypergradients.penalty import SquaredDecay
from fallow.hypergradients.solvers import CG, MINRES, Exact, Identity, Neumann, Nystrom
from tests.hypergradients.problems import Net, error, minimise


@pytest.fixture(scope="module")
def net() -> Net:
    return Net()


def joined(gradients: list[Tensor]) -> Tensor:
    return torch.cat([g.flatten() for g in gradients])


# ---- against the truth ---------------------------------------------------------------------------------------------


def test_exact_agrees_with_finite_differences_of_the_argmin() -> None:
    """Ridge and logistic regression together, with λ in the validation loss too: minimise again at λ ± h."""
    draw = torch.Generator().manual_seed(0)
    x, val_x = torch.randn(2, 30, 4, generator=draw, dtype=torch.float64)
    y, val_y = torch.randint(3, (2, 30), generator=draw)
    model = nn.Linear(4, 3).double()
    params = list(model.parameters())
    decay = torch.tensor([0.3, -0.2, 0.1], dtype=torch.float64, requires_grad=True)  # one per class, in logarithms
    shift = torch.tensor(0.4, dtype=torch.float64, requires_grad=True)

    def train_loss() -> Tensor:
        penalty = (decay.exp()[:, None] * model.weight.square()).sum() + 0.1 * model.bias.square().sum()
        return functional.cross_entropy(model(x) + shift * x[:, :3], y) + 0.1 * penalty

    def val_loss() -> Tensor:
        return functional.cross_entropy(model(val_x) + shift * val_x[:, :3], val_y) + 0.01 * decay.square().sum()

    minimise(train_loss, params)
    gradients, record = hypergradient(train_loss, val_loss, params, [decay, shift], Exact(damping=0.0))
    assert record.gradient_norm < 1e-10
    h, wanted = 1e-4, []
    for knob in (decay, shift):
        for i in range(knob.numel()):
            ends = []
            for sign in (1, -1):
                with torch.no_grad():
                    knob.view(-1)[i] += sign * h
                minimise(train_loss, params)
                ends.append(val_loss().item())
                with torch.no_grad():
                    knob.view(-1)[i] -= sign * h
            wanted.append((ends[0] - ends[1]) / (2 * h))
    assert error(joined(gradients), torch.tensor(wanted, dtype=torch.float64)) < 1e-5


SOLVERS = [
    Neumann(5000), Neumann(5000, damping=0.05), CG(150), CG(150, 0.0), CG(150, 0.05), MINRES(120), MINRES(120, 0.05),
    Nystrom(53), Nystrom(53, 0.05), Exact(), Exact(0.05),
]  # fmt: skip


@pytest.mark.parametrize("solver", SOLVERS, ids=str)
@pytest.mark.parametrize("apart", [True, False], ids=["closed form", "differentiated"])
def test_every_solver_gives_the_dense_answer_on_a_network(solver, apart: bool, net: Net) -> None:
    loss = net.data_loss if apart else net.train_loss
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gradients, record = hypergradient(
            loss, net.val_loss, net.params, net.raw, solver, penalty=net.decay if apart else None
        )
    assert error(joined(gradients), joined(net.dense(record.damping))) < 1e-8
    assert record.gradient_norm < 1e-8 < record.val_gradient_norm
    assert record.val_loss == pytest.approx(net.val_loss().item())
    assert record.curvature is not None


def test_the_identity_is_that_of_the_first_step(net: Net) -> None:
    """T1-T2: λ's effect on one step of gradient descent of rate 1, by unrolling that step."""
    params = [p.detach().clone().requires_grad_() for p in net.params]

    def forward(weights: list[Tensor], x: Tensor) -> Tensor:
        return functional.linear(torch.tanh(functional.linear(x, *weights[:2])), *weights[2:])

    loss = functional.cross_entropy(forward(params, net.x), net.y) + net.decay(params)
    slopes = torch.autograd.grad(loss, params, create_graph=True)
    moved = [p.detach() - s + s.detach() for p, s in zip(params, slopes, strict=True)]
    wanted = torch.autograd.grad(functional.cross_entropy(forward(moved, net.val_x), net.val_y), net.raw)
    gradients, record = hypergradient(net.data_loss, net.val_loss, net.params, net.raw, Identity(), penalty=net.decay)
    assert error(joined(gradients), joined(list(wanted))) < 1e-12
    assert (record.products, record.residual) == (0, None)


def test_decay_per_weight_in_closed_form_equals_the_differentiated_one(net: Net) -> None:
    raw = [torch.randn_like(p).sub(1).requires_grad_() for p in net.params]
    decay = SquaredDecay(raw)
    solver = CG(12, damping=0.5)

    def whole() -> Tensor:
        return net.data_loss() + decay(net.params)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # these weights are of another decay
        mine, record = hypergradient(net.data_loss, net.val_loss, net.params, raw, solver, penalty=decay)
        theirs, same = hypergradient(whole, net.val_loss, net.params, raw, solver)
    assert error(joined(mine), joined(theirs)) < 1e-12
    assert record.gradient_norm == pytest.approx(same.gradient_norm)
    assert record.products == same.products == 12


def test_one_decay_may_have_several_owners(net: Net) -> None:
    raw = [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (-1.0, -2.0)]
    decay, copied = SquaredDecay(raw, [0, 0, 1, 1]), SquaredDecay([raw[0], raw[0], raw[1], raw[1]], [0, 1, 2, 3])
    assert decay(net.params).item() == pytest.approx(copied(net.params).item())
    x = [torch.ones_like(p) for p in net.params]
    parts = copied.at(net.params).mixed(x)
    assert torch.allclose(torch.stack(decay.at(net.params).mixed(x)), torch.stack([sum(parts[:2]), sum(parts[2:])]))
    with pytest.raises(fallow.RequestError, match="each of 0 to 1 must occur"):
        SquaredDecay(raw, [0, 0, 0, 0])


def test_hyperparameters_that_are_added_or_summed_have_the_gradients_of_one() -> None:
    """Autograd gives terms of a sum one tensor as gradient, or one number spread over many places."""
    w = torch.tensor([0.5, 0.3], dtype=torch.float64, requires_grad=True)
    knobs = [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (0.2, 0.3, [0.1, 0.4])]
    first, second, many = knobs

    def train_loss() -> Tensor:  # w* = 1 / (1 + d), d the sum of all
        return ((w - 1) ** 2 + (first + second + many.sum()) * w**2).sum()

    minimise(train_loss, [w])
    gradients, _ = hypergradient(train_loss, lambda: (w**2).sum(), [w], knobs, Exact(damping=0.0))
    assert joined(gradients).tolist() == pytest.approx([-4 * 2.0**-3] * 4)  # of 2 / (1 + d)², at d = 1


# ---- ways to give the losses ---------------------------------------------------------------------------------------


def test_losses_are_functions_or_scalars_in_one_or_more_chunks(net: Net) -> None:
    def part(x: Tensor, y: Tensor, share: float) -> Tensor:
        return share * functional.cross_entropy(net.model(x), y)

    def chunks(x: Tensor, y: Tensor) -> list:
        return [partial(part, x[a:b], y[a:b], (b - a) / 20) for a, b in ((0, 7), (7, 12), (12, 20))]

    train, val = chunks(net.x, net.y), chunks(net.val_x, net.val_y)
    rest = {"params": net.model, "hyperparams": net.raw, "solver": CG(8), "penalty": net.decay}
    wanted, record = hypergradient(net.data_loss, net.val_loss, **rest)
    for given in (
        (net.data_loss(), net.val_loss()),
        (train, val),
        ([chunk() for chunk in train], [chunk() for chunk in val]),
        ([train[0], train[1](), train[2]], val),
    ):
        gradients, found = hypergradient(*given, **rest)
        assert error(joined(gradients), joined(wanted)) < 1e-12
        assert found.train_loss == pytest.approx(record.train_loss)
        assert found.products == record.products
    assert all(p.grad is None for p in [*net.params, *net.raw])


def test_processes_average_their_products(net: Net) -> None:
    """Two threads with unequal shares of the examples, and a mean between them: both get what one process gets."""
    rest = {"hyperparams": net.raw, "solver": CG(8), "penalty": net.decay}
    wanted, record = hypergradient(net.data_loss, net.val_loss, net.params, **rest)
    barrier, shared, results = threading.Barrier(2), [None, None], [None, None]

    def mean(rank: int, tensor: Tensor) -> Tensor:
        shared[rank] = tensor
        barrier.wait(30)
        both = (shared[0] + shared[1]) / 2
        barrier.wait(30)
        return both

    def process(rank: int) -> None:
        mine = slice(0, 8) if rank == 0 else slice(8, 20)
        share = (mine.stop - mine.start) * 2 / 20

        def loss(x: Tensor, y: Tensor) -> Tensor:
            return share * functional.cross_entropy(net.model(x[mine]), y[mine])

        results[rank] = hypergradient(
            partial(loss, net.x, net.y), partial(loss, net.val_x, net.val_y), net.params,
            all_reduce=partial(mean, rank), **rest,
        )  # fmt: skip

    threads = [threading.Thread(target=process, args=(rank,)) for rank in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for gradients, found in results:
        assert error(joined(gradients), joined(wanted)) < 1e-10
        assert found.val_loss == pytest.approx(record.val_loss)
        assert found.gradient_norm == pytest.approx(record.gradient_norm, abs=1e-12)
    assert torch.equal(joined(results[0][0]), joined(results[1][0]))


def test_graphs_are_freed_at_once(net: Net) -> None:
    """Without waiting for the garbage collector: a graph holds all activations."""
    outputs = []

    def train_loss() -> Tensor:
        output = net.model(net.x)
        outputs.append(weakref.ref(output))
        return functional.cross_entropy(output, net.y)

    gc.disable()
    try:
        for solver in (CG(3), CG(3, 0.1), Neumann(3), Neumann(3, alpha=0.1)):
            hypergradient(train_loss, net.val_loss, net.params, net.raw, solver, penalty=net.decay)
        assert len(outputs) == 4
        assert all(output() is None for output in outputs)
    finally:
        gc.enable()


def test_works_where_gradients_are_switched_off(net: Net) -> None:
    with torch.no_grad():
        gradients, _ = hypergradient(net.train_loss, net.val_loss, net.params, net.raw, Exact(0.0))
    assert error(joined(gradients), joined(net.dense())) < 1e-8


def test_a_validation_loss_may_depend_on_hyperparameters_alone_of_their_own(net: Net) -> None:
    """What only the validation loss knows has its direct gradient; nothing implicit is missing."""
    scale = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)

    def val_loss() -> Tensor:
        return functional.cross_entropy(scale * net.model(net.val_x), net.val_y)

    [*_, found], _ = hypergradient(net.train_loss, val_loss, net.params, [*net.raw, scale])
    (wanted,) = torch.autograd.grad(val_loss(), scale)
    assert found.item() == pytest.approx(wanted.item())


# ---- requests that make no sense -----------------------------------------------------------------------------------


def refused(match: str, train, val, params, hyperparams, kind: type[Exception] = fallow.RequestError, **rest) -> None:
    with pytest.raises(kind, match=match) as caught:
        hypergradient(train, val, params, hyperparams, **rest)
    assert "\n" not in str(caught.value)


def test_hyperparameters_that_nothing_depends_on_are_named(net: Net) -> None:
    idle = torch.zeros((), dtype=torch.float64, requires_grad=True)
    refused("not depend on hyperparameter 4", net.train_loss, net.val_loss, net.params, [*net.raw, idle])
    named = {"decay": net.raw[0], "colour": idle}
    refused("not depend on hyperparameter 'colour'", net.train_loss, net.val_loss, net.params, named)

    def added() -> Tensor:
        return net.train_loss() + idle**2

    refused("not depend on hyperparameter 0", added, net.val_loss, net.params, [idle])
    refused("not depend on hyperparameter 1", net.data_loss, net.val_loss, net.params, [net.raw[0], idle],
            penalty=net.decay)  # fmt: skip


def test_parameters_without_gradient_are_named(net: Net) -> None:
    frozen = torch.zeros(2, dtype=torch.float64)
    refused("parameter 4 has no gradient", net.train_loss, net.val_loss, [*net.params, frozen], net.raw)
    frozen.requires_grad_()
    refused("does not depend on parameter 4", net.train_loss, net.val_loss, [*net.params, frozen], net.raw)
    refused("hyperparameter 0 has no gradient", net.train_loss, net.val_loss, net.params, [net.raw[0].detach()])
    refused("there is no parameter", net.train_loss, net.val_loss, [], net.raw)
    refused("hyperparameter 0 is a float", net.train_loss, net.val_loss, net.params, [0.1])
    refused("a parameter too", net.train_loss, net.val_loss, net.params, [net.params[0]])
    single = torch.zeros(2, requires_grad=True)
    refused("several kinds", net.train_loss, net.val_loss, [*net.params, single], net.raw)


def test_losses_that_are_none(net: Net) -> None:
    refused("shape \\(20, 3\\)", lambda: net.model(net.x), net.val_loss, net.params, net.raw)
    refused("is a float", lambda: 1.0, net.val_loss, net.params, net.raw)
    refused("validation loss has no graph", net.train_loss, net.val_loss().detach(), net.params, net.raw)
    bad = partial(refused, params=net.params, hyperparams=net.raw, kind=fallow.WorkError)
    bad("training loss is nan", train=lambda: net.train_loss() * float("nan"), val=net.val_loss)
    apart = nn.Parameter(torch.ones((), dtype=torch.float64))
    refused("does not depend on the parameters", net.train_loss, lambda: apart**2, net.params, net.raw)
    used = net.train_loss()
    used.backward()
    refused("graph of the training loss is gone", used, net.val_loss, net.params, net.raw)
    for tensor in [*net.params, *net.raw]:
        tensor.grad = None


@pytest.mark.filterwarnings("ignore:the training loss is far from its minimum")
def test_a_loss_that_changes_between_products_is_noticed(net: Net) -> None:
    drop = nn.Dropout(0.5)
    torch.manual_seed(0)
    half = lambda: functional.cross_entropy(net.model(drop(net.x)), net.y) / 2  # noqa: E731
    refused("chunk 0 of the training loss was", [half, half], net.val_loss, net.params, net.raw, penalty=net.decay)


def test_an_inner_problem_far_from_converged_is_warned_of() -> None:
    torch.manual_seed(0)
    model, x, y = nn.Linear(3, 1), torch.randn(8, 3), torch.randn(8, 1)
    decay = SquaredDecay([torch.zeros(()), torch.zeros(())])

    def loss() -> Tensor:
        return functional.mse_loss(model(x), y)

    with pytest.warns(RuntimeWarning, match=r"far from its minimum: its gradient has the norm \d\.\d+"):
        _, record = hypergradient(loss, loss, model, decay.hyperparams, penalty=decay)
    assert record.gradient_norm > 0.5 * record.val_gradient_norm


def test_products_without_second_derivative_are_refused() -> None:
    w, knob = torch.zeros(2, requires_grad=True), torch.ones((), requires_grad=True)

    def train() -> Tensor:
        return (w.square().sum() + 1e-30).sqrt() * 0 + w.abs().pow(1.5).sum() + knob * w.sum()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        refused("not finite", train, lambda: (w - 1).square().sum(), [w], [knob], kind=fallow.WorkError)


def test_negative_curvature_beyond_the_damping_is_never_silent() -> None:
    w = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    knob = torch.ones(2, dtype=torch.float64, requires_grad=True)
    signs = torch.tensor([1.0, -0.5], dtype=torch.float64)

    def train() -> Tensor:
        return (signs * w.square()).sum() / 2 + (knob * w).sum() * 1e-3

    def val() -> Tensor:
        return (w - 1).square().sum()

    rest = (train, val, [w], [knob])
    with pytest.warns(RuntimeWarning, match="curvature"):
        hypergradient(*rest, solver=CG(2, damping=0.1))
    for solver in (MINRES(2, damping=0.1), Exact(damping=0.1)):
        with pytest.warns(RuntimeWarning, match="saddle"):
            hypergradient(*rest, solver=solver)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, record = hypergradient(*rest)
    assert record.curvature == pytest.approx(-0.5)
    assert record.damping > 0.5
