"""Weak and strong augmentation of a batch against the same policy by Pillow, image by image; and what FixMatch costs.

``batched_vs_pil`` is Pillow's time over ours for 448 images of 3×32×32 (a batch of FixMatch), one thread: above 1 is
faster. ``kornia_vs_pil`` is its RandAugment, which draws two operations for the batch, not for each image.
``meta_vs_step`` is one meta-update of a confidence network over one training step, by the inner products of all weights
(scnn of width 8, 64 labels and 448 unlabelled images, all of them sure, 300 validation labels); ``cosine_vs_step`` the
same by the last layer's cosines, which is the default, and ``cg_vs_step`` by damped CG.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from benchmarks.timing import Work, compare, interleave
from fallow.data import Data, Examples
from fallow.data.augment import apply, draw
from fallow.data.strong import apply_strong, draw_strong
from fallow.training.prepare import prepare
from tests.data.pillow import strongly

IMAGES, SHAPE = 448, (3, 32, 32)


def batched(x: Tensor, source: torch.Generator) -> None:
    apply(x, draw(len(x), SHAPE, "flip+reflect", source))
    strong = apply(x, draw(len(x), SHAPE, "flip+reflect", source))
    apply_strong(strong, draw_strong(len(x), SHAPE, source))


def one_by_one(x: Tensor, source: torch.Generator) -> None:
    weakly(x, source)
    strongly(weakly(x, source), draw_strong(len(x), SHAPE, source))


def weakly(x: Tensor, source: torch.Generator) -> Tensor:
    """Flip and reflect-padded crop of one image after the other, by Pillow and numpy."""
    moves = draw(len(x), SHAPE, "flip+reflect", source)
    assert moves.flip is not None
    assert moves.start is not None
    done = []
    for pixels, flip, (top, left) in zip(
        x.permute(0, 2, 3, 1).numpy(), moves.flip.tolist(), moves.start.tolist(), strict=True
    ):
        image = Image.fromarray(np.pad(pixels, ((4, 4), (4, 4), (0, 0)), mode="reflect"))
        image = image.crop((left, top, left + 32, top + 32))
        done.append(np.asarray(ImageOps.mirror(image) if flip else image))
    return torch.from_numpy(np.stack(done)).permute(0, 3, 1, 2)


def augmentation(repetitions: int) -> dict[str, Any]:
    from kornia.augmentation.auto import RandAugment

    x = torch.randint(256, (IMAGES, *SHAPE), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    source, kornia = torch.Generator().manual_seed(1), RandAugment(n=2, m=10)

    def rival(work: Any) -> Any:
        def prepared() -> Work:
            def run() -> int:
                work(x, source)
                return 1

            return run

        return prepared

    rivals = {
        "batched": rival(batched),
        "pil": rival(one_by_one),
        "kornia": rival(lambda x, _: kornia(x.float() / 255)),
    }
    times = interleave(rivals, repetitions)
    return compare(times, {"batched_vs_pil": ("pil", "batched"), "kornia_vs_pil": ("pil", "kornia")})


def meta(repetitions: int, form: str) -> list[float]:
    """One meta-update over one step, several times."""
    draw = torch.Generator().manual_seed(0)

    def some(n: int) -> Examples:
        return Examples(torch.randint(256, (n, 1, 28, 28), dtype=torch.uint8, generator=draw), torch.arange(n) % 10)

    data = Data("noise", some(64), some(300), None, [str(i) for i in range(10)], (1, 28, 28), unlabelled=some(448))
    method = f"confidence:threshold=0.0,warmup=100000,{form}"  # all images are sure
    ctx = prepare("scnn:width=8,dense=64", data, method, generations=1, epochs=1, batch_size=64, lr=0.01)
    ctx.method.begin_generation(ctx)
    ctx.wrapped.train()
    ratios = []
    for _ in range(repetitions + 1):
        clocks = [time.process_time()]
        batch = next(iter(ctx.method.stream(ctx)))
        ctx.method.update(ctx, lambda batch=batch: ctx.backward(batch))
        ctx.method.end_step(ctx)
        clocks.append(time.process_time())
        ctx.method.meta_update(ctx)  # type: ignore[attr-defined]
        clocks.append(time.process_time())
        ratios.append((clocks[2] - clocks[1]) / (clocks[1] - clocks[0]))
    return ratios[1:]


def measure(repetitions: int | None = None) -> dict[str, Any]:
    torch.set_num_threads(1)
    measured = augmentation(repetitions or 20)
    for name, form in (
        ("meta_vs_step", "form=centred"),
        ("cosine_vs_step", "form=cosine"),
        ("cg_vs_step", "form=centred,solver=cg"),
    ):
        low, middle, high = statistics.quantiles(meta(repetitions or 10, form), n=4)
        measured["ratios"][name] = round(middle, 4)
        measured["spread"][name] = (round(low, 4), round(high, 4))
    return measured
