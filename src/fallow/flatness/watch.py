"""Hooks that keep what a layer took and gave, so that κ shares the forward pass of the step."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge

from fallow.base.errors import RequestError
from fallow.flatness.choose import Choice, choose, evaluate, refuse_endless
from fallow.flatness.find import find_layer
from fallow.flatness.graph import same
from fallow.flatness.head import is_head
from fallow.flatness.norms import NORMS
from fallow.flatness.observation import Observation, Seen
from fallow.flatness.rows import check
from fallow.flatness.verify import verify
from fallow.flatness.written_out import WrittenOut
from fallow.weights.layers import unfused


class Watch:
    """Looks at one layer while the model runs; then ``flatness(loss)`` is κ of that pass::

        watch = Watch(model, "head", x)
        for x, y in batches:
            with watch:
                output = model(x)
            loss = cross_entropy(output, y)
            (loss + 0.001 * watch.flatness(loss)).backward()

    ``inputs`` are an example by which to find "penultimate" and "head". The hooks are on the model only inside
    ``with``. Where :meth:`look` says that normalisations must be written out, call it once before the first step.
    """

    def __init__(
        self,
        model: nn.Module,
        layer: str | nn.Module,
        inputs: Any = None,
        *,
        form: str = "auto",
        simplified: bool = False,
        probes: int = 1,
        generator: torch.Generator | None = None,
    ) -> None:
        self.path, self.layer = find_layer(model, layer, inputs)
        self.model, self.form, self.simplified = model, form, simplified
        self.probes, self.generator = probes, generator
        self.norms = [module for module in model.modules() if isinstance(module, NORMS)]
        self.rewriting = False  # normalisations are written out
        self.known: dict[tuple, bool] = {}  # ways that forward passes took, and whether samples interact on them
        self.checked = False  # that the layer gives W·φ + b
        self.seen: Seen | None = None
        self.calls = 0

    # ---- during a forward pass ---------------------------------------------------------------------

    def __enter__(self) -> Watch:
        self.calls, self.seen = 0, None
        self.handles = [
            self.layer.register_forward_hook(self._layer, prepend=True, with_kwargs=True),
            self.model.register_forward_hook(self._end),
            *(norm.register_forward_hook(self._norm, prepend=True) for norm in self.norms),
        ]
        self.modes = ExitStack()
        if self.rewriting:
            self.modes.enter_context(WrittenOut())
        return self

    def __exit__(self, *error: Any) -> None:
        self.modes.close()
        for handle in self.handles:
            handle.remove()

    def _layer(self, layer: Any, inputs: Any, keywords: Any, z: Tensor) -> None:
        self.calls += 1
        if not torch.is_grad_enabled():
            return
        if not z.requires_grad:
            z.requires_grad_()  # everything up to here is frozen
        if self.calls == 1:
            self.modes.enter_context(unfused())  # what comes after the layer is differentiated twice
        x = inputs[0] if inputs else keywords["input"]
        if not self.checked:
            check(self.path, layer, x, z)
            self.checked = True
        self.seen = Seen(self.path, layer, x, z, get_gradient_edge(z))

    def _norm(self, norm: nn.Module, inputs: Any, output: Any) -> None:
        seen = self.seen
        if seen is None or seen.norm is not None or not inputs or inputs[0] is not seen.z:
            return
        if same(get_gradient_edge(seen.z), seen.edge):  # nothing changed it in place
            seen.norm, seen.normed = norm, get_gradient_edge(output)

    def _end(self, model: nn.Module, inputs: Any, output: Any) -> None:
        if self.seen is not None:
            self.seen.output = output

    # ---- after it ----------------------------------------------------------------------------------

    def flatness(self, loss: Tensor) -> Tensor:
        """κ of the last forward pass, whose loss this is: differentiable, in single precision at least."""
        if torch.is_autocast_enabled(loss.device.type):
            with torch.autocast(loss.device.type, enabled=False):
                return self.flatness(loss)
        observed = self.observe(loss)
        choice = choose(observed, self.form)
        if choice.rewrite:
            raise RequestError(
                f"torch gets third derivatives of a normalisation after {self.path!r} wrong, and it was not "
                "written out: call look before the first step, or take form='gauss-newton'"
            )
        return evaluate(observed, choice, self.probes, self.generator)

    def observe(self, loss: Tensor) -> Observation:
        """The last forward pass, whose loss this is; what the graph does not show is tried where the way is new."""
        seen, self.seen = self.seen, None  # the graph is not kept alive from here
        if self.calls > 1:
            raise RequestError(f"layer {self.path!r} is used {self.calls} times in a forward pass: use it once")
        if seen is None:
            raise RequestError(f"layer {self.path!r} did not run in the forward pass: name one that does")
        if not isinstance(loss, Tensor) or loss.ndim:
            shape = f"the shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else f"the type {type(loss).__name__}"
            raise RequestError(f"the loss has {shape}: give a tensor of one number, a mean")
        observed = Observation(seen, loss, self.simplified)
        if is_head(observed):
            return observed  # nothing is hidden between logits and a loss that is linear in their log-softmax
        way = observed.signature
        if way not in self.known:
            verify(observed)
            self.known[way] = observed.mixes_anyhow
        elif self.known[way]:
            observed.mark_mixing()
        return observed

    def look(self, run: Callable[[], Tensor]) -> tuple[Observation, Choice]:
        """Decide on a form by trying: ``run`` passes a batch through the model and gives its loss.

        A form that needs them gets the normalisations written out, here and in every pass from now on.
        """
        while True:
            with self:
                loss = run()
            observed = self.observe(loss)
            choice = choose(observed, self.form)
            if not choice.rewrite:
                if self.form == "auto":
                    refuse_endless(observed, choice)
                return observed, choice
            if self.rewriting:
                raise RequestError(
                    f"torch gets third derivatives of a normalisation after {self.path!r} wrong, and it cannot be "
                    "written out: use torch.nn's, or form='gauss-newton'"
                )
            self.rewriting = True

    def forget(self) -> None:
        """Try once more whether samples interact: what had no effect before may have one now."""
        self.known.clear()
