"""FixMatch: few labels, many images (Sohn et al. 2020)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from fallow.base.errors import RequestError
from fallow.base.numbers import is_whole
from fallow.core.context import Batch, Context
from fallow.core.method import Cost, Method
from fallow.core.ranges import choice, log
from fallow.core.settings import Settings
from fallow.data import FOREIGN, UNKNOWN
from fallow.data.augment import apply, draw, resolve
from fallow.data.batching import UNLABELLED, VIEWS, Batching, generator
from fallow.data.normalise import normalise
from fallow.data.strong import apply_strong, draw_strong
from fallow.methods.averaging import Averaging
from fallow.weights import exempt

if TYPE_CHECKING:
    from fallow.data.stream import Stream
    from fallow.problems import Problem


@dataclass(eq=False)
class FixMatch(Method):
    """What the network is sure of on a weakly augmented image, it must also say of the strongly augmented one.

    Sohn et al. 2020, equations 3 and 4::

        L = L_s(D) + λ_u · mean over all u of 1(max q_u ≥ τ) · H(argmax q_u, f(A(u))),    q_u = f(α(u))

    q is of the live model and without a gradient; unsure images count in the mean with 0. Every labelled example
    brings μ unlabelled images. What is evaluated is a moving average of the weights. Biases and norms do not decay,
    and where the training's schedule is the cosine, the rate follows cos(7πk/16K).

    With batch norms all three kinds of images pass together and are normalised together, as in the paper; without
    them the weak ones pass on their own, without a graph, which gives the same in two thirds of the time.
    """

    name = "fixmatch"
    summary = "learns from unlabelled images too: a confident answer on a weak view must hold on a strong one"
    semi = True
    ranges: ClassVar = {"threshold": choice(0.8, 0.9, 0.95), "weight": log(0.3, 3.0)}

    threshold: float = 0.95  # τ
    weight: float = 1.0  # λ_u
    ratio: int = 7  # μ
    steps: int = 0  # in an epoch; 0: as many as show each unlabelled image once
    decay: float = 0.999  # of the moving average
    nesterov: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.threshold <= 1:
            raise RequestError(f"threshold is {self.threshold}: it must be from 0 to 1")
        if self.weight < 0:
            raise RequestError(f"weight is {self.weight}: it must be 0 or above")
        if not 0 <= self.decay < 1:
            raise RequestError(f"decay is {self.decay}: it must be from 0 to below 1")
        for key, least in (("ratio", 1), ("steps", 0)):
            value = getattr(self, key)
            if not is_whole(value, least):
                raise RequestError(f"{key} is {value}: it must be a whole number from {least}")

    @property
    def cost(self) -> Cost:  # type: ignore[override]
        """In labelled batches: every example brings μ weak and μ strong views."""
        return Cost(beside=2 * self.ratio)

    def refuses(self, problem: Problem) -> str:
        data = problem.data
        if problem.target.kind != "classes":
            return f"gives unlabelled images the likeliest class, and these are {problem.target.kind}"
        if data.unlabelled is None or len(data.unlabelled) == 0:
            return (
                "learns from unlabelled images, and this data has none: take fallow semi DATA --labels N, "
                "or fallow.data.budget, which keep some labels and make the rest unlabelled"
            )
        if not data.pictures:
            return "augments images, grey or in colours, and these examples are none"
        return ""

    def arrange(self, settings: Settings, problem: Problem) -> Settings:
        """Weak augmentation, and FixMatch's own end of the cosine."""
        schedule = "cosine-7/16" if settings.schedule == "cosine" else settings.schedule
        return replace(settings, augment=weak_policy(settings.augment, problem.data.shape), schedule=schedule)

    def steps_of(self, train: Stream, problem: Problem) -> int:
        """As many as show each unlabelled image once, but all labelled ones at least, where nobody says."""
        per_step = self.ratio * len(problem.data.train) / train.steps  # unlabelled images
        return self.steps or max(train.steps, round(len(problem.data.unlabelled) / per_step))

    def begin(self, ctx: Context) -> None:
        data = ctx.data
        self.policy = ctx.settings.augment
        self.plan_ = Batching(len(data.train), ctx.settings.batch_size, ctx.engine.global_rank, ctx.engine.world_size)
        self.kind = next(ctx.model.parameters()).dtype
        self.images = data.unlabelled.x.to(ctx.device)
        self.origin = data.unlabelled.y.to(ctx.device)  # to look at what happens, never to learn from
        self.known = bool((data.unlabelled.y != UNKNOWN).any())
        self.mean, self.std = (None if t is None else t.to(ctx.device) for t in (data.mean, data.std))
        self.together = any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in ctx.model.modules())
        exempt(ctx.optimizer)
        for group in ctx.optimizer.param_groups:
            if group.get("momentum") and "nesterov" in group:
                group["nesterov"] = self.nesterov
        self.average = Averaging()
        self.average.begin(ctx)
        self.counts = torch.zeros(4, device=ctx.device)  # of unlabelled images in this epoch, see `count`

    def stream(self, ctx: Context) -> Iterator[Batch]:
        """(x, y, weak views, strong views, which): of n × μ images, μ for each of the n labelled examples."""
        steps, epoch = ctx.train.steps, ctx.clock.epoch_index
        passes = -(-ctx.clock.steps // steps)  # over the labelled examples, in an epoch
        order = self.order(ctx.settings.seed, epoch, passes)
        step = ctx.clock.step
        while step < ctx.clock.steps:
            number, first = divmod(step, steps)
            for x, y in ctx.train.epoch(epoch * passes + number, start=first):
                yield x, y, *self.views(ctx.settings.seed, epoch, step, order)
                step += 1
                if step == ctx.clock.steps:
                    return

    def order(self, seed: int, epoch: int, passes: int) -> Tensor:
        """The unlabelled images of an epoch: shuffled, and again when all have been shown."""
        source, n = generator(seed, epoch, UNLABELLED), len(self.images)
        wanted = passes * self.plan_.n * self.ratio
        return torch.cat([torch.randperm(n, generator=source) for _ in range(-(-wanted // n))])

    def views(self, seed: int, epoch: int, step: int, order: Tensor) -> tuple[Tensor, ...]:
        """Weak and strong views of this process's images in a step, drawn for all processes; and which they are."""
        number, inner = divmod(step, self.plan_.steps)
        (begin, end), (first, last) = self.plan_.batch(inner), self.plan_.mine(inner)
        start, shape = number * self.plan_.n, tuple(self.images.shape[1:])
        chosen = order[(start + first) * self.ratio : (start + last) * self.ratio].to(self.images.device)
        mine = slice((first - begin) * self.ratio, (last - begin) * self.ratio)
        n, source = (end - begin) * self.ratio, generator(seed, epoch, VIEWS, step)
        x = self.images.index_select(0, chosen)
        weak = apply(x, draw(n, shape, self.policy, source)[mine])
        strong = apply(x, draw(n, shape, self.policy, source)[mine])
        strong = apply_strong(strong, draw_strong(n, shape, source)[mine])
        weak, strong = (normalise(view, self.mean, self.std).to(self.kind) for view in (weak, strong))
        weak, strong, chosen = (tensor.unflatten(0, (-1, self.ratio)) for tensor in (weak, strong, chosen))
        return weak, strong, chosen

    def loss(self, ctx: Context, batch: Batch) -> Tensor:
        """The loss; of a batch without unlabelled images (another method may ask) the supervised part."""
        if len(batch) == 2:
            return ctx.plain_loss(ctx.predict(batch[0]), batch[1])
        x, y = batch[:2]
        weak, strong, which = (tensor.flatten(0, 1) for tensor in batch[2:])
        labelled, on_weak, on_strong = self.outputs(ctx, x, weak, strong)
        ctx.spend(2 * self.ratio)
        label, sure = pseudo_labels(on_weak, self.threshold)
        losses = functional.cross_entropy(on_strong, label, reduction="none") * sure
        self.count(label, sure, which)
        # no label smoothing: the confidence could not reach the threshold
        return ctx.plain_loss(labelled, y) + self.weight * (self.weights(ctx, weak, which) * losses).mean()

    def weights(self, ctx: Context, weak: Tensor, which: Tensor) -> Tensor | float:
        """What the losses of the unlabelled images are multiplied by."""
        return 1.0

    def count(self, label: Tensor, sure: Tensor, which: Tensor) -> None:
        """For the record: all images, the sure ones, and of these those that are foreign and those that are right."""
        origin = self.origin[which]
        told = torch.stack([torch.ones_like(sure), sure, sure * (origin == FOREIGN), sure * (origin == label)])
        self.counts += told.sum(1)

    def outputs(self, ctx: Context, x: Tensor, weak: Tensor, strong: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The outputs for labelled, weak and strong images."""
        if self.together:
            labelled, on_weak, on_strong = ctx.predict(torch.cat([x, weak, strong])).split([len(x), *[len(weak)] * 2])
        else:
            with torch.no_grad():
                on_weak = ctx.model(weak)
            labelled, on_strong = ctx.predict(torch.cat([x, strong])).split([len(x), len(strong)])
        ctx.output = labelled  # what penalties look at
        return labelled, on_weak, on_strong

    def begin_generation(self, ctx: Context) -> None:
        self.average.begin_generation(ctx)

    def end_step(self, ctx: Context) -> None:
        if not ctx.disturbed:
            t = self.average.count
            self.average.take(1 - min(self.decay, t / (t + 9)))  # at first about the last tenth of the steps

    def end_epoch(self, ctx: Context) -> None:
        self.average.end_epoch(ctx)
        seen, sure, foreign, right = ctx.engine.all_reduce(self.counts.clone(), reduce_op="sum").tolist()
        self.counts.zero_()
        if seen:
            ctx.log(confident=sure / seen)
        if sure and self.known:
            ctx.log(confident_right=right / sure, confident_foreign=foreign / sure)

    def evaluated(self, ctx: Context) -> nn.Module:
        return self.average.evaluated(ctx)

    def end(self, ctx: Context) -> None:
        self.average.end(ctx)

    def state_dict(self) -> dict[str, Any]:
        return {"average": self.average.state_dict(), "counts": self.counts}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.average.load_state_dict(state["average"])
        self.counts.copy_(state["counts"])


@torch.no_grad()
def pseudo_labels(output: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    """The most likely class of each image, and 1 where it is at least that likely, else 0.

    >>> pseudo_labels(torch.tensor([[4.0, 0.0], [0.0, 1.0]]), 0.95)
    (tensor([0, 1]), tensor([1., 0.]))
    """
    probability, label = output.softmax(1).max(1)
    return label, (probability >= threshold).to(output.dtype)


def weak_policy(policy: str, shape: tuple[int, ...]) -> str:
    """The weak augmentation: what the training asks for; "auto" shifts, and mirrors nothing unless asked.

    >>> weak_policy("auto", (3, 32, 32)), weak_policy("flip+reflect", (1, 28, 28))
    ('reflect', 'flip+reflect')
    """
    return "reflect" if policy == "auto" else resolve(policy, shape)
