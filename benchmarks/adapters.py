"""What a method adds to a step of Lightning's and of Hugging Face's training.

scnn on 320 pictures of 28 × 28 in batches of 32, two generations of two epochs. Steps are timed from the host's own
event before one to that after it, and those of the first epoch are left out. Every training with a method has a plain
one right beside it, before it in one turn and after it in the next; a turn's ratio is that of the medians of the two.
"""

from __future__ import annotations

import logging
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
from transformers import PrinterCallback, TrainerCallback, TrainingArguments
from transformers import Trainer as HuggingFaceTrainer

from benchmarks.timing import compare
from fallow import models
from fallow.adapters.lightning import Fallow
from fallow.adapters.transformers import FallowTrainer

METHODS = ("llf", "seal:scale=0.1", "lw", "imp", "sam", "fam", "ema")
EPOCHS, GENERATIONS, BATCH, EXAMPLES = 4, 2, 32, 320


class Net(nn.Module):
    """scnn, which gives the loss as well where it is given labels."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.network = models.build("scnn", shape=(1, 28, 28), classes=10)

    def forward(self, x: Tensor, labels: Tensor | None = None) -> Any:
        logits = self.network(x)
        return logits if labels is None else {"loss": functional.cross_entropy(logits, labels), "logits": logits}


class Stopwatch:
    """CPU and wall seconds of every step."""

    def __init__(self) -> None:
        self.steps: list[tuple[float, float]] = []

    def start(self) -> None:
        self.began = time.process_time(), time.perf_counter()

    def stop(self) -> None:
        self.steps.append((time.process_time() - self.began[0], time.perf_counter() - self.began[1]))


def examples() -> tuple[Tensor, Tensor]:
    drawn = torch.Generator().manual_seed(0)
    return torch.randn(EXAMPLES, 1, 28, 28, generator=drawn), torch.randint(10, (EXAMPLES,), generator=drawn)


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


class Module(LightningModule):
    """The network in Lightning's clothes."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Net()

    def training_step(self, batch: Any, _: int) -> Tensor:
        return functional.cross_entropy(self.model(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return sgd(self)


class Timed(Callback):
    """Lightning's events to a stopwatch."""

    def __init__(self, watch: Stopwatch) -> None:
        self.watch = watch

    def on_train_batch_start(self, *_: Any) -> None:
        self.watch.start()

    def on_train_batch_end(self, *_: Any) -> None:
        self.watch.stop()


class TimedTrainer(TrainerCallback):
    """Hugging Face's events to a stopwatch."""

    def __init__(self, watch: Stopwatch) -> None:
        self.watch = watch

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self.watch.start()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.watch.stop()


def lightning(method: str, watch: Stopwatch) -> None:
    own = [] if method == "plain" else [Fallow(method, generations=GENERATIONS, network="model")]
    trainer = Trainer(
        max_epochs=EPOCHS, callbacks=[Timed(watch), *own], accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Module(), DataLoader(TensorDataset(*examples()), batch_size=BATCH))


def trainer(method: str, watch: Stopwatch) -> None:
    x, y = examples()
    model = Net()
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, num_train_epochs=EPOCHS, per_device_train_batch_size=BATCH, lr_scheduler_type="constant",
            save_strategy="no", logging_strategy="no", report_to="none", disable_tqdm=True, use_cpu=True,
        )  # fmt: skip
        how: dict[str, Any] = {
            "train_dataset": [{"x": a, "labels": b} for a, b in zip(x, y, strict=True)],
            "optimizers": (sgd(model), None), "callbacks": [TimedTrainer(watch)],
        }  # fmt: skip
        if method == "plain":
            made = HuggingFaceTrainer(model, arguments, **how)
        else:
            made = FallowTrainer(model, arguments, method=method, generations=GENERATIONS, **how)
        made.remove_callback(PrinterCallback)  # standard output is for the ratios
        made.train()


def measure(repetitions: int | None = None) -> dict[str, Any]:
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    hosts: dict[str, Callable[[str, Stopwatch], None]] = {"lightning": lightning, "trainer": trainer}
    pairs = {f"{host}_{m}_vs_plain": (f"{host} {m}", f"{host} plain beside {m}") for host in hosts for m in METHODS}
    times: dict[str, dict[str, list[float]]] = {
        name: {"cpu": [], "wall": []} for pair in pairs.values() for name in pair
    }
    for turn in range(repetitions or 6):
        for host, method in [(host, method) for host in hosts for method in METHODS]:
            both = [(method, f"{host} {method}"), ("plain", f"{host} plain beside {method}")]
            for trained, name in both if turn % 2 else both[::-1]:
                watch = Stopwatch()
                hosts[host](trained, watch)
                kept = watch.steps[EXAMPLES // BATCH :]
                for clock, values in zip(("cpu", "wall"), zip(*kept, strict=True), strict=True):
                    times[name][clock].append(statistics.median(values) * 1e6)
    return compare(times, pairs)
