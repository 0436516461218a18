"""Weight decay per layer or per weight, learned by implicit gradients (Rezk 2021, chapters 3 and 4)."""

from __future__ import annotations

import math
import warnings
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fallow.base.errors import RequestError, unknown
from fallow.core.context import Context
from fallow.core.method import DECAY, Cost, Method
from fallow.core.ranges import log
from fallow.hypergradients.implicit import Record, hypergradient
from fallow.hypergradients.penalty import SquaredDecay, inverse_softplus
from fallow.hypergradients.schedule import T1T2, MetaSchedule
from fallow.hypergradients.solution import Solver
from fallow.hypergradients.solvers import CG, MINRES, Identity, Neumann, Nystrom
from fallow.hypergradients.statistics import BatchStatistics
from fallow.methods.losses import as_evaluated, training_loss, validation_loss
from fallow.weights.layers import layer_of, normalised_layers

SOLVERS = ("identity", "neumann", "cg", "minres", "nystrom", "t1t2")
OUTER = {"rmsprop": torch.optim.RMSprop, "adam": torch.optim.Adam}
LEAST = 1e-6  # the decay to begin with where there is none: at 0 there would be no gradient


@dataclass(eq=False)
class ImplicitDecay(Method):
    """The training loss has the penalty Σ (softplus(λ) ⊙ w)², and λ descends the validation loss.

    Rezk 2021, algorithm 1. After ``warmup`` steps, and every ``inner`` steps from there on, a meta-update takes the
    hypergradient on fresh training batches and the validation set, and steps an optimiser of its own::

        λ ← λ − η·dL_V/dλ,    dL_V/dλ = −∂L_V/∂w · (H + ρI)⁻¹ · ∂²L_T/∂w∂λ      (equations 3.3 and 3.4)

    The decay starts as the optimiser's own, which it replaces: the penalty's gradient 2·softplus(λ)² ⊙ w is added in
    closed form to what the optimiser sees. After ``patience`` meta-updates without a lower validation loss, λ returns
    to where the loss was lowest, and stays. The model is looked at without dropout, with batch norms that move with
    the weights (:mod:`fallow.hypergradients.statistics`). A layer that feeds a normalisation is left out, and keeps the
    optimiser's decay: its scale has no effect, so that no decay of it is better than another and its loss has no
    minimum. A method that forgets starts the warm-up and the patience again; nothing is learned while one climbs.
    """

    name = "implicit-decay"
    summary = "weight decay per layer or per weight, learned on validation by implicit gradients"
    exclusive = (DECAY,)
    ranges: ClassVar = {"rate": log(0.02, 0.5)}

    per: str = "layer"  # or "weight"
    solver: str = "cg"
    products: int = 5  # with the Hessian, in a meta-update
    inner: int = 50  # steps between two meta-updates
    warmup: int | None = None  # steps before the first; None: twice as many
    batches: int = 4  # of training data in a meta-update
    outer: str = "rmsprop"  # or "adam"
    rate: float = 0.1  # the learning rate of λ
    jump: float = 2.0  # what a meta-update multiplies or divides a decay by at most; 0: anything, as in the thesis
    patience: int = 15  # meta-updates without a lower validation loss
    damping: float | None = None  # None: above the most negative curvature met
    alpha: float | None = None  # of Neumann's series; None: from the largest curvature

    def __post_init__(self) -> None:
        if self.per not in ("layer", "weight"):
            raise unknown("value for per", self.per, ("layer", "weight"))
        if self.solver not in SOLVERS:
            raise unknown("solver", self.solver, SOLVERS)
        if self.outer not in OUTER:
            raise unknown("outer optimiser", self.outer, OUTER)
        if not 0 < self.rate < math.inf:
            raise RequestError(f"rate is {self.rate}: it must be above 0")
        if self.jump != 0 and self.jump <= 1:
            raise RequestError(f"jump is {self.jump}: it must be above 1, or 0 for no limit")
        for key in ("batches", "patience"):
            if not isinstance(getattr(self, key), int) or getattr(self, key) < 1:
                raise RequestError(f"{key} is {getattr(self, key)}: it must be a whole number from 1")
        self.schedule = (
            T1T2() if self.solver == "t1t2"
            else MetaSchedule(2 * self.inner if self.warmup is None else self.warmup, self.inner)
        )  # fmt: skip
        self.solve = self.build()

    def build(self) -> Solver:
        """The solver that the settings name."""
        damping = "auto" if self.damping is None else self.damping
        if self.solver in ("identity", "t1t2"):
            return Identity()
        if self.solver == "neumann":
            alpha = "auto" if self.alpha is None else self.alpha
            return Neumann(self.products, alpha, damping)
        return {"cg": CG, "minres": MINRES, "nystrom": Nystrom}[self.solver](self.products, damping)

    @property
    def cost(self) -> Cost:  # type: ignore[override]
        """A step, with its share of a meta-update once the warm-up is over."""
        products = 0 if isinstance(self.solve, Identity) else self.products
        return Cost(after=self.batches * (2 + 2 * products) / self.schedule.inner)

    def begin(self, ctx: Context) -> None:
        if ctx.val is None:
            raise RequestError("implicit-decay learns on validation examples, and there are none: give val above 0")
        if not ctx.train.resumable:
            raise RequestError(
                "implicit-decay takes training batches between two steps, which a DataLoader with persistent workers "
                "cannot give: set persistent_workers=False, or pass its Dataset"
            )
        steps, first = ctx.clock.epochs * ctx.clock.steps, max(1, self.schedule.warmup)
        if first > steps:
            warnings.warn(
                f"implicit-decay learns nothing in {steps} steps: its first meta-update comes after {first}: give a "
                "smaller inner or warmup",
                RuntimeWarning,
                stacklevel=2,
            )
        if (smoothed := ctx.settings.label_smoothing) and ctx.target.kind == "classes":
            warnings.warn(
                f"implicit-decay under a label smoothing of {smoothed:g} learns too little decay: a network that is "
                "not sure of anything gains from larger weights at once; set label_smoothing=0",
                RuntimeWarning,
                stacklevel=2,
            )
        x = next(iter(ctx.train.ordered()))[0][:2]
        left_out = normalised_layers(ctx.model, x)
        self.left_out = {p for path in left_out for p in ctx.model.get_submodule(path).parameters(recurse=False)}
        if left_out and ctx.engine.is_global_zero:
            warnings.warn(
                f"implicit-decay leaves {len(left_out)} layers to the optimiser's own decay ({left_out[0]}, …): a "
                "normalisation follows them, their scale has no effect, and no decay is the best",
                RuntimeWarning,
                stacklevel=2,
            )
        self.model, self.optimizer = ctx.model, ctx.optimizer
        self.raw: dict[str, nn.Parameter] = {}  # λ, made when all methods have changed the structure
        self.warned = False

    def make(self) -> None:
        """Take the decay over from the optimiser."""
        self.owner: dict[Tensor, str] = {}  # which λ belongs to which parameter
        self.fixed: dict[Tensor, Tensor] = {}  # the decay of the others
        held = {p: group for group in self.optimizer.param_groups for p in group["params"]}
        for path, parameter in self.model.named_parameters():
            if parameter not in held:
                continue
            if parameter in self.left_out:
                rate = float(held[parameter].get("weight_decay", 0.0))
                self.fixed[parameter] = torch.tensor(rate, device=parameter.device)
                continue
            name = path if self.per == "weight" else layer_of(path)
            decay = max(LEAST, held[parameter].get("weight_decay", 0.0))
            start = torch.full_like(parameter, inverse_softplus(math.sqrt(decay / 2)))
            self.raw.setdefault(name, nn.Parameter(start if self.per == "weight" else start.flatten()[0].clone()))
            self.owner[parameter] = name
        for group in self.optimizer.param_groups:
            if "weight_decay" in group:
                group["weight_decay"] = 0.0
        self.outer_optimizer = OUTER[self.outer](self.raw.values(), lr=self.rate)
        self.best: dict[str, Tensor] = {}
        self.set_rates()

    def set_rates(self) -> None:
        """What the steps to come add to the gradient, per weight of each parameter."""
        each = dict(zip(self.raw, SquaredDecay(list(self.raw.values())).rates(), strict=True))
        self.rates = {parameter: each[name] for parameter, name in self.owner.items()} | self.fixed

    def begin_generation(self, ctx: Context) -> None:
        if not self.raw:
            self.make()
        self.lowest, self.waited, self.over = math.inf, 0, False

    @torch.no_grad()
    def before_step(self, ctx: Context) -> None:
        for group in ctx.optimizer.param_groups:
            held = [p for p in group["params"] if p.grad is not None and p in self.rates]
            if group.get("decoupled_weight_decay"):  # AdamW: what was its own stays beside its moments
                if own := [p for p in held if p in self.fixed]:
                    torch._foreach_addcmul_(own, own, [self.fixed[p] for p in own], value=-group["lr"])
                held = [p for p in held if p not in self.fixed]
            if held:
                sign = -1.0 if group.get("maximize") else 1.0  # the optimiser will turn it: who climbs must shrink too
                rates = [self.rates[p] for p in held]
                torch._foreach_addcmul_([p.grad for p in held], held, rates, value=sign)

    def end_step(self, ctx: Context) -> None:
        step = ctx.clock.epoch * ctx.clock.steps + ctx.clock.step + 1
        if not self.over and not ctx.disturbed and self.schedule.due(step):
            self.meta_update(ctx)

    def meta_update(self, ctx: Context) -> None:
        """One step of λ, or none and back to the best if that was long ago."""
        gradients, record = self.hypergradient(ctx)
        if self.still_better(record.val_loss):
            for name, gradient in gradients.items():
                self.raw[name].grad = gradient
            self.step()
        self.set_rates()
        ctx.log(decay=self.found(), meta=asdict(record))

    def hypergradient(self, ctx: Context) -> tuple[dict[str, Tensor], Record]:
        """dL_V/dλ of what is trained; all weights answer to it, those of layers that were left out too."""
        weights = [p for p in self.rates if p.grad is not None]  # a step has just been made: others are not trained
        names = list(dict.fromkeys(self.owner[p] for p in weights if p in self.owner))
        knobs = [self.raw[name] for name in names]
        decay = SquaredDecay(knobs, [names.index(self.owner[p]) if p in self.owner else None for p in weights])
        with (
            as_evaluated(ctx),
            BatchStatistics(ctx.model) as statistics,
            warnings.catch_warnings(record=True) as caught,
        ):
            warnings.simplefilter("always")
            train, x, train_passes = training_loss(ctx, self.batches)
            val, val_passes = validation_loss(ctx, self.batches, statistics, x)
            gradients, record = hypergradient(
                train, val, weights, knobs, self.solve, penalty=decay,
                all_reduce=ctx.engine.all_reduce if ctx.engine.world_size > 1 else None,
            )  # fmt: skip
        if caught and not self.warned:  # every meta-update would say so: the record of every epoch does
            warnings.warn(str(caught[0].message), RuntimeWarning, stacklevel=2)
            self.warned = True
        again = train_passes * len(val) if statistics.norms else 0.0  # for the statistics of every chunk
        ctx.spend(train_passes * (1 + 2 * record.products) + val_passes + again)
        return dict(zip(names, gradients, strict=True)), record

    @torch.no_grad()
    def step(self) -> None:
        """The outer optimiser's step, cut where a decay would jump: the weights need time to answer.

        RMSprop begins with steps of ten times its rate, and a decay of 2·softplus(λ)² is nearly exponential in 2λ: a
        few of them in the wrong direction, and all weights are gone (thesis, section 4.2.1).
        """
        before = [raw.detach().clone() for raw in self.raw.values()]
        self.outer_optimizer.step()
        self.outer_optimizer.zero_grad()
        if self.jump:
            most = math.log(self.jump) / 2
            for raw, old in zip(self.raw.values(), before, strict=True):
                raw.clamp_(old - most, old + most)

    def still_better(self, loss: float) -> bool:
        """Whether the validation loss has fallen lately; if not, λ is put back to where it was lowest."""
        if loss < self.lowest:
            self.lowest, self.waited = loss, 0
            self.best = {name: raw.detach().clone() for name, raw in self.raw.items()}
        else:
            self.waited += 1
        self.over = self.waited >= self.patience
        if self.over:
            self.put(self.best)
        return not self.over

    def found(self) -> dict[str, float]:
        """The decay of every layer (or the mean over a tensor's weights), as an optimiser takes it."""
        found: dict[str, float] = {}
        for path, parameter in self.model.named_parameters():
            if parameter in self.rates:
                name = path if self.per == "weight" else layer_of(path)
                found.setdefault(name, float(self.rates[parameter].mean()))
        return found

    @torch.no_grad()
    def put(self, raw: dict[str, Tensor]) -> None:
        """Set λ."""
        for name, value in raw.items():
            self.raw[name].copy_(value)

    def state_dict(self) -> dict[str, Any]:
        if not self.raw:
            return {}
        return {
            "raw": {name: raw.detach() for name, raw in self.raw.items()},
            "fixed": [float(rate) for rate in self.fixed.values()],  # which the optimiser has handed over already
            "best": self.best,
            "outer": self.outer_optimizer.state_dict(),
            "lowest": self.lowest,
            "waited": self.waited,
            "over": self.over,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if not state:
            return
        self.make()
        for rate, value in zip(self.fixed.values(), state["fixed"], strict=True):
            rate.fill_(value)
        self.put(state["raw"])
        self.set_rates()
        self.outer_optimizer.load_state_dict(state["outer"])
        self.best = {name: value.to(self.raw[name].device) for name, value in state["best"].items()}
        self.lowest, self.waited, self.over = state["lowest"], state["waited"], state["over"]
