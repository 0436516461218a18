"""A method in a Lightning training: one callback, for whatever the method changes.

``Trainer(max_epochs=40, callbacks=[Fallow("llf", generations=4)])``
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from fallow.adapters.host import Guest, accepted, repeats
from fallow.base.errors import RequestError, unknown
from fallow.core.method import Method, overrides


class Fallow(Callback):
    """Trains a LightningModule by one of fallow's methods.

    What the method logs is logged as ``fallow/…``. Its state is in the checkpoint; with SAM the closure runs twice,
    so ``16-mixed`` and ``accumulate_grad_batches`` above 1, where Lightning passes none to run, are refused.

    Parameters
    ----------
    method : a method or its name with settings: "llf", "seal:share=0.3", "lw+fam", "sam:rho=0.1", "ema".
    generations : of which ``max_epochs`` is a multiple.
    schedule : "cosine", …: the rate falls, and starts again with every generation. None: your own scheduler's, which
        should do so too (``CosineAnnealingWarmRestarts``) where a method has generations.
    network : the path of the network in the module (``"model"``), which is called with the inputs of a batch; "" is the
        module itself. Relative flatness needs the one that ``training_step`` calls.
    split, seed, init, loss : as for :class:`fallow.adapters.host.Guest`.

    """

    def __init__(
        self,
        method: Method | str,
        *,
        generations: int = 1,
        schedule: str | None = None,
        network: str = "",
        split: str | int | float = "auto",
        seed: int = 0,
        init: Any = None,
        loss: Callable[[Tensor, Tensor], Tensor] | None = None,
    ) -> None:
        self.method, self.generations, self.network = accepted(method), generations, network
        self.options = {"schedule": schedule, "split": split, "seed": seed, "init": init, "loss": loss}
        self.guest: Guest | None = None
        self.shown = ExitStack()
        self.kept: dict[str, Any] = {}  # of a checkpoint, until there is a guest to take it
        self.weights: dict[str, Tensor] | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """A checkpoint may hold what the method will add to the model (LW's norms): it is loaded again below."""
        if stage == "fit":
            self._check(trainer, pl_module)
            self.strict, pl_module.strict_loading = pl_module.strict_loading, False

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Keep the weights until all their places are there."""
        self.weights = checkpoint["state_dict"]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep the method's state until it has begun."""
        self.kept = state_dict

    def state_dict(self) -> dict[str, Any]:
        """The method's state, and that of the generator that dropout and shuffling draw from."""
        return {} if self.guest is None else {"guest": self.guest.state(), "torch_rng": torch.get_rng_state()}

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """The method begins: the model and the optimiser are there, and the checkpoint's weights."""
        if self.kept:  # Lightning draws the order of the first epoch here
            torch.set_rng_state(self.kept["torch_rng"])
        trainer.fit_loop.setup_data()
        self.drawn = torch.get_rng_state()
        if trainer.num_training_batches == float("inf"):
            raise RequestError("the method counts steps: give the DataLoader a length, or limit_train_batches")
        if len(trainer.optimizers) != 1:
            raise RequestError(
                f"the module has {len(trainer.optimizers)} optimisers: the method changes the steps of one"
            )
        optimizer = trainer.optimizers[0]
        assert trainer.max_epochs is not None
        assert trainer.train_dataloader is not None
        self.guest = Guest(
            self.method,
            pl_module.get_submodule(self.network),
            optimizer,
            trainer.train_dataloader,
            generations=self.generations,
            epochs=trainer.max_epochs // self.generations,
            steps=-(-int(trainer.num_training_batches) // trainer.accumulate_grad_batches),
            **self.options,
        )
        if self.guest.watches:
            _watch(self.guest, pl_module)
        pl_module.strict_loading = self.strict
        if self.kept:
            assert self.weights is not None
            pl_module.load_state_dict(self.weights, strict=self.strict)
            self.guest.load_state(self.kept["guest"])
        self.weights = None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Draw on from where the checkpoint was written."""
        if self.kept:
            torch.set_rng_state(self.drawn)
            self.kept = {}

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert self.guest is not None
        self.guest.begin_epoch(trainer.current_epoch)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Lightning tells of no epoch's start where it resumes from a checkpoint of the last step before it."""
        assert self.guest is not None
        if trainer.current_epoch != self.guest.clock.epoch_index:
            self.guest.begin_epoch(trainer.current_epoch)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """The model that is validated is the method's."""
        if self.guest is not None and not trainer.sanity_checking:
            self.shown.enter_context(self.guest.shown())

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.shown.close()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert self.guest is not None
        pl_module.log_dict(self.guest.logged)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """The module is left with the weights that were evaluated."""
        assert self.guest is not None
        self.guest.end()
        self._leave(pl_module)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Of a checkpoint that was trained to its end, nothing is trained, and no training ends."""
        if self.guest is not None:
            self.on_train_end(trainer, pl_module)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        if self.guest is not None:
            self.shown.close()
            self.guest.leave()
            self._leave(pl_module)

    def _leave(self, pl_module: LightningModule) -> None:
        vars(pl_module).pop("training_step", None)
        self.guest = None

    def _check(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Refuse, before anything is done, what this loop cannot do."""
        if trainer.max_epochs is None or trainer.max_epochs < 1:
            raise RequestError("the method counts epochs: give the Trainer max_epochs")
        if trainer.max_epochs % self.generations:
            nearest = self.generations * max(1, round(trainer.max_epochs / self.generations))
            raise RequestError(
                f"max_epochs={trainer.max_epochs} is not a multiple of generations={self.generations}: give {nearest}"
            )
        paths = [path for path, _ in pl_module.named_modules()]
        if self.network not in paths:
            raise unknown("network", self.network, filter(None, paths))
        if trainer.world_size > 1:
            raise RequestError("the callback works in one process: fallow.fit(devices=…) trains in several")
        if not pl_module.automatic_optimization:
            raise RequestError("the callback needs automatic optimisation: in a loop of your own, see docs/own-loop.md")
        averaged = any(overrides(part, "evaluated") for part in self.method.parts)
        if averaged and any(getattr(each, "monitor", None) for each in trainer.checkpoint_callbacks):
            raise RequestError(
                f"ModelCheckpoint(monitor=…) would keep weights that {self.method} did not evaluate: leave monitor "
                "out, the module ends with those that it did"
            )
        if repeats(self.method):
            if trainer.accumulate_grad_batches > 1:
                raise RequestError(f"{self.method} takes a step's gradient again: set accumulate_grad_batches=1")
            if trainer.precision == "16-mixed":
                raise RequestError(f"{self.method} takes a step's gradient again: use bf16-mixed, not 16-mixed")


def _watch(guest: Guest, module: LightningModule) -> None:
    """Let ``training_step`` give the loss with what the method adds to it."""
    plain = module.training_step

    def training_step(batch: Any, *more: Any, **named: Any) -> Any:
        given: Any = None

        def compute() -> Tensor:
            nonlocal given
            given = plain(batch, *more, **named)
            return given["loss"] if isinstance(given, Mapping) else given

        loss = guest.penalised(batch, compute)
        return {**given, "loss": loss} if isinstance(given, Mapping) else loss

    module.training_step = training_step  # type: ignore[method-assign]
