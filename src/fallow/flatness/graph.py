"""What comes after a layer, read from the graph that autograd recorded: which operations, and of what kind.

The graph is the one witness that never lies about a forward pass: hand-written activations, functional calls,
shortcuts and pools are all in it, whatever the modules are called.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, Node


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# linear in all inputs together
RESHAPING = _names("View UnsafeView ReshapeAlias Alias Squeeze Unsqueeze Clone ToCopy Copy")
LINEAR = RESHAPING | _names(
    """Add Sub Rsub Neg Sum Mean Expand Permute Transpose T Mt Cat Stack Select Slice Split SplitWithSizes Unbind Narrow
    Index IndexSelect Gather Repeat Flip Roll Diagonal AsStrided ConstantPadNd ReflectionPad1D ReflectionPad2D
    ReplicationPad1D ReplicationPad2D AvgPool2D AvgPool3D AdaptiveAvgPool2D MkldnnAdaptiveAvgPool2D MaskedFill Where
    UpsampleNearest1D UpsampleNearest2D UpsampleLinear1D UpsampleBilinear2D PixelShuffle NllLoss NllLoss2D Im2Col"""
)
# linear in each input, so linear where only one of them depends on the layer
MULTILINEAR = _names("Mul Div Mm Bmm Mv Dot Addmm Baddbmm Addbmm Convolution NativeDropout")
SEVERAL = _names("Split SplitWithSizes Unbind")  # with more than one result
BATCH_NORMS = _names("NativeBatchNorm CudnnBatchNorm MiopenBatchNorm")
# torch's third derivatives of these are wrong; see written_out.py
NATIVE_NORMS = BATCH_NORMS | _names("NativeLayerNorm FusedRmsNorm")

KINKED = _names("Relu LeakyRelu Threshold Hardtanh Hardsigmoid Abs Clamp ClampMin ClampMax PreluKernel Hardshrink")
PIECEWISE_LINEAR = KINKED | _names(
    """MaxPool2DWithIndices MaxPool3DWithIndices AdaptiveMaxPool2D AdaptiveMaxPool3D Maximum Minimum Amax Amin Max Min
    Sort Topk"""
)
SMOOTH = _names("Tanh Sigmoid Gelu Silu Elu Celu Softplus Mish LogSigmoid Hardswish Exp Sin Cos Erf Pow Sqrt")
ELEMENTWISE = RESHAPING | KINKED | SMOOTH | _names("Add Sub Rsub Neg Mul Div NativeDropout")

OVER_BATCH = "normalised over the batch"  # a mark on nodes of normalisations that were written out


class Step(NamedTuple):
    """One operation after the layer, and which of its inputs depend on the layer."""

    node: Node
    kind: str
    inputs: tuple[int, ...]

    @property
    def linear(self) -> bool:
        """Linear in what depends on the layer."""
        if self.kind in LINEAR:
            return True
        if self.kind == "Div" or self.fixed_norm:
            return self.inputs == (0,)
        return self.kind in MULTILINEAR and len(self.inputs) == 1

    @property
    def piecewise_linear(self) -> bool:
        """Linear but for kinks."""
        return self.linear or (self.kind in PIECEWISE_LINEAR and (self.kind != "PreluKernel" or self.inputs == (0,)))

    @property
    def elementwise(self) -> bool:
        """Every number of the result comes from one number of the layer's output."""
        return self.kind in ELEMENTWISE or (self.fixed_norm and self.inputs == (0,))

    @property
    def fixed_norm(self) -> bool:
        """A batch normalisation with running statistics."""
        return self.kind in BATCH_NORMS and not self.node._saved_training  # type: ignore[attr-defined]

    @property
    def native_norm(self) -> bool:
        """A normalisation whose third derivatives torch gets wrong."""
        return self.kind in NATIVE_NORMS and not self.fixed_norm

    @property
    def mixes(self) -> bool:
        """A batch is normalised by its own statistics."""
        return (self.kind in BATCH_NORMS and not self.fixed_norm) or OVER_BATCH in self.node.metadata  # type: ignore[operator]


class Trace(NamedTuple):
    """The steps from the bottom to the top, and every node met on the way, also those off the path."""

    steps: list[Step]
    met: dict[Node, bool]

    def uses(self, weight: Tensor) -> bool:
        """Whether a parameter is used anywhere but below the bottom."""
        return any(getattr(node, "variable", None) is weight for node in self.met)


def trace(top: Node, bottom: GradientEdge) -> Trace:
    """The operations on all paths from ``bottom`` to ``top``."""
    met: dict[Node, bool] = {bottom.node: True}  # whether it depends on the bottom
    steps: list[Step] = []
    stack = [(top, False)]
    while stack:
        node, seen_below = stack.pop()
        if seen_below:
            inputs = tuple(i for i, (child, _) in enumerate(node.next_functions) if child is not None and met[child])
            met[node] = bool(inputs)
            if inputs:
                steps.append(Step(node, kind(node), inputs))
        elif node not in met:
            met[node] = False
            stack.append((node, True))
            stack.extend((child, False) for child, _ in node.next_functions if child is not None and child not in met)
    return Trace(steps, met)


def kind(node: Node) -> str:
    """The operation's name: "Relu" of ReluBackward0."""
    return _operation(node.name())


@cache
def _operation(name: str) -> str:
    return re.sub(r"Backward\d*$", "", name)


def below(step: Step) -> GradientEdge:
    """The edge to the (first) input of the step that depends on the layer."""
    node, number = step.node.next_functions[step.inputs[0]]
    assert node is not None
    return GradientEdge(node, number)


def same(a: GradientEdge, b: GradientEdge) -> bool:
    """Whether two edges mean one tensor."""
    return a.node is b.node and a.output_nr == b.output_nr


@torch.no_grad()
def pulled_back(loss: Tensor, steps: list[Step], ends: list[Node]) -> list[Tensor]:
    """∂L/∂(what each end gives), a constant, by calling the few steps above them one after another.

    For a handful of steps autograd's engine takes longer to start than they take.
    """
    assert loss.grad_fn is not None
    slopes: dict[Node, Tensor] = {loss.grad_fn: torch.ones_like(loss)}
    for step in reversed(steps):  # from the loss down
        if step.node in ends or step.node not in slopes:
            continue
        found = step.node(slopes[step.node])  # type: ignore[operator]
        for i in step.inputs:
            child, slope = step.node.next_functions[i][0], found[i] if isinstance(found, tuple) else found
            assert child is not None
            slopes[child] = slopes[child] + slope if child in slopes else slope
    return [slopes[end] for end in ends]


def derivative(
    of: Any, by: GradientEdge, weights: Tensor | None = None, *, graph: bool = True, like: Tensor | None = None
) -> Tensor:
    """d⟨of, weights⟩ / d by; zeros shaped ``like`` where there is no dependence."""
    if isinstance(of, Tensor) and not of.requires_grad:
        found = None
    else:
        outer = None if weights is None else [weights]
        unused = like is not None
        found = torch.autograd.grad([of], [by], outer, create_graph=graph, retain_graph=True, allow_unused=unused)[0]
    if found is None:
        assert like is not None
        return torch.zeros_like(like)
    return found
