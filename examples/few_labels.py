"""Supervised training against FixMatch with few labels: test accuracy of each seed, and the difference.

    python examples/few_labels.py fashion_mnist.npz --labels 40 --seeds 3

About twelve minutes on one idle core. The supervised run has the same number of steps and the same weak augmentation,
on the labels alone. The bar: FixMatch at least four points above it, in the mean.
"""

from __future__ import annotations

import argparse
import statistics

import torch

import fallow
from fallow.data import budget, load


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--labels", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--unlabelled", type=int, default=10000)
    parser.add_argument("--augment", default="flip+reflect")
    parser.add_argument("--model", default="scnn:width=8,dense=64")
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = load(options.data, val=0.1)
    gains = []
    for seed in range(options.seeds):
        few = budget(data, options.labels, val=300, unlabelled=options.unlabelled, seed=seed)
        shared = {
            "generations": 1, "batch_size": 64, "lr": 0.03, "augment": options.augment, "label_smoothing": 0.0,
            "seed": seed, "test_at_end": True,
        }  # fmt: skip
        per_epoch = -(-options.labels // 64)
        supervised = fallow.fit(
            options.model, few, "normal", epochs=options.steps // per_epoch, evaluate_every=50, **shared
        )
        fixmatch = fallow.fit(options.model, few, f"fixmatch:steps={options.steps // 10}", epochs=10, **shared)
        scores = [100 * result.last["test_accuracy"] for result in (supervised, fixmatch)]
        gains.append(scores[1] - scores[0])
        times = f"{supervised.seconds:.0f} s, {fixmatch.seconds:.0f} s"
        print(f"seed {seed}: supervised {scores[0]:.2f}, fixmatch {scores[1]:.2f} ({times})", flush=True)
    print(f"fixmatch − supervised: {statistics.mean(gains):+.2f} points, mean of {len(gains)} seeds")


if __name__ == "__main__":
    main()
