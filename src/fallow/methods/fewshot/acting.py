"""What meta-learners of policies share: act, adapt, act again; a surrogate of what they gain; returns as score."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from fallow.adaptation.learner import Judged, Learner
from fallow.adaptation.objective import Params
from fallow.base.errors import RequestError
from fallow.base.numbers import is_whole
from fallow.control.adapting import Acting, adapting, outputs
from fallow.control.advantage import advantages
from fallow.control.policy import divergence, metric
from fallow.control.surrogate import judged, policy_gradient, surrogate
from fallow.core.context import Context
from fallow.data.environments import Drawn, Environment, Trajectories
from fallow.evaluate.score import Score
from fallow.methods.fewshot.fewshot import FewShotMethod
from fallow.methods.fewshot.piece import Piece

if TYPE_CHECKING:
    from fallow.core.settings import Settings
    from fallow.problems import Problem

ROLES = ("", "attenuator", "learned_rates")  # of pieces that an inner loop of policies knows
Support = tuple[Tensor, Tensor]  # observations and judged actions


class Met(NamedTuple):
    """A meta-batch as it was lived through: what was seen before each inner step, and by the adapted policies."""

    tasks: Tensor
    supports: list[Support]
    query: Support
    old: Tensor  # the adapted policies' output where they acted
    before: Tensor  # mean return of every task, before the inner loop and after it
    after: Tensor

    def thinned(self, every: int) -> Met:
        """The same with the states of every so many steps alone."""
        supports = [(x[:, ::every], y[:, ::every]) for x, y in self.supports]
        x, y = self.query
        return self._replace(supports=supports, query=(x[:, ::every], y[:, ::every]), old=self.old[:, ::every])


@dataclass(eq=False)
class ActingMAML(FewShotMethod):
    """An initialisation from which a few policy-gradient steps, each on fresh trajectories, learn a task::

        θ_i = θ_{i−1} − α ∇L_i(θ_{i−1}),  L_i = −mean log π(a|s)·A over trajectories of π_{θ_{i−1}},  i = 1 … steps

    Advantages are generalised ones over a linear baseline, fitted to every task's trajectories. How θ itself is moved
    by what the adapted policies meet is what subclasses say. ``order`` 1 drops second derivatives.
    """

    control = True
    exclusive = ("which steps' losses count",)  # the last one's: there are no others to act by

    steps: int = 1
    rate: float = 0.1  # α
    order: int = 2
    discount: float = 0.99  # γ of returns
    decay: float = 1.0  # λ of generalised advantages
    evaluate_steps: int | None = None  # None: as in training

    def __post_init__(self) -> None:
        for key in ("steps", "evaluate_steps"):
            value = getattr(self, key)
            if value is not None and (not is_whole(value, 1)):
                raise RequestError(f"{key} is {value}: it must be a whole number from 1")
        if not 0 < self.rate < math.inf:
            raise RequestError(f"rate is {self.rate}: it must be above 0")
        if self.order not in (1, 2):
            raise RequestError(f"order is {self.order}: it must be 1 or 2")
        for key in ("discount", "decay"):
            if not 0 <= getattr(self, key) <= 1:
                raise RequestError(f"{key} is {getattr(self, key)}: it must be from 0 to 1")

    def refuses(self, problem: Problem) -> str:
        if not isinstance(problem.data, Environment):
            return "learns to act: it needs an environment, like navigation; take maml for examples"
        return ""

    def arrange(self, settings: Settings, problem: Problem) -> Settings:
        if settings.accumulate > 1:
            raise RequestError("trajectories of a meta-batch are learned from at once: leave accumulate out")
        return settings

    def begin(self, ctx: Context) -> None:
        pieces = [part for part in ctx.method.parts if isinstance(part, Piece)]
        for piece in pieces:
            if piece.role not in ROLES or type(piece).weights is not Piece.weights:
                raise RequestError(f"{piece.name} is for tasks of examples: it has no part in learning to act")
        self.environment: Environment = ctx.data
        x = torch.zeros(2, *self.environment.shape, device=ctx.device, dtype=ctx.train.kind)
        try:
            ctx.model(x)
        except (RuntimeError, IndexError, TypeError, AttributeError, ValueError) as error:
            why = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise RequestError(f"the model cannot take observations of shape {tuple(x.shape[1:])}: {why}") from error
        self.learner = Learner(ctx.model, policy_gradient, steps=self.steps, rate=self.rate, pieces=pieces)
        own = [p for name, child in self.learner.named_children() if name != "model" for p in child.parameters()]
        if own:
            first = ctx.optimizer.param_groups[0]
            ctx.optimizer.add_param_group({"params": own, "weight_decay": 0.0, "base_lr": first["base_lr"]})
        self.met: Met | None = None
        self.noted: dict[str, list[float]] = {}  # of this epoch's iterations

    # ---- living through tasks -------------------------------------------------------------------------

    def stream(self, ctx: Context) -> Iterable[Any]:
        """Meta-batches as the present policy lives through them."""
        for drawn in ctx.batches():
            yield self.live(drawn)  # type: ignore[arg-type]

    def live(self, drawn: Drawn) -> Met:
        """Act, learn, act again: what all tasks' policies met before every inner step and after the last."""
        lived = self.lived(self.environment, drawn, self.steps)
        seen, learned = zip(*lived, strict=True)
        old = seen[-1].outputs.flatten(1, 2)
        return Met(drawn.tasks, list(learned[:-1]), learned[-1], old, seen[0].returns, seen[-1].returns)

    @torch.no_grad()
    def lived(self, environment: Environment, drawn: Drawn, steps: int) -> list[tuple[Trajectories, Support]]:
        """The trajectories of the initial policy and those after each inner step, and what can be learned from them."""
        found: list[tuple[Trajectories, Support]] = []

        def experience(step: int, params: Params) -> Support:
            seen = environment.rollout(Acting(self.learner, params), drawn, step)
            if not torch.isfinite(metric(seen.outputs, seen.outputs)).all():  # means, deviations, or one over them
                why = f"lower its rate ({self.rate:g})" if step else "look at the weights that it starts from"
                raise RequestError(f"policies have no finite density after {step} inner steps: {why}")
            found.append((seen, judged(seen, advantages(seen, self.discount, self.decay))))
            return found[-1][1]

        *_, last = adapting(self.learner, self.learner.meta(), len(drawn.tasks), experience, steps=steps)
        experience(steps, last)
        return found

    def again(self, met: Met, order: int) -> Tensor:
        """The output of the adapted policies where they acted, as a function of what is learned across tasks."""
        *_, params = adapting(
            self.learner, self.learner.meta(), len(met.tasks), lambda step, _: met.supports[step],
            steps=self.steps, order=order,
        )  # fmt: skip
        return outputs(self.learner, params, met.query[0])

    # ---- what the loop asks ---------------------------------------------------------------------------

    def loss(self, ctx: Context, batch: Any) -> Tensor:
        """The surrogate of the adapted policies, through the inner loop."""
        self.met = batch
        return self.surrogate(self.again(batch, self.order), batch).mean()

    def surrogate(self, output: Tensor, met: Met) -> Tensor:
        """What the adapted policies lose, near those that acted, in each task."""
        return surrogate(output, met.query[1], met.old)

    @torch.no_grad()
    def measure(self, ctx: Context) -> tuple[float, float]:
        """Surrogate and mean KL divergence of the adapted policies at the present parameters, over all processes."""
        met = self.met
        assert met is not None
        output = self.again(met, 1)
        found = torch.stack([self.surrogate(output, met).mean(), divergence(met.old, output).mean()])
        share = ctx.train.share(ctx.clock.step)
        loss, kl = ctx.engine.all_reduce(found.double() * share, reduce_op="mean").tolist()
        return loss, kl

    def note(self, **values: float) -> None:
        """Keep numbers of this iteration; the epoch's record has their means."""
        for name, value in values.items():
            self.noted.setdefault(name, []).append(value)

    def outcome(self, ctx: Context) -> Tensor:
        """What an iteration is recorded by: minus the return after adaptation; the one before is noted."""
        assert self.met is not None
        share = ctx.train.share(ctx.clock.step)
        both = torch.stack([self.met.before.mean(), self.met.after.mean()]).double() * share
        before, after = ctx.engine.all_reduce(both, reduce_op="mean")
        self.note(train_return_before=float(before), train_return=float(after))
        return -after

    def end_epoch(self, ctx: Context) -> None:
        ctx.log(**{name: math.fsum(values) / len(values) for name, values in self.noted.items()})
        self.noted = {}

    # ---- evaluation -----------------------------------------------------------------------------------

    def judge(self, ctx: Context, batch: Any, *, alone: bool = False) -> Judged:
        return Judged(-self.returns(self.environment, batch, self.evaluate_steps or self.steps), None)

    def returns(self, environment: Environment, drawn: Drawn, steps: int) -> Tensor:
        """Mean returns of tasks before the inner loop and after each of its steps (steps + 1, tasks)."""
        return torch.stack([seen.returns for seen, _ in self.lived(environment, drawn, steps)])

    def score(self, ctx: Context, stream: Any, limit: int | None = None) -> Score:
        """Minus the mean return over the stream's tasks after adaptation, as loss; and the return itself."""
        found = super().score(ctx, stream, limit)
        return found._replace(metrics={"return": -found.loss})

    def evaluated(self, ctx: Context) -> nn.Module:
        return self.learner

    def state_dict(self) -> dict[str, Any]:
        own = {k: v for k, v in self.learner.state_dict().items() if not k.startswith("model.")}
        return {"own": own, "noted": self.noted}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.learner.load_state_dict(state["own"], strict=False)
        self.noted = state["noted"]
