"""Hugging Face's Trainer with a method does what fallow's own loop does, and resumes to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset

from fallow.base.errors import RequestError
from fallow.methods import LLF
from tests.adapters.small import (
    BATCH,
    EPOCHS,
    GENERATIONS,
    METHODS,
    RATE,
    assert_close,
    assert_same,
    examples,
    network,
    own_loop,
    sgd,
)  # fmt: skip

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")
from fallow.adapters.transformers import FallowTrainer  # noqa: E402


class Named(Dataset[dict[str, Tensor]]):
    def __init__(self, **columns: Tensor) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns["labels"])

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {name: column[index] for name, column in self.columns.items()}


def named() -> Named:
    x, y = examples().tensors
    return Named(x=x, labels=y)


def arguments(folder: Path, **options: Any) -> Any:
    given = {
        "num_train_epochs": GENERATIONS * EPOCHS, "per_device_train_batch_size": BATCH, "learning_rate": RATE,
        "lr_scheduler_type": "constant", "max_grad_norm": 0.0, "save_strategy": "no", "logging_strategy": "no",
        "report_to": "none", "disable_tqdm": True, "use_cpu": True, "train_sampling_strategy": "sequential",
    }  # fmt: skip
    return transformers.TrainingArguments(folder, **given | options)


def trained(method: str, folder: Path, model: nn.Module, data: Any = None, **options: Any) -> FallowTrainer:
    trainer = FallowTrainer(
        model, arguments(folder, **options), train_dataset=data or named(), method=method, generations=GENERATIONS,
        optimizers=(sgd(model.parameters()), None), seed=0,
    )  # fmt: skip
    trainer.train()
    return trainer


@pytest.mark.parametrize("method", [*METHODS, "llf+fam"])
def test_agrees_with_the_own_loop(method: str, tmp_path: Path) -> None:
    net = network()
    trained(method, tmp_path, net)
    assert_close(net.state_dict(), own_loop(method))


def bert(dropout: float = 0.1) -> nn.Module:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=20, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=8, num_labels=3, hidden_dropout_prob=dropout,
    )  # fmt: skip
    return transformers.BertForSequenceClassification(config)


def vit(dropout: float = 0.1) -> nn.Module:
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16, image_size=8, patch_size=4,
        num_channels=1, num_labels=3, hidden_dropout_prob=dropout,
    )  # fmt: skip
    return transformers.ViTForImageClassification(config)


def texts() -> Named:
    drawn = torch.Generator().manual_seed(0)
    words, labels = torch.randint(20, (24, 6), generator=drawn), torch.randint(3, (24,), generator=drawn)
    return Named(input_ids=words, attention_mask=torch.ones_like(words), labels=labels)


def images() -> Named:
    drawn = torch.Generator().manual_seed(0)
    pixels, labels = torch.randn(24, 1, 8, 8, generator=drawn), torch.randint(3, (24,), generator=drawn)
    return Named(pixel_values=pixels, labels=labels)


def plain() -> nn.Module:
    """A batch norm would see other batches."""
    net = network()
    net.one[1] = nn.Identity()
    return net


class Counted(nn.Module):
    """Gives its loss as a share of all items of the step, as language models do."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = plain()

    def forward(self, x: Tensor, labels: Tensor | None = None, num_items_in_batch: Any = None, **_: Any) -> Any:
        logits = self.inner(x)
        if labels is None:
            return logits
        return {"loss": cross_entropy(logits, labels, reduction="sum") / num_items_in_batch, "logits": logits}


@pytest.mark.parametrize("make", [plain, Counted])
@pytest.mark.parametrize("method", ["sam", "llf+fam:strength=0.01"])
def test_micro_batches_are_one_batch(method: str, make: Any, tmp_path: Path) -> None:
    """Two of half the size give what one gives: a penalty is scaled as the loss is, SAM climbs along their mean."""
    found = []
    for size in (BATCH, BATCH // 2):
        options = {"per_device_train_batch_size": size, "gradient_accumulation_steps": BATCH // size}
        model = make()
        trained(method, tmp_path, model, max_grad_norm=0.5, **options)
        found.append(model.state_dict())
    assert_close(*found)


@pytest.mark.parametrize(
    ("method", "make", "data"),
    [
        ("llf+ema:decay=0.9", bert, texts), ("seal:scale=0.5", bert, texts),
        ("lw:normalisation=False+fam", bert, texts),
        ("sam", vit, images), ("imp+fam", vit, images), ("lw", network, named),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:seal's ascent")
def test_resumes_to_the_bit(method: str, make: Any, data: Any, tmp_path: Path) -> None:
    """From the middle of an epoch, with dropout, shuffled examples, two micro-batches and the Trainer's own AdamW."""

    def trainer() -> FallowTrainer:
        options = {"train_sampling_strategy": "random", "save_strategy": "steps", "save_steps": 7, "max_grad_norm": 1.0}
        halves = {"per_device_train_batch_size": BATCH // 2, "gradient_accumulation_steps": 2}
        settings = arguments(tmp_path, learning_rate=1e-3, lr_scheduler_type="linear", **options, **halves)
        return FallowTrainer(make(), settings, train_dataset=data(), method=method, generations=GENERATIONS)

    whole = trainer()
    whole.train()
    again = trainer()
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-14"))
    assert_same(again.model.state_dict(), whole.model.state_dict())


def test_epochs_may_begin_where_a_checkpoint_was_written(tmp_path: Path) -> None:
    """As ``ignore_data_skip`` lets them; the method's own go on by steps, and the second generation begins once."""
    options: dict[str, Any] = {"save_strategy": "steps", "save_steps": 4, "ignore_data_skip": True}
    begun: list[int] = []

    class Counts(LLF):
        def begin_generation(self, ctx: Any) -> None:
            begun.append(ctx.clock.generation)

    for resumed in (None, str(tmp_path / "checkpoint-4")):
        net = network()
        FallowTrainer(
            net, arguments(tmp_path, **options), train_dataset=named(), method=Counts(), generations=GENERATIONS,
            optimizers=(sgd(net.parameters()), None),
        ).train(resume_from_checkpoint=resumed)  # fmt: skip
    assert begun == [0, 1, 1]


def test_the_average_is_evaluated(tmp_path: Path) -> None:
    net = network()
    looked: list[Tensor] = []

    def metrics(found: Any) -> dict[str, float]:
        looked.append(torch.as_tensor(found.predictions))
        return {}

    trainer = FallowTrainer(
        net, arguments(tmp_path, eval_strategy="epoch"), train_dataset=named(), eval_dataset=named(),
        method="ema:decay=0.9", generations=GENERATIONS, optimizers=(sgd(net.parameters()), None),
        compute_metrics=metrics,
    )  # fmt: skip
    trainer.train()
    with torch.no_grad():
        assert_close({"z": net.eval()(examples().tensors[0])}, {"z": looked[-1]})  # the model has it in the end


@pytest.mark.parametrize(
    ("method", "options", "why"),
    [
        ("llf", {"num_train_epochs": 7}, "not a multiple"),
        ("llf", {"max_steps": 7}, "counts epochs"),
        ("mixup", {}, "fallow.fit"),
        ("balanced", {}, "balanced"),
    ],
)
def test_refuses_before_anything_is_done(method: str, options: dict[str, Any], why: str, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=why):
        trained(method, tmp_path, network(), **options)
