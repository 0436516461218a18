"""A method in Hugging Face's Trainer: a Trainer with a method.

``FallowTrainer(model, args, method="llf", generations=4, train_dataset=…).train()``
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Trainer, TrainerCallback

from fallow.adapters.host import Guest, accepted, repeats
from fallow.base.errors import RequestError
from fallow.core import checkpoint
from fallow.core.method import Method, overrides
from fallow.data.randomness import Randomness
from fallow.weights import ByLayer

STATE = "fallow.pt"  # beside the optimiser's in a checkpoint


class FallowTrainer(Trainer):
    """Hugging Face's Trainer, training by one of fallow's methods; what is not named here is the Trainer's.

    With SAM the micro-batches of a step run again at the worst point nearby. The method's state (masks, averages,
    generators) is kept beside the optimiser's in every checkpoint, as ``fallow.pt``.

    Parameters
    ----------
    method : a method or its name with settings: "llf", "seal:share=0.3", "fam", "sam:rho=0.1", "ema".
    generations : of which ``num_train_epochs`` is a multiple.
    schedule : "cosine", …: the rate falls, and starts again with every generation. None: the Trainer's own, which by
        default falls once, over all epochs, and so leaves later generations little to relearn with.
    split, seed, init, loss : as for :class:`fallow.adapters.host.Guest`. Where nothing is said, the seed is that of
        ``args``, and fresh weights are drawn as the model's own ``_init_weights`` draws them.

    """

    def __init__(
        self,
        *arguments: Any,
        method: Method | str,
        generations: int = 1,
        schedule: str | None = None,
        split: str | int | float = "auto",
        seed: int | None = None,
        init: Any = None,
        loss: Callable[[Tensor, Tensor], Tensor] | None = None,
        **keywords: Any,
    ) -> None:
        super().__init__(*arguments, **keywords)
        self.method, self.generations = accepted(method), generations
        seed = self.args.seed if seed is None else seed
        self.guest_options: dict[str, Any] = {"schedule": schedule, "split": split, "seed": seed, "loss": loss}
        self.init = init
        self.guest: Guest | None = None
        self.again = repeats(self.method)  # a step's gradient, that is
        self.micro: list[tuple[Any, Any]] = []  # batches of the present step, if they may be needed again
        self._check()
        self.add_callback(_Epochs(self))

    def _check(self) -> None:
        """Refuse, before anything is done, what this loop cannot do."""
        args = self.args
        if args.max_steps > 0 or args.num_train_epochs != int(args.num_train_epochs):
            raise RequestError("the method counts epochs: give whole num_train_epochs, and no max_steps")
        if args.num_train_epochs % self.generations:
            raise RequestError(
                f"num_train_epochs={int(args.num_train_epochs)} is not a multiple of generations={self.generations}"
            )
        if args.world_size > 1 or args.n_gpu > 1:
            raise RequestError("FallowTrainer works in one process: fallow.fit(devices=…) trains in several")
        if self.again and args.fp16:
            raise RequestError(f"{self.method} takes a step's gradient again: use bf16, not fp16")
        if args.load_best_model_at_end and any(overrides(part, "evaluated") for part in self.method.parts):
            raise RequestError(
                f"load_best_model_at_end loads weights that {self.method} did not evaluate: leave it out"
            )

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """The Trainer's optimiser, with the method at it: the scheduler is made after this and sees all groups."""
        optimizer: torch.optim.Optimizer = super().create_optimizer(model)
        if self.guest is None:
            network: Any = self.model
            with Randomness(self.guest_options["seed"]):
                loader = self.get_train_dataloader()
            init = self.init
            if init is None and hasattr(network, "_init_weights"):
                init = ByLayer(network._init_weights)
            self.guest = Guest(
                self.method,
                network,
                optimizer,
                loader,
                generations=self.generations,
                epochs=int(self.args.num_train_epochs) // self.generations,
                steps=-(-len(loader) // self.args.gradient_accumulation_steps),
                again=self._gradients if self.again else None,
                init=init,
                **self.guest_options,
            )
        return optimizer

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """The Trainer's loss, and what the method adds to it: scaled as the loss is, over micro-batches and items."""
        if self.guest is None or not self.guest.watches or not model.training:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        outputs: Any = None
        named = dict(inputs)  # label smoothing takes the labels out

        def compute() -> Tensor:
            nonlocal outputs
            loss, outputs = super(FallowTrainer, self).compute_loss(model, inputs, True, num_items_in_batch)
            return loss

        loss = self.guest.penalised(named, compute)
        return (loss, outputs) if return_outputs else loss

    def training_step(self, model: nn.Module, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        if self.again:
            if not self.micro:
                self.drawn = torch.get_rng_state()
            self.micro.append((inputs, num_items_in_batch))
        return super().training_step(model, inputs, num_items_in_batch)

    def _gradients(self) -> Callable[[], None]:
        """A step's gradients: at first they are there, then the micro-batches run again."""
        assert self.guest is not None
        optimizer, micro, self.micro = self.guest.optimizer, self.micro, []
        there = True

        def gradients() -> None:
            nonlocal there
            if there:
                there = False
                return
            optimizer.zero_grad()
            torch.set_rng_state(self.drawn)  # dropout drops the same units
            for inputs, items in micro:
                super(FallowTrainer, self).training_step(self.model_wrapped, inputs, items)
            if self.args.max_grad_norm > 0:
                self._clip_grad_norm(self.model_wrapped)

        return gradients

    def evaluation_loop(self, *arguments: Any, **keywords: Any) -> Any:
        """What is evaluated is the method's model."""
        if self.guest is None:
            return super().evaluation_loop(*arguments, **keywords)
        with self.guest.shown():
            return super().evaluation_loop(*arguments, **keywords)

    def train(self, *arguments: Any, **keywords: Any) -> Any:
        try:
            return super().train(*arguments, **keywords)
        finally:
            if self.guest is not None:
                self.guest.leave()
                self.guest = None

    def _finalize_training(self, *arguments: Any, **keywords: Any) -> Any:
        """The model is left with the weights that were evaluated."""
        assert self.guest is not None
        self.guest.end()
        return super()._finalize_training(*arguments, **keywords)

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        """With the weights as they are: the Trainer's own file has the hub's names, not all of which it finds back."""
        super()._save_optimizer_and_scheduler(output_dir)
        if self.guest is not None:
            weights = self.guest.model.state_dict()
            checkpoint.save(Path(output_dir, STATE), {"model": weights, "guest": self.guest.state()})

    def _load_optimizer_and_scheduler(self, checkpoint_dir: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint_dir)
        if checkpoint_dir is not None:
            if not os.path.exists(os.path.join(checkpoint_dir, STATE)):
                raise RequestError(f"{checkpoint_dir} was not written by FallowTrainer: it has no {STATE}")
            assert self.guest is not None
            kept = checkpoint.load(Path(checkpoint_dir, STATE))
            self.guest.model.load_state_dict(kept["model"])
            self.guest.load_state(kept["guest"])


class _Epochs(TrainerCallback):
    """Tells the method that an epoch begins."""

    def __init__(self, trainer: FallowTrainer) -> None:
        self.trainer = trainer

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        guest = self.trainer.guest
        assert guest is not None
        guest.begin_epoch(state.global_step // guest.clock.steps)

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """With ``ignore_data_skip``, what is resumed in the middle of an epoch sees a whole one from there."""
        guest = self.trainer.guest
        assert guest is not None
        if guest.clock.step == guest.clock.steps:
            guest.begin_epoch(state.global_step // guest.clock.steps)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        guest = self.trainer.guest
        assert guest is not None
        if guest.logged:
            self.trainer.log(guest.logged)
