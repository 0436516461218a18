"""Your own network, and a method
==============================

``fallow.fit`` takes any ``nn.Module`` and data as arrays, a Dataset, a file or a bundled name. Here a small
convolutional network forgets its later layers (LLF) and relearns them, on 200 handwritten digits.
"""

# %%
# A network as anyone writes it. Nothing about it is fallow's.

import torch
from torch import nn

import fallow


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 2 * 2, 10),
    )  # fmt: skip


# %%
# The method, and its control: `restart` has the same generations and the same schedule, and forgets nothing.

settings = {"generations": 3, "epochs": 8, "lr": 0.05, "batch_size": 32, "augment": "none", "train": 200}
llf = fallow.fit(network(), "digits", method="llf", **settings)
restart = fallow.fit(network(), "digits", method="restart", **settings)

# %%
# What happened in every generation: how little was known right after the later layers were drawn afresh, and what was
# known at its end.

for number, record in enumerate(llf.generations, 1):
    forgot, last = record.get("forgot_to"), record["last"]
    right_after = "" if forgot is None else f"{forgot:.2f} right after forgetting, "
    print(
        f"generation {number}: {right_after}{last['train_accuracy']:.2f} at the end, test {last['test_accuracy']:.3f}"
    )

print(f"llf {llf.last['test_accuracy']:.3f}, restart {restart.last['test_accuracy']:.3f}")

# %%
# One pair of runs shows nothing: ``fallow.compare`` runs as many as a verdict takes. The model takes the examples as
# the data hold them, bytes here; the scaling is inside.

images = torch.randint(0, 256, (2, 1, 8, 8), dtype=torch.uint8)
print(llf.model(images).shape)
