"""LEO: latent embedding optimisation on fixed features (Rusu et al. 2019)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from fallow.adaptation.attenuation import Attenuator
from fallow.adaptation.features import Features
from fallow.adaptation.latent import LatentLearner, LEONetwork, logits_of, losses_of
from fallow.adaptation.learner import Judged
from fallow.base.errors import RequestError
from fallow.base.numbers import require_whole
from fallow.base.seeds import mix
from fallow.core.context import Context
from fallow.methods.fewshot.fewshot import INNER, FewShotMethod
from fallow.methods.fewshot.l2f import L2F
from fallow.weights.layers import untouched

if TYPE_CHECKING:
    from fallow.problems import Problem

NOISE = 9  # names the random stream of its codes


@dataclass(eq=False)
class LEO(FewShotMethod):
    """A classifier is decoded from a code of ``latent`` numbers a class, and the inner loop moves the code::

        z ← z − α ∇_z L_support(decode(z)),  then the decoded weights themselves;  α and α' are learned

    The network's body stays as it is: its features are computed once, so that it must have learned before, as
    ``baseline`` or ``protonet`` teaches one. The meta-loss adds ``kl``·KL(z‖N(0, I)), ``drift``·‖z' − z‖² (what the
    encoder should have said), ``decay``·‖φ‖² and ``orthogonality`` of the decoder (Rusu et al. 2019, algorithm 1 and
    section 2.3).
    """

    name = "leo"
    summary = "a classifier of fixed features is decoded from a latent code, which the inner loop moves"
    pretrained = True
    exclusive = INNER  # not where a task starts from: L2F has a part in it

    latent: int = 64
    steps: int = 5  # in the latent codes
    tuning_steps: int = 5  # in the decoded weights
    rate: float = 1.0  # α, where it starts
    tuning_rate: float = 0.001  # α', where it starts
    kl: float = 1e-3
    drift: float = 1e-9
    decay: float = 1e-8
    orthogonality: float = 0.1

    def __post_init__(self) -> None:
        for name, least in (("latent", 1), ("steps", 0), ("tuning_steps", 0)):
            require_whole(name, getattr(self, name), least)
        for name in ("rate", "tuning_rate", "kl", "drift", "decay", "orthogonality"):
            if not 0 <= getattr(self, name) < math.inf:
                raise RequestError(f"{name} is {getattr(self, name)}: it must be 0 or above")

    def refuses(self, problem: Problem) -> str:
        if problem.target.kind != "classes":
            return "decodes classifiers: regression has no classes; take maml or l2f"
        return ""

    def begin(self, ctx: Context) -> None:
        tasks = ctx.data
        if tasks.train_ways not in (None, tasks.ways):
            raise RequestError(f"leo learns tasks of {tasks.ways} classes: train_ways is another number")
        features = Features(ctx.model)
        self.try_out(ctx, features)
        kind = next(ctx.model.parameters()).dtype
        with untouched(ctx.model), torch.no_grad():
            ctx.model.eval()
            fixed = tasks.embedded(lambda x: features(x.to(ctx.device, kind)).cpu())
        for stream in filter(None, (ctx.train, ctx.val, ctx.test)):
            stream.tasks = fixed
        net = LEONetwork(features.width, self.latent, self.rate, self.tuning_rate)
        attenuators = [self.attenuator(ctx, count) for count in (self.latent, features.width)]
        self.learner = LatentLearner(
            net, ways=tasks.ways, steps=self.steps, tuning_steps=self.tuning_steps, of_codes=attenuators[0],
            of_weights=attenuators[1],
        ).to(ctx.device, kind)  # fmt: skip
        self.kept = Kept(ctx.model, self.learner)
        self.at, self.given = -1, 0  # the step, and to how many of its tasks noise was given
        first = ctx.optimizer.param_groups[0]
        own = [p for p in self.learner.parameters() if p.requires_grad]
        ctx.optimizer.add_param_group({"params": own, "weight_decay": 0.0, "base_lr": first["base_lr"]})

    def attenuator(self, ctx: Context, count: int) -> Attenuator | None:
        """L2F's g_φ for a code or a classifier of ``count`` dimensions, if L2F is there."""
        for part in ctx.method.parts:
            if isinstance(part, L2F):
                each = {str(i): i for i in range(count)}
                return Attenuator(each, part.depth, part.hidden, part.start, constant=part.gamma == "constant")
        return None

    def noise(self, ctx: Context, tasks: int) -> tuple[Tensor, Tensor]:
        """What codes and classifiers are drawn with: of the whole meta-batch, whichever process has the task."""
        draw = torch.Generator().manual_seed(mix(ctx.settings.seed, NOISE, ctx.clock.step_index))
        net, ways, whole = self.learner.net, self.learner.ways, ctx.settings.batch_size
        first, last = ctx.train.mine(whole)
        if self.at != ctx.clock.step_index:
            self.at, self.given = ctx.clock.step_index, 0
        first += self.given % (last - first)  # micro-batches have tasks of their own
        self.given += tasks
        shapes = ((ways, net.latent), (self.steps + 1, ways, net.width))
        drawn = [
            torch.randn(whole, *shape, generator=draw, dtype=torch.float32)[first : first + tasks].to(
                ctx.device, net.encoder.weight.dtype
            )
            for shape in shapes
        ]
        return drawn[0], drawn[1]

    def loss(self, ctx: Context, batch: Any) -> Tensor:
        x, y, query_x, query_y = batch
        x, query_x = functional.normalize(x, dim=-1), functional.normalize(query_x, dim=-1)
        w = self.learner.path(x, y, self.noise(ctx, len(x)))[-1]
        assert self.learner.codes is not None
        mean, std, first, last = self.learner.codes
        # of N(μ, σ²) and N(0, I), summed over the dimensions of a code
        divergence = 0.5 * (mean.square() + std.square() - 1 - 2 * std.log()).sum(-1).mean()
        drift = (last.detach() - first).square().sum(-1).mean()
        net = self.learner.net
        sizes = torch.stack([p.square().sum() for part in (net.encoder, net.relation, net.decoder)
                             for p in part.parameters()]).sum()  # fmt: skip
        penalties = self.kl * divergence + self.drift * drift + self.decay * sizes
        return losses_of(query_x, query_y, w).mean() + penalties + self.orthogonality * net.orthogonality()

    def judge(self, ctx: Context, batch: Any, *, alone: bool = False) -> Judged:
        x, y, query_x, query_y = batch
        x, query_x = functional.normalize(x, dim=-1), functional.normalize(query_x, dim=-1)
        with torch.no_grad():
            each = self.learner.path(x, y)
            losses = torch.stack([losses_of(query_x, query_y, w) for w in each])
            right = [(logits_of(query_x, w).argmax(-1) == query_y).float().mean(-1) for w in each]
        return Judged(losses, torch.stack(right))

    def evaluated(self, ctx: Context) -> nn.Module:
        return self.kept

    def state_dict(self) -> dict[str, Any]:
        return {"learner": self.learner.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.learner.load_state_dict(state["learner"])


class Kept(nn.Module):
    """What a run keeps: the network whose features it learned on, and the learner."""

    def __init__(self, model: nn.Module, learner: LatentLearner) -> None:
        super().__init__()
        self.model, self.learner = model, learner
