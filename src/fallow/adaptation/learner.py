"""A model that adapts: the shared parameters, the pieces' meta-parameters, and the inner loop between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fallow.adaptation.attenuation import Attenuator, attenuate, embed
from fallow.adaptation.implicit import Proximal
from fallow.adaptation.inner import Rates, descend, gradients
from fallow.adaptation.modulation import modulate
from fallow.adaptation.objective import (
    Criterion,
    Objective,
    Params,
    Statistics,
    channels_last,
    normalised,
    norms,
    supported,
)
from fallow.adaptation.optimisers import OPTIMISERS
from fallow.adaptation.piece import LearnerPiece
from fallow.base.errors import RequestError
from fallow.data.normalise import normalise
from fallow.data.tasks import TaskBatch
from fallow.weights.layers import is_norm, join, layers

Meta = dict[str, dict[str, Tensor]]  # all that is learned across tasks, by child of the learner


class Judged(NamedTuple):
    """Query losses and accuracies of tasks before the inner loop and after each of its steps (steps + 1, tasks).

    Where norms take the statistics of a task's queries together, ``alone`` has what the last step gives without that
    (tasks,): accuracies, or losses where targets are no classes.
    """

    losses: Tensor
    accuracies: Tensor | None  # where targets are classes
    alone: Tensor | None = None


class Learner(nn.Module):
    """Adapts to tasks by gradient descent from learned parameters; what MAML trains, and what a run keeps.

    >>> from fallow.methods.fewshot.l2f import L2F
    >>> learner = Learner(nn.Linear(1, 1), nn.functional.mse_loss, steps=2, pieces=[L2F()])
    >>> x = torch.randn(3, 5, 1)
    >>> predict = learner.adapt(x, 2 * x)
    >>> predict(torch.zeros(3, 7, 1)).shape
    torch.Size([3, 7, 1])
    """

    def __init__(
        self,
        model: nn.Module,
        criterion: Criterion,
        *,
        steps: int = 5,
        rate: float = 0.01,
        optimizer: str = "sgd",
        batch_norm: str = "batch",
        adapt_norms: bool = True,
        pieces: Sequence[LearnerPiece] = (),
    ) -> None:
        super().__init__()
        self.model, self.criterion = model, criterion
        self.steps, self.rate, self.optimizer, self.batch_norm = steps, rate, optimizer, batch_norm
        self.judged_by = steps  # steps, where more of them judge than train
        self.scaling: tuple[Tensor, Tensor] | None = None  # of the examples that users give: mean and deviation
        for piece in pieces:
            module = piece.build(model, steps, rate)
            if module is not None:
                first = next(model.parameters())
                setattr(self, piece.role, module.to(first.device, first.dtype))
        self.names = [name for name, p in model.named_parameters() if p.requires_grad]
        if not self.names:
            raise RequestError("the model has no parameters to train")
        kept = set() if adapt_norms else norm_parameters(model)
        self.adapted = [name for name in self.names if name not in kept]
        for piece in pieces:
            self.adapted = piece.adapted(model, self.adapted)
        # a body that no task changes is called once for all of them
        self.shared = set() if hasattr(self, "attenuator") else set(self.names) - set(self.adapted)
        if batch_norm == "per-step":
            self.statistics = Statistics(model, steps)

    def meta(self) -> Meta:
        """Everything that is learned across tasks."""
        return {
            name: {key: p for key, p in child.named_parameters() if p.requires_grad}
            for name, child in self.named_children()
        }

    def objective(self, batched: bool) -> Objective:
        """The loss of one task, or of many."""
        effective = modulate if hasattr(self, "modulator") else dict
        return Objective(self.model, self.criterion, batched=batched, shared=self.shared, effective=effective)

    # ---- the inner loop ---------------------------------------------------------------------------

    def path(
        self,
        meta: Meta,
        x: Tensor,
        y: Tensor,
        *,
        order: int,
        batched: bool,
        pure: bool = False,
        steps: int | None = None,
    ) -> Iterator[tuple[Params, Tensor | None]]:
        """θ_0, θ_1, … θ_steps of the tasks, each with the support losses of the step that led there."""
        objective = self.objective(batched)
        params = meta["model"]
        if batched:
            params = {n: p if n in self.shared else p.expand(len(x), *p.shape) for n, p in params.items()}
        if "modulator" in meta:
            params = params | self.modulation(meta, x, y, batched)
        params, losses = self.attenuated(objective, meta, params, x, y, pure)
        yield params, losses
        start, memory = params, None
        proximal = getattr(self, "proximal", None)
        for step in range(self.steps if steps is None else steps):
            buffers = self.statistics_at(step, x, batched)
            found, losses = gradients(
                objective, params, self.adapted, x, y, order=order, pure=pure, buffers=buffers, common=not self.moving
            )
            if isinstance(proximal, Proximal):
                found = proximal.pull(found, [params[n] for n in self.adapted], [start[n] for n in self.adapted])
            moved, memory = OPTIMISERS[self.optimizer](found, memory)
            params = descend(params, self.adapted, moved, self.rates(meta, step), pure)
            yield params, losses

    def attenuated(
        self, objective: Objective, meta: Meta, params: Params, x: Tensor, y: Tensor, pure: bool
    ) -> tuple[Params, Tensor | None]:
        """L2F: θ̄ = γ·θ with γ = g_φ(mean gradients), or a constant γ; without it, θ."""
        attenuator = getattr(self, "attenuator", None)
        if not isinstance(attenuator, Attenuator):
            return params, None
        if attenuator.constant:
            tasks = x.shape[:1] if objective.batched else torch.Size()
            nothing = next(iter(params.values())).new_zeros((*tasks, attenuator.count))
            gamma = functional_call(attenuator, meta["attenuator"], (nothing,))
            return attenuate(params, gamma, attenuator.owner), None
        found, losses = gradients(
            objective, params, self.names, x, y, order=1, pure=pure, common=not self.moving,
            buffers=self.statistics_at(0, x, objective.batched),
        )  # fmt: skip
        embedding = embed(found, self.names, attenuator.owner, losses.shape).detach()
        gamma = functional_call(attenuator, meta["attenuator"], (embedding,))
        return attenuate(params, gamma, attenuator.owner), losses

    def modulation(self, meta: Meta, x: Tensor, y: Tensor, batched: bool) -> Params:
        """MuMoMAML: what scales and shifts the layers of a task, or of each task."""
        modulator = self.get_submodule("modulator")

        def one(x: Tensor, y: Tensor) -> Params:
            found: Params = functional_call(modulator, meta["modulator"], (x, y))
            return found

        return torch.func.vmap(one)(x, y) if batched else one(x, y)

    def rates(self, meta: Meta, step: int) -> Rates:
        """Of the inner loop at a step: one number, or what a piece has learned."""
        if "learned_rates" not in meta:
            return self.rate
        return functional_call(self.get_submodule("learned_rates"), meta["learned_rates"], (step,))

    # ---- statistics of batch normalisation --------------------------------------------------------

    @property
    def moving(self) -> bool:
        """Whether every task moves running statistics of its own."""
        return self.batch_norm == "per-step" and self.training

    def statistics_at(self, step: int, x: Tensor, batched: bool) -> Params | None:
        """Statistics of this inner step in place of the model's own."""
        if self.batch_norm != "per-step":
            return None
        lead = x.shape[:1] if batched else torch.Size()
        return self.statistics.at(step, lead if self.moving else None)

    # ---- what training asks -----------------------------------------------------------------------

    def meta_loss(
        self, meta: Meta, batch: TaskBatch, weights: Tensor | None, *, order: int, batched: bool, pure: bool = False
    ) -> tuple[Tensor, Tensor]:
        """The mean query loss after adaptation, and the losses along the way (support at each step, then query).

        With ``weights`` the query losses after all steps count, each so much (MAML++).
        """
        x, y, query_x, query_y = batch
        objective = self.objective(batched)
        total: Tensor | None = None
        trace = []
        for step, (params, losses) in enumerate(self.path(meta, x, y, order=order, batched=batched, pure=pure)):
            if losses is not None:
                trace.append(losses.mean())
            last = step == self.steps
            if last or (weights is not None and step > 0):
                point, inputs = (params, query_x) if batched or pure else channels_last(params, query_x)
                query, _ = objective(
                    point, inputs, query_y, self.statistics_at(step, query_x, batched), common=not self.moving
                )
                counted = query.mean() if weights is None else weights[step - 1] * query.mean()
                total = counted if total is None else total + counted
        assert total is not None
        return total, torch.stack([*trace, query.mean().detach()])

    # ---- what users ask ---------------------------------------------------------------------------

    def adapt(self, x: Tensor, y: Tensor, steps: int | None = None) -> Callable[[Tensor], Tensor]:
        """Adapt to tasks (tasks, n, …), without a graph; what comes back predicts their queries (tasks, m, …).

        By default in as many steps as test tasks were judged by. A model that was trained takes examples as its tasks
        held them (bytes of images, say).
        """
        meta, last = _detached(self.meta()), self.judged_by if steps is None else steps
        with normalised(self.model, self.batch_norm, training=False):
            *_, (params, _) = self.path(meta, self.scaled(x), y, order=1, batched=True, steps=last)

        @torch.no_grad()
        def predict(query_x: Tensor) -> Tensor:
            query_x = self.scaled(query_x)
            with normalised(self.model, self.batch_norm, training=False):
                axes = {name: None if name in self.shared else 0 for name in params}
                buffers = self.statistics_at(last, query_x, True) or {}
                each = self.objective(True).call
                return torch.func.vmap(lambda p, x: each(p, buffers, x), (axes, 0), randomness="different")(
                    params, query_x
                )

        return predict

    def scaled(self, x: Tensor) -> Tensor:
        """Examples of tasks on the scale that the model was trained on."""
        if self.scaling is None:
            return x
        mean, std = (values.to(x.device) for values in self.scaling)
        return normalise(x.flatten(0, 1), mean, std).view(x.shape).to(next(self.model.parameters()).dtype)

    def judge(self, batch: TaskBatch, *, batched: bool = True, steps: int | None = None, alone: bool = False) -> Judged:
        """Query losses and accuracies of tasks, before the inner loop and after each step.

        ``alone``: also of every query on its own, normalised as the support set is (inductive).
        """
        alone = alone and self.transductive
        if not batched:
            each = [self._judge(tuple(t[i] for t in batch), False, steps, alone) for i in range(len(batch[0]))]
            right = [one.accuracies for one in each if one.accuracies is not None]
            apart = [one.alone for one in each if one.alone is not None]
            return Judged(
                torch.stack([one.losses for one in each], 1),
                torch.stack(right, 1) if right else None,
                torch.stack(apart) if apart else None,
            )
        return self._judge(batch, True, steps, alone)

    @property
    def transductive(self) -> bool:
        """Whether the queries of a task are normalised together, so that one's answer hangs on the others."""
        return self.batch_norm == "batch" and any(module.running_mean is not None for module in norms(self.model))

    def _judge(self, batch: Any, batched: bool, steps: int | None, alone: bool) -> Judged:
        x, y, query_x, query_y = batch
        meta = _detached(self.meta())
        objective = self.objective(batched)
        losses, right = [], []
        mode = self.training
        self.eval()
        try:
            with normalised(self.model, self.batch_norm, training=False):
                walk = self.path(meta, x, y, order=1, batched=batched, steps=steps)
                for step, (params, _) in enumerate(walk):
                    point, inputs = (params, query_x) if batched else channels_last(params, query_x)
                    with torch.no_grad():
                        loss, output = objective(point, inputs, query_y, self.statistics_at(step, query_x, batched))
                    losses.append(loss)
                    if not query_y.is_floating_point():
                        right.append(_right(output, query_y))
            apart: Tensor | None = None
            if alone:
                with torch.no_grad():
                    held = supported(self.model, objective, params, x, y)
                    with normalised(self.model, "frozen", training=False):
                        loss, output = objective(params, query_x, query_y, held, common=False)
                    apart = loss if query_y.is_floating_point() else _right(output, query_y)
        finally:
            self.train(mode)
        return Judged(torch.stack(losses), torch.stack(right) if right else None, apart)


def norm_parameters(model: nn.Module) -> set[str]:
    """The names of the parameters that normalisations own."""
    return {
        join(path, name)
        for path, module in layers(model).items()
        if is_norm(module)
        for name, _ in module.named_parameters(recurse=False)
    }


def _right(output: Tensor, y: Tensor) -> Tensor:
    """The share of right answers of every task."""
    return (output.argmax(-1) == y).float().mean(-1)


def _detached(meta: Meta) -> Meta:
    return {child: {name: p.detach() for name, p in held.items()} for child, held in meta.items()}
