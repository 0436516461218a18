"""A method in Lightning's Trainer
===============================

One callback trains a LightningModule by a method. The module, its optimiser and its data stay as they are.
"""

# %%
# A module as anyone writes it, on 300 handwritten digits.

import logging

import torch
from lightning.pytorch import LightningModule, Trainer
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from fallow.adapters.lightning import Fallow

x, y = load_digits(return_X_y=True)
digits = TensorDataset(torch.tensor(x / 16, dtype=torch.float32), torch.tensor(y))
train, test = torch.utils.data.Subset(digits, range(300)), torch.utils.data.Subset(digits, range(300, len(digits)))


class Digits(LightningModule):
    """Four dense layers."""

    def __init__(self) -> None:
        super().__init__()
        hidden = [layer for _ in range(3) for layer in (nn.Linear(64, 64), nn.ReLU())]
        self.model = nn.Sequential(*hidden, nn.Linear(64, 10))

    def training_step(self, batch, _):
        return functional.cross_entropy(self.model(batch[0]), batch[1])

    def validation_step(self, batch, _):
        self.log("accuracy", (self.model(batch[0]).argmax(1) == batch[1]).float().mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


# %%
# `max_epochs` is divided into the generations, and `schedule` lets the rate start again with each of them. Here the
# later layers are re-drawn twice (LLF), and a moving average of the weights (EMA) is what is validated.


def fitted(*callbacks: Fallow) -> tuple[float, dict[str, float]]:
    torch.manual_seed(0)
    trainer = Trainer(
        max_epochs=18, callbacks=list(callbacks), accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0, check_val_every_n_epoch=18,
    )  # fmt: skip
    trainer.fit(Digits(), DataLoader(train, batch_size=25, shuffle=True), DataLoader(test, batch_size=500))
    logged = {name: float(value) for name, value in trainer.callback_metrics.items()}
    return logged.pop("accuracy"), logged


logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
plain, _ = fitted()
ours, logged = fitted(Fallow("llf+ema:decay=0.95", generations=3, schedule="cosine", network="model"))
print(f"plain {plain:.3f}, with the callback {ours:.3f}")

# %%
# What the method measures is logged beside what the module logs. One pair of trainings shows nothing about which is
# better: ``fallow compare`` runs as many as a verdict takes.

for name, value in sorted(logged.items()):
    print(f"{name}: {value:.2f}")
