"""A network without its head that looks at data of any kind it can see, and its features, kept by content."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor, nn

from fallow.base import files
from fallow.base.errors import RequestError
from fallow.data import Examples, Files
from fallow.data.batching import evaluated_at_once
from fallow.data.content import of_tensor, together
from fallow.data.examples import digest
from fallow.data.normalise import normalise, resized
from fallow.evaluate.features import block_outputs, features, without_head

LAST = "features"  # what the head looks at, among the names of blocks


class Frozen(nn.Module):
    """Takes examples as data hold them and gives what the network's head would look at.

    ``network`` is whole, with its head. ``shape`` is that of examples as it was trained on, to which images are
    brought: grey ones become equal channels, colours their mean, and sizes are resized. ``size`` is what a pretrained
    network sees them in instead. Both ``mean`` and ``std`` are on the scale of the examples.

    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.ReLU(), nn.Linear(5, 2))
    >>> frozen = Frozen(net, (3, 2, 2), None, None)
    >>> frozen(torch.zeros(7, 1, 4, 4, dtype=torch.uint8)).shape
    torch.Size([7, 5])
    """

    mean: Tensor | None
    std: Tensor | None

    def __init__(
        self, network: nn.Module, shape: Sequence[int], mean: Tensor | None, std: Tensor | None, size: int | None = None
    ) -> None:
        super().__init__()
        self.shape, self.size = tuple(shape), size
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)
        zeros = self.inputs(torch.zeros(2, *shape))
        self.network = without_head(network, zeros)
        self.own = block_outputs(network, None, zeros)  # without its head, the last block would pass for it
        self.requires_grad_(False).eval()

    def fits(self, shape: Sequence[int]) -> str:
        """What is done to examples of this shape, in words; refused if nothing can be."""
        theirs = tuple(shape)
        if theirs == self.shape:
            return ""
        other = theirs[0] != self.shape[0]
        if len(self.shape) != 3 or len(theirs) != 3 or (other and {theirs[0], self.shape[0]} != {1, 3}):
            raise RequestError(
                f"examples have shape {_of(theirs)} and the network takes {_of(self.shape)}: "
                "only images can be resized, and only grey and colour ones stand in for each other"
            )
        done = []
        if theirs[1:] != self.shape[1:]:
            done.append(f"resized from {_of(theirs[1:])} to {_of(self.shape[1:])}")
        if other:
            done.append("grey taken as three equal channels" if theirs[0] == 1 else "colours averaged to grey")
        return " and ".join(done)

    def inputs(self, x: Tensor) -> Tensor:
        """Examples as the network takes them."""
        if x.ndim == 4:
            x = x.expand(-1, self.shape[0], -1, -1) if x.shape[1] == 1 else x
            x = x.float().mean(1, keepdim=True) if self.shape[0] == 1 < x.shape[1] else x
            return resized(normalise(x, self.mean, self.std), self.size or (self.shape[1], self.shape[2]))
        return normalise(x, self.mean, self.std)

    def forward(self, x: Tensor) -> Tensor:
        """The features of a batch."""
        return self.network(self.inputs(x))

    def blocks(self, names: Sequence[str] | None = None) -> dict[str, str]:
        """The network's blocks, or those that are named, with the modules whose outputs are theirs."""
        if names is None:
            return self.own
        known = block_outputs(self.network, names, torch.empty(0))
        return {name: self.own.get(name, path) for name, path in known.items()}

    def identity(self) -> str:
        """A digest of all that decides what it gives."""
        state = [piece for name, tensor in self.state_dict().items() for piece in (name, of_tensor(tensor))]
        return together(str(self.network), self.shape, self.size, *state)

    def batches(self, part: Examples | Files) -> Iterator[Tensor]:
        """All examples, as the network takes them, as many at a time as memory likes."""
        few = evaluated_at_once(4 * self.shape[0] * (self.size or self.shape[-1]) ** 2, torch.device("cpu"))
        for rows in torch.arange(len(part)).split(few):
            x = part.x[rows] if isinstance(part, Examples) else torch.stack([part[i][0] for i in rows.tolist()])
            yield self.inputs(x.to(next((p.device for p in self.parameters()), None)))


def frozen_features(
    frozen: Frozen, part: Examples | Files, folder: Path | None = None, blocks: Sequence[str] | None = ()
) -> dict[str, Tensor]:
    """What the head looks at, as :data:`LAST`, after the outputs of blocks, averaged over space; None: of all blocks.

    With a folder they are kept there under the digest of the network, the examples and the blocks, and found again.
    """
    outputs = frozen.blocks(blocks) if blocks != () else {}
    key = together(frozen.identity(), digest(part), outputs, torch.__version__)[:32]
    kept = None if folder is None else folder / f"{key}.safetensors"
    if kept is not None and (found := _read(kept, [*outputs, LAST])) is not None:
        return found
    inner, rows = features(frozen.network, outputs, frozen.batches(part))
    if rows.ndim != 2:
        raise RequestError(f"the head looks at a tensor of shape {tuple(rows.shape[1:])}: a row of features is needed")
    if not rows.isfinite().all():
        raise RequestError("the network gives features that are not finite: it has diverged")
    found = {name: x.float().cpu() for name, x in {**inner, LAST: rows}.items()}
    if kept is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        files.write(kept, safetensors.torch.save({name: x.contiguous() for name, x in found.items()}))
    return found


def _read(path: Path, names: Sequence[str]) -> dict[str, Tensor] | None:
    """Features that were kept; what is damaged is computed again."""
    try:
        found = safetensors.torch.load_file(path)
        return {name: found[name] for name in names}
    except (OSError, KeyError, safetensors.SafetensorError):
        return None


def _of(shape: Sequence[int]) -> str:
    return "×".join(map(str, shape))
