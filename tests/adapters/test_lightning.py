"""A Lightning training with the callback does what fallow's own loop does, and resumes to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader

from fallow.base.errors import RequestError
from tests.adapters.small import (
    BATCH,
    EPOCHS,
    GENERATIONS,
    METHODS,
    RATE,
    assert_close,
    assert_same,
    batches,
    examples,
    network,
    own_loop,
    sgd,
)  # fmt: skip

lightning = pytest.importorskip("lightning.pytorch")
from fallow.adapters.lightning import Fallow  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),  # of Lightning about torch
    pytest.mark.filterwarnings("ignore:Checkpoint directory"),
    pytest.mark.filterwarnings("ignore::lightning.fabric.utilities.warnings.PossibleUserWarning"),
]


class Module(lightning.LightningModule):
    def __init__(self, model: nn.Module, scheduler: Any = None) -> None:
        super().__init__()
        self.model, self.scheduler = model, scheduler

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x)

    def training_step(self, batch: Any, _: int) -> Tensor:
        x, y = batch
        loss = functional.cross_entropy(self.model(x), y)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: Any, _: int) -> None:
        self.log("seen", self.model.head.bias.sum())

    def configure_optimizers(self) -> Any:
        optimizer = sgd(self.parameters())
        return optimizer if self.scheduler is None else ([optimizer], [self.scheduler(optimizer)])


def trainer(folder: Path, *callbacks: Any, **options: Any) -> Any:
    return lightning.Trainer(
        max_epochs=GENERATIONS * EPOCHS, callbacks=list(callbacks), accelerator="cpu", logger=False,
        default_root_dir=folder, enable_progress_bar=False, enable_model_summary=False, **options,
    )  # fmt: skip


def callback(method: str, **options: Any) -> Any:
    return Fallow(method, generations=GENERATIONS, network="model", **options)


@pytest.mark.parametrize("method", [*METHODS, "llf+fam"])
def test_agrees_with_the_own_loop(method: str, tmp_path: Path) -> None:
    module = Module(network())
    trainer(tmp_path, callback(method), enable_checkpointing=False).fit(module, batches())
    assert_close(module.model.state_dict(), own_loop(method))


@pytest.mark.parametrize("method", ["llf+ema:decay=0.9", "fam:strength=0.01"])
def test_the_network_may_be_the_module_itself(method: str, tmp_path: Path) -> None:
    class Itself(Module):
        def training_step(self, batch: Any, _: int) -> dict[str, Tensor]:
            return {"loss": functional.cross_entropy(self(batch[0]), batch[1])}

    module = Itself(network())
    trainer(tmp_path, Fallow(method, generations=GENERATIONS), enable_checkpointing=False).fit(module, batches())
    assert_close(module.model.state_dict(), own_loop(method))


def test_checkpoints_of_weights_that_were_not_evaluated_are_refused(tmp_path: Path) -> None:
    watched = lightning.callbacks.ModelCheckpoint(tmp_path, monitor="val_loss")
    with pytest.raises(RequestError, match="would keep weights that ema did not evaluate: leave monitor out"):
        trainer(tmp_path, callback("ema"), watched).fit(Module(network()), batches())


def test_micro_batches_are_one_batch(tmp_path: Path) -> None:
    """Two of half the size give what one gives: the penalty is scaled as the loss is."""
    found = []
    for parts in (1, 2):
        module = Module(network())
        module.model.one[1] = nn.Identity()  # a batch norm would see other batches
        loader = DataLoader(examples(), batch_size=BATCH // parts)
        how = {"accumulate_grad_batches": parts, "gradient_clip_val": 0.5, "enable_checkpointing": False}
        trainer(tmp_path, callback("llf+fam:strength=0.01"), **how).fit(module, loader)
        found.append(module.model.state_dict())
    assert_close(*found)


def cosine(optimizer: Any) -> Any:
    return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, GENERATIONS * EPOCHS)


EVERY = {"every_n_epochs": 5}
END = {"every_n_train_steps": EPOCHS * len(batches())}  # the last step before the weights are re-drawn


@pytest.mark.parametrize(("method", "when"), [*((method, EVERY) for method in METHODS), ("llf+ema:decay=0.9", END)])
def test_resumes_to_the_bit(method: str, when: dict[str, int], tmp_path: Path) -> None:
    """Examples are shuffled, units dropped, and the rate is the host's."""

    def made() -> Module:
        net = network()
        net.two.append(nn.Dropout(0.5))
        return Module(net, cosine)

    def loader() -> DataLoader[Any]:
        return DataLoader(examples(), batch_size=8, shuffle=True)

    def running() -> Any:
        every = lightning.callbacks.ModelCheckpoint(tmp_path, filename="{epoch}", save_top_k=-1, **when)
        return trainer(tmp_path, callback(method), every)

    whole = made()
    running().fit(whole, loader())
    again = made()
    torch.manual_seed(99)
    path = min(tmp_path.glob("epoch=*.ckpt"))
    running().fit(again, loader(), ckpt_path=path)
    assert_same(again.model.state_dict(), whole.model.state_dict())


def test_a_checkpoint_of_the_end_holds_what_was_evaluated(tmp_path: Path) -> None:
    def running() -> Any:
        last = lightning.callbacks.ModelCheckpoint(tmp_path, filename="last", enable_version_counter=False)
        return trainer(tmp_path, callback("ema:decay=0.9"), last)

    whole, again = Module(network()), Module(network())
    running().fit(whole, batches())
    running().fit(again, batches(), ckpt_path=tmp_path / "last.ckpt")
    assert_same(again.model.state_dict(), whole.model.state_dict())


def test_a_scheduler_of_the_hosts_meets_the_ascent(tmp_path: Path) -> None:
    """It sets rates for all groups, those that were split too, and does not undo SEAL's scale."""
    halved = Module(network(), lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5))
    trainer(tmp_path, callback("seal:scale=0.5"), enable_checkpointing=False).fit(halved, batches())
    wanted = own_loop("seal:scale=0.5", lr=RATE / 2)
    assert_close(halved.model.state_dict(), wanted)


def test_the_average_is_validated(tmp_path: Path) -> None:
    module = Module(network())
    running = trainer(tmp_path, callback("ema:decay=0.9"), enable_checkpointing=False, num_sanity_val_steps=1)
    running.fit(module, batches(), batches())
    assert torch.equal(running.callback_metrics["seen"], module.model.head.bias.sum())  # the model has it in the end
    assert "training_step" not in vars(module)


def test_what_the_method_logs_is_logged(tmp_path: Path) -> None:
    module = Module(network())
    running = trainer(tmp_path, callback("fam"), enable_checkpointing=False)
    running.fit(module, batches())
    assert running.callback_metrics["fallow/flatness"] > 0


@pytest.mark.parametrize(
    ("method", "options", "why"),
    [
        ("sam", {"accumulate_grad_batches": 2}, "accumulate_grad_batches=1"),
        ("llf", {"max_epochs": 7}, "not a multiple"),
        ("mixup", {}, "fallow.fit"),
        ("maml", {}, "fallow.fit"),
    ],
)
def test_refuses_before_anything_is_done(method: str, options: dict[str, Any], why: str, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=why):
        lightning.Trainer(
            callbacks=[callback(method)], accelerator="cpu", logger=False, enable_checkpointing=False,
            default_root_dir=tmp_path, **{"max_epochs": 8} | options,
        ).fit(Module(network()), batches())  # fmt: skip


def test_a_mistyped_network_is_answered_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="unknown network 'modle': did you mean 'model'"):
        trainer(tmp_path, Fallow("llf", generations=GENERATIONS, network="modle")).fit(Module(network()), batches())
