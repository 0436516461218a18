"""The head under softmax: the layer that FAM regularises, at the price of a few small products.

The paper's wˡ lead *from* layer l to the next, so that its "penultimate layer" is the matrix out of the penultimate
neurons: logits f = Wφ + b. Cross-entropy has the Hessian s_i (diag p_i − p_i p_iᵀ) in the logits of sample i, whatever
the targets are (smoothed, mixed, soft), and so

    κ = Σ_i s_i ‖φ_i‖² Σ_c p_ic (e_c − p_i)ᵀ WWᵀ (e_c − p_i) = ½ Σ_i s_i ‖φ_i‖² Σ_{c,c'} p_ic p_ic' ‖w_c − w_c'‖²,

s_i = 1/n for a mean. The second form, a spread of rows about their mean as half the mean of squared distances, needs no
difference of large numbers, so that it holds where the network is sure of a class; and it shows that κ ≥ 0 here.
"""

from __future__ import annotations

from torch import Tensor

from fallow.flatness.observation import Observation
from fallow.flatness.outputs import Softmax


def head(seen: Observation) -> Tensor:
    """κ of the layer whose outputs are the logits."""
    outputs, phi = seen.outputs, seen.rows.x
    assert isinstance(outputs, Softmax)
    weighed = outputs.p * (0.5 * outputs.s * phi.square().sum(1)).unsqueeze(1)
    return ((weighed.mT @ outputs.p) * seen.neurons.distances).sum()


def is_last(seen: Observation) -> bool:
    """Whether the layer's output is the model's output, in whatever precision."""
    if seen.output_edge is None or seen.normed or seen.seen.z.ndim != 2:
        return False
    return all(step.kind == "ToCopy" for step in seen.inner)


def is_head(seen: Observation) -> bool:
    """Whether the layer's outputs are logits, and the loss is linear in their log-softmax."""
    return seen.found_outputs is not None and seen.found_outputs[0] is Softmax and is_last(seen)
