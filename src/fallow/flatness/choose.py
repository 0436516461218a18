"""Which form of κ is exact here, and which of those is the cheapest."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fallow.base.errors import RequestError, unknown
from fallow.flatness.closed import closed, why_closed
from fallow.flatness.dense import dense
from fallow.flatness.forward import forward
from fallow.flatness.gauss_newton import gauss_newton
from fallow.flatness.graph import Step
from fallow.flatness.head import head, is_head
from fallow.flatness.observation import Observation
from fallow.flatness.probe import probe
from fallow.flatness.tail import cheaper, products, tail

FORMS = ("head", "closed", "gauss-newton", "forward", "tail", "probe", "dense")
LIMIT = 4096  # products with a Hessian in one evaluation, beyond which "auto" asks first


@dataclass(frozen=True)
class Choice:
    """A form of κ, whether it is exact, what it costs, and why it was taken."""

    form: str
    exact: bool
    why: str
    products: int = 0  # with the Hessian of the tail
    rewrite: bool = False  # normalisations in the tail have to be written out first

    def __str__(self) -> str:
        return f"{self.form} ({'exact' if self.exact else 'not exact'}): {self.why}"


def choose(seen: Observation, form: str = "auto") -> Choice:
    """The form that was asked for, if it applies; for "auto" the cheapest exact one."""
    if form != "auto" and form not in FORMS:
        raise unknown("form", form, ("auto", *FORMS))
    makers = {
        "head": _head, "closed": _closed, "gauss-newton": _gauss_newton, "forward": _forward,
        "tail": _tail, "probe": _probe, "dense": _dense,
    }  # fmt: skip
    if form != "auto":
        found = makers[form](seen)
        if isinstance(found, str):
            raise RequestError(f"form={form} does not apply to layer {seen.path!r}: {found}; auto, tail or probe would")
        return found
    for formula in (_head, _closed):
        if isinstance(found := formula(seen), Choice):
            return found
    by_outputs, by_columns, by_products = _gauss_newton(seen), _forward(seen), _tail(seen)
    # a product with a Hessian is two passes through the tail, an output or a column one
    passes = 2 * by_products.products
    if isinstance(by_columns, Choice):
        passes = min(passes, seen.rows.m)
    if isinstance(by_outputs, Choice) and by_outputs.exact and _outputs(seen) <= passes:
        return by_outputs
    return by_columns if isinstance(by_columns, Choice) and passes == seen.rows.m else by_products


def refuse_endless(seen: Observation, choice: Choice) -> None:
    """Ask before spending minutes on one number."""
    if choice.products > LIMIT:
        raise RequestError(
            f"κ of layer {seen.path!r} takes {choice.products:,} products with a Hessian ({choice.why}): "
            "form='probe' estimates it from one, form='tail' takes them all"
        )


def evaluate(seen: Observation, choice: Choice, probes: int = 1, generator: torch.Generator | None = None) -> Tensor:
    """κ in the form that was chosen."""
    if choice.form == "probe":
        return probe(seen, probes, generator)
    forms = {
        "head": head,
        "closed": closed,
        "gauss-newton": gauss_newton,
        "forward": forward,
        "tail": tail,
        "dense": dense,
    }
    return forms[choice.form](seen)


def _head(seen: Observation) -> Choice | str:
    if is_head(seen):
        return Choice("head", True, "the layer gives the logits of a softmax, a few small products")
    return "its outputs are not the logits of a cross-entropy"


def _closed(seen: Observation) -> Choice | str:
    why = why_closed(seen)
    return Choice("closed", True, why) if why else "no closed form covers what comes after the layer"


def _gauss_newton(seen: Observation) -> Choice | str:
    if seen.output_edge is None:
        return "the loss is not one of outputs (n, C)"
    if seen.coupled:
        return "the samples interact after the layer"
    if seen.normed:
        return Choice("gauss-newton", False, f"leaves out the curvature of {type(seen.seen.norm).__name__}")
    smooth = [step.kind for step in seen.inner if not step.piecewise_linear]
    if smooth:
        return Choice("gauss-newton", False, f"leaves out the curvature of {smooth[0]}")
    return Choice("gauss-newton", True, f"the tail is linear but for kinks; {_outputs(seen)} passes back through it")


def _forward(seen: Observation) -> Choice | str:
    if seen.simplified:
        return "the simplified measure has more directions than columns"
    if seen.rows.positions != 1:
        return "the layer has several positions"
    if seen.coupled or seen.normed:
        return "the samples interact after the layer" if seen.coupled else "a normalisation follows"
    if not seen.kinked:
        return "what comes after the layer is not linear but for kinks"
    return Choice("forward", True, f"the tail is linear but for kinks; {seen.rows.m} passes forward through it")


def _outputs(seen: Observation) -> int:
    like = seen.output_like
    return 0 if like is None else like.shape[1]


def _tail(seen: Observation) -> Choice:
    seen = cheaper(seen)
    count = products(seen)
    how = "samples interact after the layer" if seen.coupled else "all samples at once"
    return Choice("tail", True, f"{count:,} products through the tail, {how}", count, _native(seen.tail.steps))


def _probe(seen: Observation) -> Choice:
    return Choice("probe", False, "an estimate without bias", 0, _native(seen.full.steps))


def _dense(seen: Observation) -> Choice:
    count = seen.rows.weight.numel()
    return Choice("dense", True, f"the definition, {count:,} products", count, _native(seen.full.steps))


def _native(steps: list[Step]) -> bool:
    return any(step.native_norm for step in steps)
