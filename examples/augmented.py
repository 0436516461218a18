"""A grid of images as FixMatch sees them: the image, two weak views, and one strong view for each operation.

    python examples/augmented.py fashion_mnist.npz docs/augmented.png --images 4

A few seconds. Look for: weak views that are only shifted (and mirrored, where they have colours), strong views with a
grey square of half the side, black where an image was moved away, and nothing that is the same in two rows.
"""

from __future__ import annotations

import argparse

import torch
from matplotlib import pyplot

from fallow.data import load
from fallow.data.augment import augment
from fallow.data.strong import NUMBER, OPERATIONS, apply_strong, draw_strong
from fallow.methods.semi.fixmatch import weak_policy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("out")
    parser.add_argument("--images", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    data, draw = load(options.data), torch.Generator().manual_seed(options.seed)
    x = data.train.x[torch.randperm(len(data.train), generator=draw)[: options.images]]
    policy = weak_policy("auto", data.shape)
    columns = {"image": x, "weak": augment(x, draw, policy), "weak again": augment(x, draw, policy)}
    for name in OPERATIONS:  # each operation alone, then the square
        strong = draw_strong(len(x), data.shape, draw)
        strong.operation[:] = torch.tensor([NUMBER[name], NUMBER["identity"]])
        columns[name] = apply_strong(augment(x, draw, policy), strong)
    for title in ("two of them", "two others"):
        columns[title] = apply_strong(augment(x, draw, policy), draw_strong(len(x), data.shape, draw))
    figure, axes = pyplot.subplots(len(x), len(columns), figsize=(0.8 * len(columns), 0.85 * len(x) + 0.4))
    for column, (title, images) in enumerate(columns.items()):
        axes[0, column].set_title(title.replace(" ", "\n").replace("-", "-\n"), fontsize=7)
        for row, image in enumerate(images):
            axes[row, column].imshow(image.permute(1, 2, 0).squeeze(), cmap="gray", vmin=0, vmax=255)
            axes[row, column].axis("off")
    figure.subplots_adjust(left=0.01, right=0.99, bottom=0.01, top=0.9, wspace=0.06, hspace=0.06)
    figure.savefig(options.out, dpi=80)


if __name__ == "__main__":
    main()
