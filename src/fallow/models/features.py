"""What frozen layers give for every example, computed once and kept by content: for all seeds, methods and runs."""

from __future__ import annotations

from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from fallow.base import files
from fallow.base.lock import locked
from fallow.data import Data, Examples, Files, stream
from fallow.data.content import of_files, of_rows, together
from fallow.models.cut import Front


def front_features(front: Front, part: Examples | Files, data: Data, folder: str | Path | None = None) -> Tensor:
    """What ``front`` gives for each example of a part of ``data``, scaled and resized as its network sees them.

    With a folder it is kept there, example by example: other splits of the same data set find what they share, and of
    two processes that need the same one waits for the other.
    """
    if folder is None:
        return _computed(front, part, data)
    home = Path(folder) / together(front.identity, data.normalisation(), torch.__version__)[:16]
    home.mkdir(parents=True, exist_ok=True)
    names = [digest.hex()[:32] for digest in _digests(part)]
    with locked(home / "lock", wait=True):
        kept = _kept(home)
        missing = [row for row, name in enumerate(names) if name not in kept]
        if missing:
            new = _computed(front, part.subset(torch.tensor(missing)), data)
            own = [names[row] for row in missing]
            ids = torch.tensor([list(bytes.fromhex(name)) for name in own], dtype=torch.uint8)
            file = home / f"{together(own)[:16]}.safetensors"
            files.write(file, safetensors.torch.save({"examples": ids, "features": new}))
            kept |= {name: (file, row) for row, name in enumerate(own)}
    rows = [kept[name] for name in names]
    held = {file: safetensors.torch.load_file(file)["features"] for file in dict.fromkeys(file for file, _ in rows)}
    return torch.stack([held[file][row] for file, row in rows])


def _computed(front: Front, part: Examples | Files, data: Data) -> Tensor:
    place = next((p.device for p in front.parameters()), torch.device("cpu"))
    batches = stream(part, data, batch_size=256, seed=0, device=place).ordered()
    return torch.cat([front(x).float().cpu() for x, _ in batches])


def _digests(part: Examples | Files) -> list[bytes]:
    if isinstance(part, Examples):
        return of_rows(part.x)
    return [bytes.fromhex(together(one, part.size, part.channels)) for one in of_files(part.paths)]


def _kept(home: Path) -> dict[str, tuple[Path, int]]:
    """Where every example's row is; a file that is damaged is as good as none."""
    found: dict[str, tuple[Path, int]] = {}
    for file in sorted(home.glob("*.safetensors")):
        try:
            with safetensors.safe_open(file, "pt") as content:
                ids = content.get_tensor("examples")
                content.get_slice("features")
        except (OSError, safetensors.SafetensorError):
            file.unlink(missing_ok=True)
            continue
        found |= {bytes(row).hex(): (file, number) for number, row in enumerate(ids.tolist())}
    return found
