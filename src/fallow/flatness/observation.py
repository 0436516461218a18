"""One forward pass as a layer saw it: its rows, the loss, and what lies between."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property

from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from fallow.base.errors import RequestError
from fallow.flatness.graph import Step, Trace, below, derivative, same, trace
from fallow.flatness.metric import Metric, Neurons, Plain
from fallow.flatness.norms import Normalised, scope_of
from fallow.flatness.outputs import Outputs, find_outputs
from fallow.flatness.rows import Layer, Rows


@dataclass
class Seen:
    """What the hooks kept of a forward pass."""

    path: str
    layer: Layer
    x: Tensor
    z: Tensor
    edge: GradientEdge  # of z, as it was before anything changed it in place
    norm: nn.Module | None = None  # the normalisation that took z
    normed: GradientEdge | None = None  # and what it gave
    output: object = None


class Observation:
    """A forward pass and its loss, with all that the forms of κ ask for, each computed when first asked for.

    The tail begins at ``site``: the layer's own output z, or what a normalisation right after it gives.
    """

    def __init__(self, seen: Seen, loss: Tensor, simplified: bool = False) -> None:
        self.path, self.layer, self.loss, self.simplified, self.seen = seen.path, seen.layer, loss, simplified, seen
        if loss.grad_fn is None:
            raise RequestError("the loss has no gradient: relative flatness needs one that is differentiable twice")
        self.mixes_anyhow = False  # found by trying, where the graph shows nothing
        self.full: Trace = trace(loss.grad_fn, seen.edge)
        if not self.full.steps:
            raise RequestError(f"the loss does not depend on layer {seen.path!r} in this forward pass")
        if self.full.uses(seen.layer.weight):
            raise RequestError(
                f"the weight of layer {seen.path!r} is used once more after the layer: relative flatness is of one use"
            )

    @cached_property
    def rows(self) -> Rows:
        """The layer as a matrix."""
        return Rows(self.layer, self.seen.x, self.seen.z)

    @cached_property
    def neurons(self) -> Neurons:
        """G = WWᵀ."""
        return Neurons(self.rows.weight, self.simplified)

    # ---- the normalisation right after the layer ---------------------------------------------------

    @cached_property
    def after_norm(self) -> Trace | None:
        """The tail after a normalisation that took the whole output of the layer, if samples are independent there."""
        seen = self.seen
        if seen.norm is None or seen.normed is None or scope_of(seen.norm, self.rows) is None:
            return None
        assert self.loss.grad_fn is not None
        traced = trace(self.loss.grad_fn, seen.normed)
        if seen.edge.node in traced.met or _mixes(traced):
            return None
        return traced

    @property
    def normed(self) -> bool:
        """Whether the tail begins after a normalisation."""
        return self.after_norm is not None and not self.mixes_anyhow

    @cached_property
    def norm(self) -> Normalised:
        """The normalisation right after the layer, in closed form."""
        scope = scope_of(self.seen.norm, self.rows)  # type: ignore[arg-type]
        assert scope is not None
        return Normalised(self.seen.norm, self.rows, self.seen.z, *scope)

    def without_norm(self) -> Observation:
        """The same pass, its tail beginning at the layer's own output."""
        other = copy(self)
        other.seen = replace(self.seen, norm=None, normed=None)
        other.unsettle()
        other.__dict__.pop("after_norm", None)
        return other

    # ---- where the tail begins ---------------------------------------------------------------------

    @property
    def site(self) -> GradientEdge:
        """Where the tail begins."""
        return self.seen.normed if self.normed else self.seen.edge  # type: ignore[return-value]

    @property
    def tail(self) -> Trace:
        """The operations of the tail, the loss included."""
        return self.after_norm if self.normed else self.full  # type: ignore[return-value]

    @property
    def coupled(self) -> bool:
        """Whether samples interact in the tail."""
        return self.mixes_anyhow or (not self.normed and _mixes(self.full))

    def mark_mixing(self) -> None:
        """Samples were found to interact in the tail, though the graph does not show it."""
        self.mixes_anyhow = True
        self.unsettle()

    def unsettle(self) -> None:
        """Forget what depends on where the tail begins."""
        for name in ("metric", "gradient", "inner"):
            self.__dict__.pop(name, None)

    @cached_property
    def metric(self) -> Metric:
        """The form that Hessians of the tail are contracted with."""
        plain = Plain(self.rows.phi, self.neurons)
        return self.norm.metric(plain) if self.normed else plain

    @cached_property
    def gradient(self) -> Tensor:
        """∂L/∂site, differentiable."""
        return derivative(self.loss, self.site)

    # ---- where it ends -----------------------------------------------------------------------------

    @cached_property
    def found_outputs(self) -> tuple[type[Outputs], tuple] | None:
        """How the loss depends on the model's outputs."""
        return find_outputs(self.loss, self.seen.output, self.full, self.seen.edge)

    @cached_property
    def outputs(self) -> Outputs:
        """The model's outputs, and the curvature of the loss in them."""
        assert self.found_outputs is not None
        make, arguments = self.found_outputs
        return make(*arguments)

    @property
    def output_edge(self) -> GradientEdge | None:
        """Of the outputs, without computing anything."""
        if self.found_outputs is None:
            return None
        last = self.found_outputs[1][-1]
        return below(last) if isinstance(last, Step) else last

    @cached_property
    def dense_edge(self) -> GradientEdge | None:
        """Of the model's outputs, whatever their shape, where the loss depends on the layer through them alone."""
        output = self.seen.output
        if not isinstance(output, Tensor) or not output.requires_grad or len(output) != self.rows.n:
            return None
        edge = get_gradient_edge(output)
        assert self.loss.grad_fn is not None
        if same(edge, self.seen.edge) or self.seen.edge.node in trace(self.loss.grad_fn, edge).met:
            return None
        return edge

    @property
    def kinked(self) -> bool:
        """Whether all from the layer's own output to the model's is linear but for kinks."""
        edge = self.dense_edge
        return edge is not None and all(step.piecewise_linear for step in trace(edge.node, self.seen.edge).steps)

    @property
    def output_like(self) -> Tensor | None:
        """Something shaped (n, C) like the outputs, without computing anything."""
        if self.found_outputs is None:
            return None
        last = self.found_outputs[1][-1]
        return last.node._saved_result if isinstance(last, Step) else self.seen.output  # type: ignore

    @cached_property
    def inner(self) -> list[Step]:
        """The steps between the site and the outputs."""
        edge = self.output_edge
        assert edge is not None
        return [] if same(edge, self.site) else trace(edge.node, self.site).steps

    @property
    def signature(self) -> tuple:
        """The same for two passes that took the same way."""
        return tuple((step.kind, step.inputs, step.fixed_norm) for step in self.full.steps)


def _mixes(traced: Trace) -> bool:
    return any(step.mixes for step in traced.steps)
