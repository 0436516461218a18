"""SEAL: simulated annealing in early layers (Sarfi et al. 2023, equations 2 and 3)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from fallow.base.errors import RequestError, unknown
from fallow.core.context import Context
from fallow.core.method import Method
from fallow.core.ranges import linear
from fallow.methods.forget.measure import log_forgetting
from fallow.weights import ascend, descend, reset_state, split_groups

if TYPE_CHECKING:
    from fallow.problems import Problem

# S·η·steps/(1 − μ) of the paper's ascent: 40 epochs of 100,000 images in batches of 32, momentum μ = 0.9
PAPERS = 0.01 * 0.01 * 40 * 100_000 / 32 / (1 - 0.9)
MOVED = 0.01  # of its size: what moves less has forgotten nothing
FASTEST = 4.0  # S of an automatic ascent, at most
TURNED = 0.98  # the cosine between weights before and after, at which an automatic ascent ends
LOOKS = 128  # at the cosine during an automatic ascent
FORGOTTEN = 0.25  # of the training examples: what forgets less in half of an automatic ascent takes longer steps
CHECKS = 32  # looks at the training accuracy during an adaptive ascent; an automatic one has the latter half of them
LARGEST = 0.99  # step relative to a tensor's norm; a step of 1 could end at 0, where no direction is left
SLACK = 0.75  # the line reaches the target here, so that a quarter of the ascent is left to catch up


@dataclass(eq=False)
class SEAL(Method):
    """At the start of every generation but the first, the early layers climb while the later ones descend.

    For the first k = share·E of a generation's E epochs (Sarfi et al. 2023, equation 3)::

        Θ_forget ← Θ_forget + S·η·∇J        (the weight decay still shrinks)
        Θ_fit    ← Θ_fit    −   η·∇J

    then all descend. The ascent flips the gradient, never the learning rate: a negative rate would turn the
    weight decay into growth.

    To first order n steps up a gradient g move the weights by S·η·n/(1 − μ)·g, μ the momentum: that product, 125 in
    the paper with its n = 125,000 steps, is what an ascent is known by, not S. ``scale="auto"`` takes the S that
    has it here,

        S = min(4, 125·(1 − μ)/(η·n)),

    which is the paper's 0.01 at the paper's settings and 0.3 at 4,000 steps; optimisers that normalise their steps
    (Adam) climb as fast as they descend, S = 1. A small network that is driven as far as that does not come back within
    a generation. So such an ascent ends where the climbing weights have turned to a cosine of 0.98 with what they were;
    and norms and biases wait meanwhile: they are small numbers, a few steps of S ≈ 1 take them far, and what they close
    is slow to open again. A network that has fitted few examples well has next to no gradient to climb: where half of
    such an ascent has forgotten less than a quarter of them, the other half takes the adaptive ascent's steps, below,
    as long as would turn the weights to that cosine in half of what is left; a quarter forgotten, it ends. The paper's
    own S is ``scale=0.01``: at a few hundred images it forgets nothing, and a run says so.

    ``ascent="adaptive"`` takes steps of the relative size ρ on the sphere of each tensor's norm,

        w ← ‖w‖ · u/‖u‖,  u = w + ρ·‖w‖·g/‖g‖

    (norms and biases wait here too, unless ``scale`` is a number), and steers ρ so that the training accuracy
    falls along a straight line to ``target`` (chance by default) within ¾ of the k epochs: ρ doubles whenever the
    accuracy is above the line and halves whenever below. The line, and what an automatic ascent has forgotten, count
    from the accuracy before ``late="redraw"``. The ascent ends where the target is reached. Keeping the norm matters:
    weights that have grown learn slowly afterwards where a normalisation follows.
    """

    name = "seal"
    summary = "the early layers do gradient ascent for the first quarter of each generation, then all layers descend"
    generational = True
    ranges: ClassVar = {"share": linear(0.1, 0.5)}  # most S forget nothing, and would win as a restart

    share: float = 0.25  # of a generation's epochs that climb
    scale: float | str = "auto"  # S: of the learning rate, while climbing; the paper's is 0.01
    late: str = "descend"  # the other side meanwhile: "descend", "freeze", or "redraw" first, then descend
    reverse: bool = False  # the later layers climb instead
    decay: bool = True  # weight decay while climbing (paper); False: none (public code)
    momentum: str = "reset"  # of the climbing side, where the direction turns; or "keep"
    ascent: str = "fixed"  # or "adaptive"
    target: float | None = None  # training accuracy at which an adaptive ascent ends; None: chance
    rho: float = 0.001  # relative size of an adaptive ascent's first step

    def __post_init__(self) -> None:
        for key, value, known in (
            ("late", self.late, ("descend", "freeze", "redraw")),
            ("momentum", self.momentum, ("reset", "keep")),
            ("ascent", self.ascent, ("fixed", "adaptive")),
        ):
            if value not in known:
                raise unknown(f"value for {key}", str(value), known)
        if not 0 < self.share < 1:
            raise RequestError(f"share is {self.share}: above 0 and below 1, so that epochs are left to relearn")
        if self.scale != "auto" and (isinstance(self.scale, str) or self.scale <= 0):
            raise RequestError(f"scale is {self.scale}: it must be above 0, or auto")
        if self.rho <= 0:
            raise RequestError(f"rho is {self.rho}: it must be above 0")
        if self.rho > LARGEST:
            raise RequestError(f"rho is {self.rho}: it must be at most {LARGEST}")
        if self.target is not None and not 0 <= self.target < 1:
            raise RequestError(f"target is {self.target}: an accuracy from 0 to below 1")

    @property
    def forgets(self) -> frozenset[str]:  # type: ignore[override]
        """The climbing side, and the other one where it is re-drawn."""
        sides = {"late"} if self.reverse else {"early"}
        return frozenset(sides | ({"early", "late"} if self.late == "redraw" else set()))

    def refuses(self, problem: Problem) -> str:
        if self.ascent == "adaptive" and problem.target.kind != "classes":
            return "climbs until it is at chance, which these targets have none of: use ascent=fixed and a scale"
        return ""

    def begin(self, ctx: Context) -> None:
        clock = ctx.clock
        self.epochs = max(1, round(self.share * clock.epochs))  # k
        if clock.generations > 1 and self.epochs >= clock.epochs:
            raise RequestError(
                f"seal climbs for {self.epochs} of {clock.epochs} epochs and has none left to relearn: "
                "ask for more epochs or a smaller share"
            )
        early, late = ctx.partition.early, ctx.partition.late
        self.climbing, self.other = (late, early) if self.reverse else (early, late)
        waits = 1 if self.scale == "auto" else -1  # norms and biases have one dimension
        self.moving = [p for p in self.climbing.parameters if p.requires_grad and p.ndim > waits]
        if not self.moving:
            raise RequestError(
                f"all {'late' if self.reverse else 'early'} layers are frozen, and seal cannot climb with them: "
                "unfreeze some, or move the split"
            )
        split_groups(ctx.optimizer, ctx.partition)
        self.flips = "maximize" not in ctx.optimizer.defaults  # the optimiser cannot climb, so gradients turn
        self.factor = automatic_scale(ctx, self.epochs) if isinstance(self.scale, str) else self.scale  # S
        self.before: list[Tensor] | None = None  # the climbing weights, as they were where they began to climb
        self.step = self.rho
        self.start = 1.0  # training accuracy before this generation's forgetting began
        self.climbs = False  # now
        self.hastened = False  # in this ascent, by longer steps than S·η·∇J
        self.climbed = False  # in the epoch before this one, or in this one

    def begin_generation(self, ctx: Context) -> None:
        if ctx.clock.generation == 0:
            return
        if self.ascent == "adaptive" or self.scale == "auto":  # what a redraw forgets is forgotten too
            self.start = ctx.score(ctx.train, limit=1024).accuracy or 0.0
        if self.late == "redraw":
            ctx.redraw(self.other)
        self.turn_up(ctx)

    def begin_epoch(self, ctx: Context) -> None:
        self.climbed = self.climbs
        if self.climbs and ctx.clock.epoch == self.epochs:
            self.turn_down(ctx)

    def turn_up(self, ctx: Context) -> None:
        """The ascent begins."""
        self.climbs, self.step, self.hastened = True, self.rho, False
        self.before = [p.detach().clone() for p in self.moving]
        if self.momentum == "reset":
            reset_state(ctx.optimizer, self.climbing.parameters)
        if self.ascent == "adaptive":
            return
        groups = self.groups(ctx)
        if not self.flips:
            ascend(groups, self.factor)
        for group in groups:
            group["scale"] = self.factor
            if not self.decay and "weight_decay" in group:
                group["base_decay"], group["weight_decay"] = group["weight_decay"], 0.0

    def turn_down(self, ctx: Context) -> None:
        """The ascent ends; from here on everything descends."""
        self.climbs = False
        groups = self.groups(ctx)
        if not self.flips:
            descend(groups)
        for group in groups:
            group["scale"] = 1.0
            if "base_decay" in group:
                group["weight_decay"] = group.pop("base_decay")
        if self.momentum == "reset":
            reset_state(ctx.optimizer, self.climbing.parameters)
        assert self.before is not None
        ctx.log(ascent_cosine=cosine(self.before, self.moving))
        if self.ascent == "fixed":
            ctx.log(ascent_scale=self.factor)
        self.before = None
        log_forgetting(ctx)

    def groups(self, ctx: Context) -> list[dict[str, Any]]:
        """The climbing side's parameter groups (looked up each time: loading a checkpoint replaces them)."""
        side = "late" if self.reverse else "early"
        return [group for group in ctx.optimizer.param_groups if group.get("side") == side]

    def before_step(self, ctx: Context) -> None:
        if not self.climbs:
            return
        if self.scale == "auto":
            _leave_alone([p for p in self.climbing.parameters if p.ndim <= 1])
        if self.ascent == "fixed" and ctx.clock.generation == 1 and ctx.clock.epoch == ctx.clock.step == 0:
            self.foresee(ctx)
        if self.late == "freeze":
            _leave_alone(self.other.parameters)
        if self.ascent == "adaptive" or self.hastened:
            climb_sphere(self.climbing.parameters, self.step)
            _leave_alone(self.climbing.parameters)
        elif self.flips:
            torch._foreach_neg_([p.grad for p in self.climbing.parameters if p.grad is not None])

    def foresee(self, ctx: Context) -> None:
        """Say at its first step when an ascent will not get anywhere, even if all its steps were to agree."""
        if _normalises(ctx) or (self.scale == "auto" and ctx.target.kind == "classes"):
            return  # its steps are as long however small the gradient is, or will be hastened
        rate, momentum = _rate(ctx)
        pairs = [(p.detach(), p.grad) for p in self.climbing.parameters if p.grad is not None]
        slope = nn.utils.get_total_norm([g for _, g in pairs]) / nn.utils.get_total_norm([w for w, _ in pairs])
        moved = self.factor * rate * self.epochs * ctx.clock.steps / (1 - momentum) * float(slope)
        if moved < MOVED and ctx.engine.is_global_zero:
            warnings.warn(  # with no number of this run, so that a comparison says it once
                f"seal's ascent of {self.epochs * ctx.clock.steps} steps will move its layers by less than "
                f"{100 * MOVED:g} % of their size, and forget nothing: at scale={self.factor:g} the steps are too few; "
                + ("scale=auto climbs until the layers have turned, " if self.scale != "auto" else "")
                + "ascent=adaptive climbs until they have forgotten",
                stacklevel=2,
            )

    def end_step(self, ctx: Context) -> None:
        if not self.climbs or (self.ascent == "fixed" and self.scale != "auto"):
            return
        total = self.epochs * ctx.clock.steps
        done = ctx.clock.epoch * ctx.clock.steps + ctx.clock.step + 1
        if self.ascent == "fixed":
            assert self.before is not None
            every = max(1, total // LOOKS)
            check = max(1, total // CHECKS) // every * every
            if done % every:
                return
            turned = cosine(self.before, self.moving)
            if turned <= TURNED:
                ctx.log(ascent_steps=done)
                self.turn_down(ctx)
            elif 2 * done >= total > done and done % check == 0 and ctx.target.kind == "classes":
                self.hasten(ctx, turned, done, total)
            return
        if done % max(1, total // CHECKS):
            return
        target = 1 / ctx.target.outputs if self.target is None else self.target
        accuracy = ctx.score(ctx.train, limit=1024).accuracy or 0.0
        if accuracy <= target:
            ctx.log(ascent_steps=done)
            self.turn_down(ctx)
        elif accuracy > self.start + (target - self.start) * min(1.0, done / (SLACK * total)):
            self.step = min(2 * self.step, LARGEST)
        else:
            self.step /= 2

    def hasten(self, ctx: Context, turned: float, done: int, total: int) -> None:
        """See that the latter half of an automatic ascent forgets, and end it there if it had to be hastened."""
        accuracy = ctx.score(ctx.train, limit=1024).accuracy or 0.0
        if accuracy > self.start - FORGOTTEN:
            missing = math.acos(TURNED) - math.acos(min(1.0, turned))
            self.hastened, self.step = True, 2 * missing / max(2, total - done)  # steps do not all agree
        elif self.hastened:
            ctx.log(ascent_steps=done)
            self.turn_down(ctx)

    def end_epoch(self, ctx: Context) -> None:
        ctx.log(phase="ascent" if self.climbs else "descent")

    def disturbed(self, ctx: Context) -> bool:
        return self.climbs

    def explain(self, ctx: Context) -> str:
        if not (self.climbs or self.climbed):  # the last step of an ascent shows in the next epoch's loss only
            return ""
        return "the ascent diverged: give it a smaller scale or a smaller share, or ascent=adaptive"

    def state_dict(self) -> dict[str, Any]:
        flags = {"climbs": self.climbs, "climbed": self.climbed, "hastened": self.hastened}
        return {"step": self.step, "start": self.start, "before": self.before} | flags

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.step, self.start = state["step"], state["start"]
        before = state["before"]
        self.before = before and [old.to(p.device) for old, p in zip(before, self.moving, strict=True)]
        self.climbs, self.climbed, self.hastened = state["climbs"], state["climbed"], state["hastened"]


def automatic_scale(ctx: Context, epochs: int) -> float:
    """The S with which an ascent of so many epochs has the paper's S·η·steps/(1 − μ), at most 4.

    That product is of SGD. Adam's steps have the length η whatever the gradient's: there S is 1.
    """
    if _normalises(ctx):
        return 1.0
    rate, momentum = _rate(ctx)
    return min(FASTEST, PAPERS * (1 - momentum) / (rate * epochs * ctx.clock.steps))


def _normalises(ctx: Context) -> bool:
    """Whether the optimiser's steps do not go by the gradient's length: Adam, RMSprop and their kind."""
    return bool({"betas", "eps", "etas"} & ctx.optimizer.defaults.keys())


def _rate(ctx: Context) -> tuple[float, float]:
    """The initial learning rate and the momentum."""
    group = ctx.optimizer.param_groups[0]
    return group["base_lr"], group.get("momentum", 0.0)


def cosine(first: Sequence[Tensor], second: Sequence[Tensor]) -> float:
    """Of the angle between two sets of weights, as two long vectors."""
    one, other = (torch.cat([w.detach().flatten().double() for w in each]) for each in (first, second))
    return float(torch.nn.functional.cosine_similarity(one, other, dim=0))


@torch.no_grad()
def climb_sphere(parameters: list[nn.Parameter], rho: float) -> None:
    """One step of relative size ρ up each tensor's gradient, back onto the sphere of its norm.

    w ← ‖w‖ · u/‖u‖ with u = w + ρ·‖w‖·g/‖g‖. Tensors of norm 0 stay where they are.
    """
    pairs = [(p.detach(), p.grad) for p in parameters if p.grad is not None]
    weights, gradients = [w for w, _ in pairs], [g for _, g in pairs]
    norms = torch._foreach_norm(weights)
    lengths = torch._foreach_norm(gradients)
    torch._foreach_clamp_min_(lengths, 1e-30)
    steps = list(torch._foreach_div(norms, lengths))
    torch._foreach_mul_(steps, rho)
    torch._foreach_addcmul_(weights, gradients, steps)
    grown = torch._foreach_norm(weights)
    torch._foreach_clamp_min_(grown, 1e-30)
    torch._foreach_mul_(weights, list(torch._foreach_div(norms, grown)))


def _leave_alone(parameters: list[nn.Parameter]) -> None:
    """Without a gradient the optimiser passes over a parameter: weight, momentum and decay stay."""
    for p in parameters:
        p.grad = None
