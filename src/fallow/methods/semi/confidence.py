"""The Confidence Network: FixMatch that learns which unlabelled images to trust (Rezk 2021, chapter 5)."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fallow.base.errors import RequestError, unknown
from fallow.base.numbers import is_whole
from fallow.base.seeds import mix
from fallow.core.context import Batch, Context
from fallow.data import FOREIGN
from fallow.data.augment import augment
from fallow.data.batching import generator
from fallow.data.normalise import normalise
from fallow.evaluate.separation import auroc
from fallow.hypergradients.inner import Inner
from fallow.hypergradients.products import flat, shaped
from fallow.hypergradients.solvers import CG, Identity
from fallow.methods.losses import as_evaluated
from fallow.methods.semi.fixmatch import FixMatch
from fallow.methods.semi.network import Confidence, Shared, build, find_head
from fallow.methods.semi.signal import cosines, slopes

CHOICES = {
    "form": ("cosine", "centred", "plain"),
    "source": ("learned", "frozen", "untrained", "oracle", "zero"),
    "signal": ("real", "shuffled", "constant"),
    "solver": ("identity", "cg"),
}
VALIDATION = 512  # labels in a meta-update
PROBE = 1000  # unlabelled images to look at after an epoch
META, LOOK = 6, 7  # name random streams


@dataclass(eq=False)
class ConfidenceNetwork(FixMatch):
    """A second network weighs the unlabelled losses, and descends the validation loss (Rezk 2021, equations 5.1, 5.2)::

        min_ω L_V(θ*(ω)),    θ*(ω) = argmin_θ L_s(D) + λ_u · mean_u C(α(u); ω) · L_u(u)

    After ``warmup`` steps with all weights 1, a meta-update follows every ``every`` steps (equation 5.7)::

        dL_V/dω = mean_u ∂C(α(u))/∂ω · s_u,    s_u = −1(u is sure) · ⟨(H + ρI)⁻¹ ∂L_V/∂θ, ∂L_u/∂θ⟩

    with H the identity, or by damped CG. ``form`` says what is made of it:

    - plain: this as it is, as in the thesis: C is free, and runs away or collapses;
    - centred: C is between 0 and 2; s is standardised over the sure images of the batch, so that only the difference
      between them counts; and (mean C − 1)² over these is added;
    - cosine: besides, s is the cosine of the two gradients, of the last layer's weights: what an image's gradient says
      and not how long it is.

    ω is kept where the validation loss was lowest after an epoch. Weights that run away end the meta-updates, with a
    warning, and the best ω is used from there on.

    The other settings are controls: what a learned weight must be compared with.
    """

    name = "confidence"
    summary = "fixmatch with a second network that learns which unlabelled images to trust"

    form: str = "cosine"  # or "centred", or "plain" as in the thesis
    network: str = ""  # a model's name; "": the classifier's kind; "shared": a small head on the classifier's trunk
    warmup: int = 100  # steps before the first meta-update
    every: int = 2  # steps between two
    rate: float = 1e-3  # the learning rate of ω
    anchor: float = 1.0  # how strongly the mean weight is held at 1
    solver: str = "identity"  # or "cg"
    products: int = 5  # with the Hessian, of "cg"
    limit: float = 10.0  # a mean weight further from 1 than this has run away
    signal: str = "real"  # control: "shuffled" over the images, or "constant"
    source: str = "learned"  # control: "frozen" (from file), "untrained", "oracle", or "zero" after the warm-up
    file: str = ""  # of a frozen network

    def __post_init__(self) -> None:
        super().__post_init__()
        for key, known in CHOICES.items():
            if getattr(self, key) not in known:
                raise unknown(f"value for {key}", getattr(self, key), known)
        for key, least in (("warmup", 0), ("every", 1), ("products", 1)):
            value = getattr(self, key)
            if not is_whole(value, least):
                raise RequestError(f"{key} is {value}: it must be a whole number from {least}")
        for key in ("rate", "limit"):
            if not 0 < getattr(self, key) < math.inf:
                raise RequestError(f"{key} is {getattr(self, key)}: it must be above 0")
        if self.anchor < 0:
            raise RequestError(f"anchor is {self.anchor}: it must be 0 or above")
        if self.form == "cosine" and self.solver == "cg":
            raise RequestError("solver=cg needs the gradients of all weights: it goes with form=centred or form=plain")
        if (self.source == "frozen") != bool(self.file):
            raise RequestError("source=frozen and file=… go together: the network of an earlier run")

    @property
    def learns(self) -> bool:
        """Whether there are meta-updates."""
        return self.source == "learned"

    @property
    def networks(self) -> tuple[str, ...]:
        return () if self.network in ("", "shared") else (self.network,)

    def begin(self, ctx: Context) -> None:
        super().begin(ctx)
        if self.learns and ctx.val is None:
            raise RequestError("confidence learns on validation labels, and there are none: give val above 0")
        if self.source == "oracle" and not (self.origin == FOREIGN).any():
            raise RequestError(
                "source=oracle knows foreign images, and there are none: mix some in by fallow.data.mix_in"
            )
        body = build(self.network, ctx.model, ctx.initialiser, ctx.data.shape, mix(ctx.settings.seed, META))
        bounded, even = self.form != "plain", self.source != "untrained"
        self.confidence = Confidence(body, bounded=bounded, even=even).to(ctx.device, self.kind).eval()
        if self.source == "frozen":
            load(self.confidence, Path(self.file))
        trained = [p for p in self.confidence.parameters() if p.requires_grad]
        if bounded:
            self.outer: torch.optim.Optimizer = torch.optim.Adam(trained, lr=self.rate)
        else:
            self.outer = torch.optim.SGD(trained, lr=self.rate, momentum=0.9, weight_decay=5e-5)
        self.best = copy.deepcopy(self.confidence.state_dict())
        self.lowest, self.stopped = math.inf, False
        if self.learns and ctx.val is not None:
            self.head = find_head(ctx.model)[1]
            parts = zip(*ctx.val.ordered(), strict=True)
            self.val_x, self.val_y = (torch.cat(part) for part in parts)

    # ---- training by the weights -----------------------------------------------------------------------------------

    def stream(self, ctx: Context) -> Iterator[Batch]:
        for batch in super().stream(ctx):
            self.batch = batch
            self.told: list[tuple[Tensor, Tensor]] = []  # pseudo-labels, and whether they are sure
            yield batch

    def count(self, label: Tensor, sure: Tensor, which: Tensor) -> None:
        super().count(label, sure, which)
        self.told.append((label, sure))  # of every micro-batch

    def weights(self, ctx: Context, weak: Tensor, which: Tensor) -> Tensor | float:
        if ctx.clock.step_index < self.warmup and self.source in ("learned", "zero"):
            return 1.0
        if self.source == "zero":
            return 0.0
        if self.source == "oracle":
            return (self.origin[which] != FOREIGN).to(weak.dtype)
        with torch.no_grad():
            return self.confidence(weak)

    def end_step(self, ctx: Context) -> None:
        super().end_step(ctx)
        done = ctx.clock.step_index + 1 - self.warmup
        if self.learns and not self.stopped and done >= 0 and done % self.every == 0 and not ctx.disturbed:
            self.meta_update(ctx)

    # ---- learning the weights --------------------------------------------------------------------------------------

    def meta_update(self, ctx: Context) -> None:
        """One step of ω, on the unlabelled batch of this step and with the labels that the step has given it."""
        weak, strong, _ = (tensor.flatten(0, 1) for tensor in self.batch[2:])
        label, sure = (torch.cat(parts)[-len(weak) :] for parts in zip(*self.told, strict=True))
        chosen = sure.nonzero()[:, 0]
        with as_evaluated(ctx):
            signal = -self.help(ctx, strong[chosen], label[chosen])
        if isinstance(self.confidence.body, Shared):
            self.confidence.body.follow(self.average.evaluated(ctx))
        self.confidence.train(len(chosen) > 1)  # one image has no statistics to normalise by
        c = self.confidence(weak[chosen])
        self.confidence.eval()
        self.outer.zero_grad()
        mean = self.descend(ctx, c, signal, len(weak))
        ctx.spend(len(self.val_x) / ctx.settings.batch_size + self.ratio)
        if not math.isfinite(mean) or abs(mean - 1) > self.limit:
            self.give_up(ctx, mean)

    def help(self, ctx: Context, x: Tensor, label: Tensor) -> Tensor:
        """How much a step along each image's gradient would lower the validation loss."""
        if self.form == "cosine":
            return cosines(ctx.model, self.head, x, label, self.validation(ctx), ctx.engine.all_reduce)
        return slopes(ctx.model, x, label, self.direction(ctx))

    def validation(self, ctx: Context) -> tuple[Tensor, Tensor]:
        """The validation examples of a meta-update: all, or some of many."""
        x, y = self.val_x, self.val_y
        if len(x) <= VALIDATION:
            return x, y
        source = generator(ctx.settings.seed, META, ctx.clock.step_index)
        some = torch.randperm(len(x), generator=source)[:VALIDATION].to(x.device)
        return x[some], y[some]

    def direction(self, ctx: Context) -> list[Tensor]:
        """(H + ρI)⁻¹ ∂L_V/∂θ, over all processes."""
        weights = [p for p in ctx.model.parameters() if p.requires_grad]
        x, y = self.validation(ctx)
        count = ctx.engine.all_reduce(torch.tensor(float(len(x)), device=ctx.device))  # the mean
        found = torch.autograd.grad(ctx.plain_loss(ctx.model(x), y) * (len(x) / count), weights, allow_unused=True)
        b = ctx.engine.all_reduce(flat(found, weights))
        if self.solver == "identity":
            return shaped(Identity()(None, b).x, weights)  # type: ignore[arg-type]
        several = ctx.engine.all_reduce if ctx.engine.world_size > 1 else None
        counts = self.counts.clone()
        A = Inner([lambda: self.loss(ctx, self.batch)], weights, mean=several)
        self.counts.copy_(counts)  # the record is of the steps alone
        return shaped(CG(self.products, damping="auto")(A, b).x, weights)

    def descend(self, ctx: Context, c: Tensor, signal: Tensor, images: int) -> float:
        """A step of ω by dL_V/dω, or by what the form makes of it; and the mean weight before the step."""
        signal, world = self.controlled(ctx, signal), ctx.engine.world_size
        sums = torch.stack([torch.ones_like(c), c.detach(), signal]).sum(1)
        sums = torch.cat([sums, sums.new_tensor([float(images)])])
        count, total_c, total, all_images = ctx.engine.all_reduce(sums, reduce_op="sum").tolist()
        if count < 2:
            return 1.0  # nothing to compare
        if self.form == "plain":
            slope = self.weight * signal * (count / all_images)  # the mean is over all images, sure or not
        else:
            apart = signal - total / count  # first: the squares of a small spread would drown in those of the mean
            variance = ctx.engine.all_reduce(apart.square().sum(), reduce_op="sum") / count
            slope = apart / variance.sqrt().clamp(min=1e-12) + 2 * self.anchor * (total_c / count - 1)
        (c * slope).sum().mul(world / count).backward()
        for p in self.outer.param_groups[0]["params"]:
            p.grad = ctx.engine.all_reduce(p.grad)
        self.outer.step()
        return total_c / count

    def controlled(self, ctx: Context, signal: Tensor) -> Tensor:
        """The signal, or what stands in for it in a control."""
        if self.signal == "constant":
            return -torch.ones_like(signal)
        if self.signal == "shuffled":
            source = generator(ctx.settings.seed, META, ctx.clock.step_index, 1)
            return signal[torch.randperm(len(signal), generator=source).to(signal.device)]
        return signal

    def give_up(self, ctx: Context, mean: float) -> None:
        """No more meta-updates: the weights have run away."""
        self.stopped = True
        self.confidence.load_state_dict(self.best)
        warnings.warn(
            f"the confidence weights diverged (their mean is {mean:.3g}) at {ctx.clock}: no more meta-updates, and the "
            "weights of the lowest validation loss are used; try form=cosine, or a smaller rate",
            RuntimeWarning,
            stacklevel=2,
        )

    # ---- keeping the best, and looking -----------------------------------------------------------------------------

    def begin_epoch(self, ctx: Context) -> None:
        self.keep(ctx)

    def keep(self, ctx: Context) -> None:
        """Keep ω if the epoch that has just ended had the lowest validation loss with it."""
        loss = ctx.history[-1].get("val_loss") if ctx.history else None
        begun = ctx.clock.step_index > self.warmup
        if self.learns and begun and loss is not None and loss < self.lowest and not self.stopped:
            self.lowest, self.best = loss, copy.deepcopy(self.confidence.state_dict())

    def end_epoch(self, ctx: Context) -> None:
        super().end_epoch(ctx)
        if self.source in ("learned", "frozen", "untrained"):
            ctx.log(**self.look(ctx))

    @torch.no_grad()
    def look(self, ctx: Context) -> dict[str, float]:
        """The weights of some unlabelled images, plain and weakly augmented, and how well they tell foreign ones."""
        places = torch.linspace(0, len(self.images) - 1, min(PROBE, len(self.images))).long().to(self.images.device)
        images, foreign = self.images[places], self.origin[places] == FOREIGN
        moved = augment(images, generator(ctx.settings.seed, LOOK, ctx.clock.epoch_index), self.policy)
        plain, weak = (self.trust(x) for x in (images, moved))
        found = {"weight": plain, "weight_weak": weak}
        row = {f"{key}_{what}": float(getattr(c, what)()) for key, c in found.items() for what in ("mean", "std")}
        if foreign.any() and not foreign.all():
            row["auroc"] = auroc(plain[~foreign], plain[foreign])
        return row

    @torch.no_grad()
    def trust(self, images: Tensor) -> Tensor:
        """The weights of images (bytes, not augmented), by the network as it stands."""
        scaled = (normalise(x, self.mean, self.std).to(self.kind) for x in images.split(PROBE))
        return torch.cat([self.confidence(x) for x in scaled])

    def end(self, ctx: Context) -> None:
        super().end(ctx)
        if self.learns:
            self.keep(ctx)
            self.confidence.load_state_dict(self.best)
        if ctx.folder is not None:
            ctx.folder.save_weights("confidence", self.confidence.state_dict())

    def state_dict(self) -> dict[str, Any]:
        mine = {"confidence": self.confidence.state_dict(), "outer": self.outer.state_dict(), "best": self.best}
        return super().state_dict() | mine | {"lowest": self.lowest, "stopped": self.stopped}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.confidence.load_state_dict(state["confidence"])
        self.outer.load_state_dict(state["outer"])
        self.best = {name: value.to(self.images.device) for name, value in state["best"].items()}
        self.lowest, self.stopped = state["lowest"], state["stopped"]


def load(network: Confidence, file: Path) -> None:
    """Give a network the weights that an earlier run has kept."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not file.is_file():
        raise RequestError(f"there is no {file}: give confidence.safetensors of an earlier run")
    try:
        network.load_state_dict(load_file(file))
    except (RuntimeError, SafetensorError) as error:
        raise RequestError(f"{file} does not fit this confidence network: give the same network and form") from error
