"""Products of the Hessian of a loss over a data set with vectors, by a cached double backward.

Written by hand because the graph of the gradient is kept from product to product: curvlinops builds it anew in forward
mode, which takes four times as long on a CPU and has no formula for GroupNorm.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node
from torch.func import functional_call

from fallow.base.errors import RequestError, unknown
from fallow.base.seeds import mix
from fallow.diagnose.checks import chosen, refuse_mismatch, refuse_nonfinite
from fallow.evaluate.features import place
from fallow.evaluate.losses import Loss, criterion
from fallow.weights.layers import unfused, untouched

Chunk = tuple[int, Tensor, Tensor]  # its number, inputs, targets
MODES = ("train", "eval")
GIGABYTE = 1 << 30
PILOT = 4  # examples that tell how much memory a forward pass keeps
GROWTH = 3  # how many times that the graph of the gradient keeps, at most


class Hessian:
    """The Hessian H of the mean loss with respect to the trainable parameters, as a product v ↦ Hv.

    With chunks c of n_c examples, Hv = Σ_c (n_c / n) ∇(∇L_c · v). The graph of the gradient ∇L_c is built once and
    kept for all products as far as ``memory`` allows; beyond that it is built again for every product. Where samples do
    not interact, chunks are only a matter of memory. In training mode with BatchNorm they do: a chunk is then a batch
    with its own statistics, H is that of the mean of the batches' losses, and without ``chunk`` all examples are one
    batch. Dropout in training mode keeps one mask for each chunk, drawn from ``seed``. Chunks are as even as can be.

    Parameters
    ----------
    loss : "cross_entropy", "squared_error", or a function of (output, targets) that is a mean over the examples.
    mode : "train" or "eval"; the model's modes, its buffers and the random generators are left as they are.
    parameters : names of parameters or modules to differentiate by; all that are trainable by default.
    chunk : how many examples pass at once, at most; as many as ``memory`` allows by default.
    memory : bytes that graphs may take.

    >>> net = nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 2))
    >>> hessian = Hessian(net, "cross_entropy", torch.randn(10, 3), torch.arange(10) % 2)
    >>> hessian(torch.ones(hessian.size)).shape
    torch.Size([14])

    """

    def __init__(
        self,
        model: nn.Module,
        loss: str | Loss,
        inputs: Tensor,
        targets: Tensor,
        *,
        mode: str = "eval",
        parameters: Sequence[str] | None = None,
        chunk: int | None = None,
        memory: int = GIGABYTE,
        seed: int = 0,
    ) -> None:
        if mode not in MODES:
            raise unknown("mode", mode, MODES)
        if chunk is not None and chunk < 1:
            raise RequestError(f"chunk={chunk} is not a number of examples: give 1 or more")
        refuse_mismatch(inputs, targets)
        self.model, self.criterion, self.mode, self.seed = model, criterion(loss), mode, seed
        self.parameters = chosen(model, parameters)
        refuse_nonfinite(model)
        dtypes = {parameter.dtype for parameter in self.parameters.values()}
        if not dtypes <= {torch.float32, torch.float64}:
            raise RequestError(
                f"the weights are {dtypes.pop()}: second derivatives need float32 or float64, as by .float()"
            )
        self.dtype = torch.float64 if torch.float64 in dtypes else torch.float32
        self._weights = list(self.parameters.values())
        self._sizes = [weight.numel() for weight in self._weights]
        self.size, self.device = sum(self._sizes), self._weights[0].device
        self.examples, self.products = len(inputs), 0
        self.chunk, most = self._plan(inputs, targets, chunk, memory)
        count = -(-self.examples // self.chunk)
        chunks = zip(range(count), inputs.tensor_split(count), targets.tensor_split(count), strict=True)
        self._kept: list[list[Tensor]] = []
        self._rest: list[Chunk] = []
        total = torch.zeros((), dtype=torch.float64)
        for some in chunks:
            if len(self._kept) < most:
                value, gradient = self._gradient(some)
                self._kept.append(gradient)
            else:
                self._rest.append(some)
                with torch.no_grad():
                    value = self._loss(some)
            total += value.double().cpu()
        self.loss = float(total)
        if not torch.isfinite(total):
            raise RequestError(f"the loss of these examples is {self.loss}: give data on which it is finite")

    def __call__(self, vector: Tensor) -> Tensor:
        """Hv, for a flat vector of ``size`` entries."""
        self.products += 1
        pieces = [
            piece.view_as(weight).to(weight.dtype)
            for piece, weight in zip(vector.split(self._sizes), self._weights, strict=True)
        ]
        terms = chain(
            (self._second(gradient, pieces, keep=True) for gradient in self._kept),
            (self._second(self._gradient(some)[1], pieces, keep=False) for some in self._rest),
        )
        return reduce(Tensor.add_, terms)

    def _plan(self, inputs: Tensor, targets: Tensor, chunk: int | None, memory: int) -> tuple[int, int]:
        """The size of a chunk, and how many chunks' graphs may be kept."""
        if self.examples <= PILOT or (chunk is not None and chunk >= self.examples):
            return self.examples, 1  # the graph of one chunk is needed in any case
        each = max(1, GROWTH * self._saved_bytes((0, inputs[:PILOT], targets[:PILOT])) // PILOT)
        if chunk is not None:
            return chunk, memory // (each * chunk)
        if each * self.examples <= memory:
            return self.examples, 1
        if self.mode == "train" and any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in self.model.modules()):
            raise RequestError(
                "in training mode BatchNorm makes all examples one batch, and its graph needs "
                f"{each * self.examples / GIGABYTE:.1f} GB: chunk=, a batch size, or a larger memory= would fit"
            )
        chunk = max(1, memory // 8 // each)
        return chunk, max(0, memory // (each * chunk) - 1)  # all but the one that passes

    def _saved_bytes(self, some: Chunk) -> int:
        """The memory that a forward pass of a chunk keeps for the backward pass."""
        storages: dict[int, int] = {}  # a view of one counts as far as it goes
        weights = {parameter.untyped_storage().data_ptr() for parameter in self.model.parameters()}

        def note(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage().data_ptr()
            if storage not in weights:
                storages[storage] = max(storages.get(storage, 0), tensor.nbytes)
            return tensor

        with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            self._loss(some)
        return sum(storages.values())

    def _loss(self, some: Chunk) -> Tensor:
        """The chunk's share of the mean loss; its mode, statistics and masks are the same in every call."""
        index, inputs, targets = some
        with untouched(self.model), unfused():
            self.model.train(self.mode == "train")
            seed_generators(mix(self.seed, index))
            buffers = {name: buffer.clone() for name, buffer in self.model.named_buffers()}  # graphs outlive this block
            output = functional_call(self.model, buffers, (place(self.model, inputs),))
            loss: Any = self.criterion(output, place(self.model, targets))
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            what = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else f"a {type(loss).__name__}"
            raise RequestError(f"the loss gives {what}: it must be one number, the mean over the examples")
        return loss.reshape(()) * (len(inputs) / self.examples)

    def _gradient(self, some: Chunk) -> tuple[Tensor, list[Tensor]]:
        with torch.enable_grad():
            loss = self._loss(some)
            if not loss.requires_grad:
                raise RequestError(
                    "the loss has no derivatives: it does not depend on the weights in a way torch follows"
                )
            gradient = list(_differentiate(loss, self._weights, create_graph=True))
        if not any(part.requires_grad for part in gradient):
            raise RequestError("the loss has no second derivatives: its gradient does not depend on the weights")
        if some[0] == 0 and _cut([part.grad_fn for part in gradient]):
            raise RequestError("the loss has no second derivatives: it uses a function that is once_differentiable")
        return loss.detach(), gradient

    def _second(self, gradient: list[Tensor], pieces: list[Tensor], *, keep: bool) -> Tensor:
        pairs = [(part, piece) for part, piece in zip(gradient, pieces, strict=True) if part.requires_grad]
        parts, along = zip(*pairs, strict=True)
        second = _differentiate(parts, self._weights, along, retain_graph=keep)
        return torch.cat([part.reshape(-1) for part in second])


def _differentiate(outputs: Any, inputs: list[nn.Parameter], along: Any = None, **options: bool) -> tuple[Tensor, ...]:
    try:
        return torch.autograd.grad(outputs, inputs, along, materialize_grads=True, **options)
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, NotImplementedError) as error:
        reason = str(error).strip().splitlines()[0]
        raise RequestError(f"the loss has no second derivatives that torch can take: {reason}") from error


def _cut(roots: list[Node | None]) -> bool:
    """Whether a graph ends where torch has put an error; it would be passed by without a word, as if it were 0."""
    seen: set[Node] = set()
    left = [root for root in roots if root is not None]
    while left:
        node = left.pop()
        if node.name() == "torch::autograd::Error":
            return True
        fresh = {parent for parent, _ in node.next_functions if parent is not None} - seen
        seen |= fresh
        left.extend(fresh)
    return False


def seed_generators(seed: int) -> None:
    """As ``torch.manual_seed``, which formats a traceback at every call and so costs as much as a small network."""
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)
