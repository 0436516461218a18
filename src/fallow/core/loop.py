"""The one loop that runs every method::

    method.begin(ctx)                                # SEAL: one parameter group per side
    for generation in clock.generations_left():
        method.begin_generation(ctx)                 # LLF, LW, WELS: re-draw, rescale, prune
        for epoch in clock.epochs_left():
            method.begin_epoch(ctx)                  # SEAL: the early layers ascend, or no longer
            for batch in method.stream(ctx):         # FixMatch: + unlabelled; MAML: tasks
                def gradients():                     # zero, forward, backward at the present weights
                    return ctx.backward(batch)       #   method.loss (in it, the model inside method.forward)
                                                     #   + method.penalty, over all micro-batches
                method.update(ctx, gradients)        # SAM: gradients() twice; default: once, then ctx.step()
                                                     #   ctx.step(): clip, method.before_step, optimiser
                method.end_step(ctx)                 # IMP: keep the mask; EMA: average
            method.end_epoch(ctx)
            evaluate on validation                   # method.evaluated(ctx): the model to look at
        method.end_generation(ctx)
    method.end(ctx)

The clock's position says which of these hooks have run, so a checkpoint taken between any two steps
goes on as if nothing had happened.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor

from fallow.base.errors import RequestError, WorkError
from fallow.base.seeds import mix
from fallow.core.context import Context
from fallow.evaluate.score import Score, key_of

ALONE = "Expected more than 1 value per channel"  # what torch says of the statistics of one example
LIVE = 0.2  # seconds between two looks at a running epoch
FITTED = 2048  # training examples that show how well a generation has learned them


def run(ctx: Context) -> None:
    """Train to the end, from wherever the clock stands."""
    method, clock = ctx.method, ctx.clock
    finished = clock.generation == clock.generations  # resumed at its end: there is nothing new to keep
    for _generation in clock.generations_left():
        if clock.epoch == 0 and clock.step == 0:
            save(ctx, due=True)
            ctx.schedule.restart()
            ctx.generation_best, ctx.waited, ctx.lowest = None, 0, float("inf")
            method.begin_generation(ctx)
        for epoch in clock.epochs_left():
            if clock.step == 0:
                if epoch > 0:
                    save(ctx)
                method.begin_epoch(ctx)
                # one seed an epoch and process: dropout needs no state of other processes to resume
                torch.manual_seed(mix(ctx.settings.seed, 2, clock.epoch_index, ctx.engine.global_rank))
            run_epoch(ctx)
            method.end_epoch(ctx)
            if close_epoch(ctx):
                clock.finish_generation()
        method.end_generation(ctx)
        close_generation(ctx)
    if not finished:
        save(ctx, due=True)
    method.end(ctx)


def run_epoch(ctx: Context) -> None:
    """The steps of one epoch, or what is left of it. The host never waits for the device in here."""
    method, clock = ctx.method, ctx.clock
    ctx.wrapped.train()
    wake = time.monotonic() + LIVE
    for batch in method.stream(ctx):

        def gradients(batch: Any = batch) -> Tensor:
            return ctx.backward(batch)

        ctx.set_rate()
        try:
            ctx.losses.append(method.update(ctx, gradients))
        except ValueError as error:
            if ALONE not in str(error):
                raise
            raise RequestError(
                "batch normalisation needs two or more examples at once: take a larger batch_size, or less accumulate"
            ) from error
        method.end_step(ctx)
        clock.step += 1
        if time.monotonic() >= wake:
            wake = look(ctx)


def look(ctx: Context) -> float:
    """Several times a second: is the loss finite, is a checkpoint due, what does the display show?"""
    ctx.check()
    if ctx.observer is not None:
        ctx.observer(ctx)
    if ctx.clock.step < ctx.clock.steps and ctx.engine.world_size == 1 and ctx.train.resumable:
        save(ctx)
    return time.monotonic() + LIVE


def close_epoch(ctx: Context) -> bool:
    """Evaluate and record the epoch; whether the generation should end early."""
    clock, settings = ctx.clock, ctx.settings
    if ctx.engine.world_size > 1:
        average_buffers(ctx)
    row: dict[str, Any] = {
        "generation": clock.generation + 1,
        "epoch": clock.epoch + 1,
        "lr": max(group["lr"] for group in ctx.optimizer.param_groups),
        "train_loss": _mean(ctx, ctx.check()),
    }
    stop = False
    if ctx.val is not None and ((clock.epoch + 1) % settings.evaluate_every == 0 or clock.epoch + 1 == clock.epochs):
        found = ctx.score(ctx.val)
        row |= found.row("val")
        keep_outputs(ctx, "val_last", found)
        if ctx.disturbed:  # relearning is not measured by what was not yet forgotten
            ctx.lowest, ctx.waited = float("inf"), 0
        else:
            ctx.schedule.observe(found.loss)
            keep_best(ctx, found)
            ctx.waited = 0 if found.loss < ctx.lowest else ctx.waited + 1
            ctx.lowest = min(ctx.lowest, found.loss)
        stop = settings.patience is not None and ctx.waited >= settings.patience
    elif ctx.val is None and not ctx.disturbed:
        ctx.schedule.observe(row["train_loss"])
    row |= ctx.row | {"seconds": round(ctx.seconds, 3)}
    ctx.history.append(row)
    ctx.row, ctx.seen = {}, []
    if ctx.folder is not None:
        ctx.folder.append(row)
    if ctx.observer is not None:
        ctx.observer(ctx)
    return stop


def _mean(ctx: Context, loss: float) -> float:
    """The mean over the processes: a schedule that looks at it must move alike on all of them."""
    if ctx.engine.world_size == 1:
        return loss
    return float(ctx.engine.all_reduce(torch.tensor(loss, device=ctx.device)))


def average_buffers(ctx: Context) -> None:
    """Give all processes the same running statistics: each has normalised its own share of the batches."""
    for buffer in ctx.model.buffers():
        if buffer.is_floating_point():
            buffer.copy_(ctx.engine.all_reduce(buffer, reduce_op="mean"))


def keep_best(ctx: Context, found: Score) -> None:
    """Keep the weights if they are the best yet on validation: of this generation, and of all."""
    before = ctx.generation_best and Score(**ctx.generation_best["score"])
    if not found.better(before or None, ctx.metric):
        return
    weights = {k: v.detach().cpu().clone() for k, v in ctx.method.evaluated(ctx).state_dict().items()}
    position = {"generation": ctx.clock.generation + 1, "epoch": ctx.clock.epoch + 1}
    score = {"loss": found.loss, "metrics": found.metrics, "examples": found.examples}
    ctx.generation_best = {"score": score, "weights": weights, **position}
    if found.better(Score(**ctx.best["score"]) if ctx.best else None, ctx.metric):
        ctx.best = ctx.generation_best
        keep_outputs(ctx, "val_best", found)


def keep_outputs(ctx: Context, name: str, found: Score) -> None:
    """Keep outputs and targets, from which every metric can be had again."""
    if found.output is not None and found.y is not None:
        part = name.partition("_")[0]
        ctx.outputs |= {name: found.output.float(), f"{part}_y": found.y}


def close_generation(ctx: Context) -> None:
    """Record the generation: last and best on validation, and the test score of both.

    With ``test_at_end`` the test split is looked at only after the last generation: for its last epoch, and for the
    best epoch of all.
    """
    final = ctx.clock.generation + 1 == ctx.clock.generations
    due = ctx.test is not None and (final or not ctx.test_at_end)
    rows = [row for row in ctx.history if row["generation"] == ctx.clock.generation + 1]
    record: dict[str, Any] = {"generation": ctx.clock.generation + 1, "epochs": len(rows)}
    forgot = [row["forgot_to"] for row in rows if "forgot_to" in row]
    if forgot:
        record["forgot_to"] = forgot[-1]
    scored = [key for key in rows[-1] if key.startswith("val_")]
    record["last"] = {"train_loss": rows[-1]["train_loss"]} | {key: rows[-1][key] for key in scored}
    # a method that does not relearn what it forgot looks like one that does not generalise, unless this is known
    record["last"] |= {key_of("train", name): v for name, v in ctx.score(ctx.train, limit=FITTED).metrics.items()}
    tested = _test(ctx, "test_last") if due else {}
    record["last"] |= tested
    if ctx.generation_best is not None:
        best = ctx.generation_best
        record["best"] = {"epoch": best["epoch"]} | Score(**best["score"]).row("val")
        if due and (ctx.best is best or not ctx.test_at_end):
            same = best["epoch"] == rows[-1]["epoch"]  # then the weights are those just tested
            name = "test_best" if ctx.best is best else None
            record["best"] |= tested if same else _test_of(ctx, best["weights"], name)
            if same and name and "test_last" in ctx.outputs:
                ctx.outputs[name] = ctx.outputs["test_last"]
    ctx.generations.append(record)
    if due and ctx.best is not None:
        kept = ctx.generations[ctx.best["generation"] - 1]["best"]
        if "test_loss" not in kept:
            kept |= _test_of(ctx, ctx.best["weights"], "test_best")
    if ctx.keep_generations and ctx.folder is not None:
        weights = ctx.method.evaluated(ctx).state_dict()
        ctx.folder.save_weights(f"generation-{ctx.clock.generation + 1}", weights)


def _test(ctx: Context, name: str | None) -> dict[str, Any]:
    assert ctx.test is not None
    found = ctx.score(ctx.test)
    if name is not None:
        keep_outputs(ctx, name, found)
    return found.row("test")


def _test_of(ctx: Context, weights: dict[str, Tensor], name: str | None) -> dict[str, Any]:
    """The test score with other weights; the present ones come back."""
    model = ctx.method.evaluated(ctx)
    present = {k: v.detach().clone() for k, v in model.state_dict().items()}
    model.load_state_dict(weights)
    try:
        return _test(ctx, name)
    finally:
        model.load_state_dict(present)


def save(ctx: Context, due: bool = False) -> None:
    """Write a checkpoint when the last is old enough, or one is ``due`` anyway."""
    due = due or time.monotonic() - ctx.saved >= ctx.checkpoint_every
    if ctx.engine.world_size > 1:
        due = ctx.engine.broadcast(due)
    if not due:
        return
    if not ctx.finite():
        raise WorkError(
            f"weights became non-finite before {ctx.clock}: lower the learning rate, or set clip{ctx.kept()}"
        )
    if ctx.folder is not None:
        ctx.folder.save_checkpoint(ctx.state())
    ctx.saved = time.monotonic()
