"""LW: layerwise reinitialisation (Alabdulmohsin et al. 2021, algorithm 1)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fallow.base.errors import RequestError, WorkError
from fallow.base.numbers import is_whole
from fallow.core.context import Context
from fallow.core.method import Method
from fallow.core.ranges import choice
from fallow.methods.forget.measure import log_forgetting
from fallow.weights import Partition, insert_norms, is_norm, matrices, norms, rescale
from fallow.weights.layers import call, refuse_compiled, untouched

FLAT = 1e-12  # σ²/μ² below which an output is the same everywhere but for rounding


@dataclass(eq=False)
class LW(Method):
    """From the lowest block to the highest: keep what is below, bring it back to size, re-draw what is above.

    LW, algorithm 1. Blocks 1..K from the input; s_l = ‖W_l‖₂ of every layer at initialisation. For k = 1..K and
    n = 1..N, which is one generation each, the first included:

    1. W ← (s / ‖W‖₂)·W for every layer of blocks 1..k;
    2. on one training batch, μ and σ of block k's output (scalars) become the fixed normalisation
       (x − μ)/σ behind block k;
    3. everything above block k is re-drawn;
    4. the whole network trains.

    K is the number of generations divided by N. The normalisations are part of the model and never trained. The record
    of a generation's first epoch names, as ``keeps``, the blocks 1..k that it keeps.
    """

    name = "lw"
    summary = "block by block from the input: rescale and normalise the layers below, reinitialise those above"
    generational = True
    forgets = frozenset({"early", "late"})
    ranges: ClassVar = {"rescaling": choice(True, False), "normalisation": choice(True, False)}

    repeats: int = 1  # N
    rescaling: bool = True  # step 1
    normalisation: bool = True  # step 2
    freeze: bool = False  # blocks 1..k stay as they are while the rest trains

    def __post_init__(self) -> None:
        if not is_whole(self.repeats, 1):
            raise RequestError(f"repeats is {self.repeats}: it must be a whole number from 1")

    def begin(self, ctx: Context) -> None:
        rounds, rest = divmod(ctx.clock.generations, self.repeats)
        if rest:
            raise RequestError(
                f"{ctx.clock.generations} generations are not a multiple of repeats={self.repeats}: "
                f"ask for {self.repeats * (rounds + 1)}"
            )
        blocks = ctx.partition.blocks
        if rounds > len(blocks):
            raise RequestError(
                f"lw goes through {rounds} blocks and the model has {len(blocks)}: ask for "
                f"{len(blocks) * self.repeats} generations or fewer, or for more repeats"
            )
        x = next(iter(ctx.train.ordered()))[0][:2]
        self.cuts = [Partition(ctx.model, k + 1, inputs=x) for k in range(rounds)]
        self.outputs = [block.output for block in blocks[:rounds]]
        self.paths = [block.path for block in blocks[:rounds]]
        kept = set(self.cuts[-1].early.names)
        self.layers = {name: p for name, p in matrices(ctx.model).items() if name in kept}
        self.sizes = norms(self.layers) if self.rescaling else {}
        if self.normalisation:
            refuse_compiled(ctx.model, "lw's normalisation")
            for path, given in outputs_of(ctx.model, self.outputs, x).items():
                if len(given) != 1 or not isinstance(given[0], Tensor):
                    raise RequestError(
                        f"lw cannot normalise behind {path}: it must run once in a forward pass and give a tensor; "
                        "give every block modules of its own, or use lw:normalisation=False"
                    )
        self.norms = insert_norms(ctx.model, self.outputs) if self.normalisation else {}

    def begin_generation(self, ctx: Context) -> None:
        k = ctx.clock.generation // self.repeats
        cut = self.cuts[k]
        if self.rescaling:
            below = [name for name in self.layers if name in set(cut.early.names)]
            rescale([self.layers[name] for name in below], [self.sizes[name] for name in below])
        if self.normalisation:
            self.normalise(ctx, self.outputs[k])
        ctx.redraw(cut.late)
        ctx.log(keeps=", ".join(self.paths[: k + 1]))
        if ctx.clock.generation > 0:
            log_forgetting(ctx)

    @torch.no_grad()
    def normalise(self, ctx: Context, block: str) -> None:
        """Set μ and σ behind ``block`` from one training batch, over all processes."""
        norm = self.norms[block]
        norm.mean.fill_(0.0)
        norm.std.fill_(1.0)
        x, _ = next(iter(ctx.train.epoch(ctx.clock.epoch_index)))
        z = outputs_of(ctx.model, [block], x)[block][0].double()
        sums = torch.stack([z.sum(), (z * z).sum(), torch.tensor(float(z.numel()), device=z.device).double()])
        total, squares, count = ctx.engine.all_reduce(sums, reduce_op="sum").tolist()
        mean = total / count
        variance = squares / count - mean * mean
        if not variance > FLAT * mean * mean:
            what = "the same everywhere (σ = 0), as of dead units" if math.isfinite(variance) else "not finite"
            raise WorkError(
                f"the output of {block} is {what}, and cannot be normalised: "
                "lower the learning rate or use lw:normalisation=False"
            )
        norm.mean.fill_(mean)
        norm.std.fill_(variance**0.5)

    def before_step(self, ctx: Context) -> None:
        if self.freeze:
            for p in self.cuts[ctx.clock.generation // self.repeats].early.parameters:
                p.grad = None

    def state_dict(self) -> dict[str, Any]:
        return {"sizes": self.sizes}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.sizes = {name: size.to(self.layers[name].device) for name, size in state["sizes"].items()}


@torch.no_grad()
def outputs_of(model: nn.Module, paths: Iterable[str], x: Any) -> dict[str, list[Any]]:
    """What these modules give, call by call, when ``x`` passes through the model, without dropout.

    Batch norms use the batch, as in training: their running statistics are of weights that were just rescaled.
    """
    caught: dict[str, list[Any]] = {path: [] for path in paths}
    handles = [
        model.get_submodule(path).register_forward_hook(lambda _, __, output, calls=calls: calls.append(output))
        for path, calls in caught.items()
    ]
    try:
        with untouched(model):
            for module in model.modules():
                module.training = is_norm(module)
            call(model, x)
    finally:
        for handle in handles:
            handle.remove()
    return caught
