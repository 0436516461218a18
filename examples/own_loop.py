"""One method in a loop of your own
================================

Under every method lie plain functions that work in anyone's loop. Here are LLF's re-drawing and SEAL's ascent in ten
lines of PyTorch.
"""

# %%
# Ordinary training of an ordinary network.

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

from fallow import Partition, ascend, descend, redraw, split_groups

x, y = load_digits(return_X_y=True)
x, y = torch.tensor(x / 16, dtype=torch.float32), torch.tensor(y)
train, test = slice(0, 300), slice(300, None)

torch.manual_seed(0)
model = nn.Sequential(
    nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def epoch() -> None:
    for rows in torch.randperm(300).split(50):
        optimizer.zero_grad()
        functional.cross_entropy(model(x[train][rows]), y[train][rows], label_smoothing=0.1).backward()
        optimizer.step()


def accuracy(part: slice) -> float:
    with torch.no_grad():
        return (model(x[part]).argmax(1) == y[part]).float().mean().item()


# %%
# The early and the late half of the network. Any module will do: the order in which its layers run is found out.

parts = Partition(model, 0.5)
print(parts)

# %%
# **LLF**: at the start of every generation but the first, the late layers are drawn afresh.

for generation in range(3):
    if generation > 0:
        redraw(model, parts.late, optimizer=optimizer)  # and their momentum is forgotten
        print(f"right after forgetting: {accuracy(train):.2f} of the training examples")
    for _ in range(20):
        epoch()
    print(f"generation {generation + 1}: training {accuracy(train):.2f}, test {accuracy(test):.3f}")

# %%
# **SEAL**: the early layers climb at the start of a generation, here until a fifth of the training examples is
# forgotten, and then descend with the rest.

sides = split_groups(optimizer, parts)
ascend(sides["early"], scale=0.1)  # the gradient turns; the rate is 0.1 of what it was
climbed = 0
while accuracy(train) > 0.8:
    epoch()
    climbed += 1
print(f"after {climbed} epochs of ascent: {accuracy(train):.2f} of the training examples")
descend(sides["early"])
for _ in range(20):
    epoch()
print(f"relearned: training {accuracy(train):.2f}, test {accuracy(test):.3f}")
