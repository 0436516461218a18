"""A network in two: the layers that stay as they are, and those that are trained on what the first ones give."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from functools import cached_property

import torch
from torch import Tensor, nn

from fallow.base.errors import RequestError, first_line, unknown
from fallow.data.content import of_tensor, together
from fallow.data.texts import trimmed
from fallow.weights.blocks import find_blocks, head_of, inside
from fallow.weights.layers import copied, execution_order, join, untouched

HEAD = "head"  # names the last layer of any network
PIECE = 8  # examples that pass at once on a CPU: what a layer gives of images stays in its cache (8 ms each at 128 px,
# not 16), and texts have less padding


class _Reached(Exception):
    """Ends a forward pass where the cut is."""


class Front(nn.Module):
    """The layers of a network that run before the module ``at``: gives what that module would be given.

    ``others`` are the paths of all that runs from there on.
    """

    def __init__(self, network: nn.Module, at: str, others: Sequence[str]) -> None:
        super().__init__()
        self.network, self.at, self.others = network, at, tuple(others)
        self.requires_grad_(False).eval()
        self._given: Tensor | None = None
        network.get_submodule(at).register_forward_pre_hook(self._stop)

    def _stop(self, _: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self._given = inputs[0]
        raise _Reached

    def train(self, mode: bool = True) -> Front:
        """Never: what is frozen keeps its statistics, too."""
        return super().train(False)

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        """What the rest of the network sees of a batch."""
        texts = x.dtype == torch.int64
        if x.device.type != "cpu" or not (texts or x.ndim == 4):
            return self._of(x)
        return torch.cat([self._of(trimmed(piece) if texts else piece) for piece in x.split(PIECE)])

    def _of(self, x: Tensor) -> Tensor:
        with contextlib.suppress(_Reached):
            self.network(x)
        found, self._given = self._given, None
        assert found is not None
        return found

    @cached_property
    def identity(self) -> str:
        """A digest of all that decides what it gives; nothing of it changes."""
        own = {
            name: tensor
            for name, tensor in self.network.state_dict().items()
            if not any(inside(name, other) for other in self.others)
        }
        return together(self.at, *(piece for name, tensor in own.items() for piece in (name, of_tensor(tensor))))


class Head(nn.Module):
    """The last layer of a network alone, under its own path: all of it is late, for all that is early is frozen."""

    late_from = "all"

    def __init__(self, path: str, layer: nn.Module) -> None:
        super().__init__()
        self.path = path
        module: nn.Module = self
        *parents, name = path.split(".")
        for parent in parents:
            module.add_module(parent, module := nn.Module())
        module.add_module(name, layer)

    def forward(self, x: Tensor) -> Tensor:
        """The layer's output."""
        return self.get_submodule(self.path)(x)


class Cut:
    """A network cut before a module: ``front`` gives what ``tail`` takes, and tail(front(x)) is network(x).

    ``at`` is a module's path, the number of blocks that stay before it, or their share; "head" is the last layer. The
    parameters of the tail have the names that they have in the network. ``inputs`` are a few examples.

    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 2))
    >>> cut = Cut(net, "2", torch.randn(2, 4))
    >>> [name for name, _ in cut.tail.named_parameters()]
    ['2.weight', '2.bias', '4.weight', '4.bias']
    """

    def __init__(self, network: nn.Module, at: str | int | float, inputs: Tensor) -> None:
        self.network = network
        order = execution_order(network, inputs)
        head = head_of(network, order)
        self.at = head if at == HEAD else _path(network, at, order)
        start = order[self.at]
        if start == 0 or not any(rank < start and _parameters(network, path) for path, rank in order.items() if path):
            raise RequestError(f"freeze={at} leaves nothing before it to freeze: name a later layer")
        if self.at == head:
            self.trained = [head]
            self.tail: nn.Module = Head(head, copied(network.get_submodule(head)))
        else:
            self.tail, self.trained = _rest(network, order, start)
        self.front = Front(copied(network), self.at, self.trained)
        self._check(inputs)

    def _check(self, x: Tensor) -> None:
        """Only what flows through the cut and nowhere else may decide what comes out."""
        why = "what follows needs more than what is given there"
        try:
            with untouched(self.network), untouched(self.tail), torch.no_grad():
                whole = self.network.eval()(x)
                apart = self.tail.eval()(self.front(x))
                if whole.shape == apart.shape and torch.allclose(whole, apart, rtol=1e-3, atol=1e-4):
                    return
        except (RuntimeError, IndexError, TypeError, AttributeError, ValueError) as error:
            why = first_line(error)
        raise RequestError(f"the network cannot be frozen up to {self.at} ({why}): freeze={HEAD} trains the last layer")

    def joined(self, tail: nn.Module) -> nn.Module:
        """The whole network with the layers of ``tail``, the one that was trained or an average of it."""
        for path in self.trained:
            self.network.set_submodule(path, tail.get_submodule(path))
        like = next(p for p in tail.parameters() if p.is_floating_point())
        return self.network.to(like.device, like.dtype)  # where, and in the precision in which, the tail was trained


def _path(network: nn.Module, at: str | int | float, order: Mapping[str, int]) -> str:
    if isinstance(at, str):
        if at not in order or not at:
            raise unknown("module in freeze", at, [HEAD, *filter(None, order)])
        return at
    blocks = find_blocks(network, order)
    count = max(1, round(at * len(blocks))) if isinstance(at, float) and 0 < at < 1 else at
    if not (isinstance(count, int) and 1 <= count < len(blocks)):
        raise RequestError(f"freeze={at} does not fit a model of {len(blocks)} blocks: 1 to {len(blocks) - 1} would")
    return blocks[count].modules[0]


def _rest(network: nn.Module, order: Mapping[str, int], start: int) -> tuple[nn.Module, list[str]]:
    """A copy in which all that runs before the cut passes on what it is given; and the modules that are trained."""
    rest = copied(network)
    trained: list[str] = []

    def visit(module: nn.Module, path: str) -> None:
        for name, child in list(module.named_children()):
            here = join(path, name)
            ranks = [rank for inner, rank in order.items() if inside(inner, here)]
            if max(ranks) < start:
                module.add_module(name, nn.Identity())
            elif min(ranks) >= start:
                trained.append(here)
            else:
                visit(child, here)

    visit(rest, "")
    names = getattr(rest, "blocks", None)
    if isinstance(names, tuple):
        left = tuple(name for name in names if order[name] >= start)
        rest.blocks = left  # type: ignore[assignment]
        if order.get(getattr(rest, "late_from", ""), 0) <= start:  # or the threshold would leave nothing early
            rest.late_from = 0.5  # type: ignore[assignment]
    return rest, trained


def _parameters(network: nn.Module, path: str) -> bool:
    return next(network.get_submodule(path).parameters(), None) is not None
