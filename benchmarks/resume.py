"""SIGKILL at random moments, then ``--resume``: are the final weights the same to the bit?

For every registered method, and SEAL's adaptive ascent: one whole run of the command line, then runs that are
killed at a random moment and resumed. Checkpoints are written after every step, and every other kill waits for
the middle of one. ``ratios`` gives the share of runs that came out identical; it must be 1.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from fallow.cli.main import main
from fallow.core import checkpoint, loop
from fallow.methods import REGISTRY
from fallow.training.fit import fit

METHODS = [*(name for name, kind in REGISTRY.items() if not kind.tasks), "seal:ascent=adaptive"]
MODEL = "scnn:width=4,dense=16,norm=batch,dropout=0.1"  # buffers and a random generator to restore
ARGUMENTS = ["train", "digits", "--train=160", f"--model={MODEL}", "--augment=crop", "--generations=3", "--epochs=4",
             "--batch-size=16", "--lr=0.03", "--checkpoint-every=0"]  # fmt: skip


def start(out: Path, method: str) -> int:
    """Train in a child by the command line; its process."""
    child = os.fork()
    if child:
        return child
    try:
        torch.set_num_threads(1)
        loop.LIVE = 0.0  # a checkpoint after every step
        sys.argv = ["fallow", *ARGUMENTS, "--method", method, "--out", str(out), "--resume"]
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            main()
    except SystemExit as end:
        os._exit(int(end.code or 0))
    os._exit(3)


def wait_for_writing(out: Path) -> None:
    """Until a checkpoint is being written beside the old one, or a second is over."""
    end = time.monotonic() + 1
    while time.monotonic() < end and not any(path.name.startswith(".checkpoint.") for path in _listed(out)):
        pass


def _listed(out: Path) -> list[Path]:
    try:
        return list(out.iterdir())
    except FileNotFoundError:
        return []


def measure(repetitions: int | None = None) -> dict[str, Any]:
    kills = repetitions or 20
    torch.set_num_threads(1)
    fit("mlp", "digits", train=80, epochs=1)  # all that is imported on the way, the children inherit
    moments = random.Random(0)
    ratios, counts = {}, {}
    for method in METHODS:
        with tempfile.TemporaryDirectory() as folder:
            whole = Path(folder) / "whole"
            began = time.monotonic()
            assert os.waitpid(start(whole, method), 0)[1] == 0
            length = time.monotonic() - began
            same = writing = climbing = 0
            for number in range(kills):
                out = Path(folder) / str(number)
                child = start(out, method)
                time.sleep(moments.uniform(0.02, 0.98) * length)
                if number % 2:  # every other time in the middle of the next checkpoint
                    wait_for_writing(out)
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                writing += bool(list(out.glob(".checkpoint.*")))
                if (out / "checkpoint").exists():
                    climbing += checkpoint.load(out / "checkpoint")["phase"] == "ascent"
                assert os.waitpid(start(out, method), 0)[1] == 0
                names = ("last.safetensors", "best.safetensors")
                same += all((out / name).read_bytes() == (whole / name).read_bytes() for name in names)
            ratios[method] = same / kills
            counts[method] = f"{same} of {kills} identical; {writing} killed inside a checkpoint, {climbing} climbing"
            print(f"{method:24} {counts[method]}", file=sys.stderr, flush=True)
    return {"ratios": ratios, "counts": counts}
