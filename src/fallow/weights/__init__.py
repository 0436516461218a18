"""The weights of any model: which are early and which late, drawing them afresh, what the optimiser keeps.

These functions know nothing of fallow's loop: they work in anyone's own.
"""

from fallow.weights.blocks import Block, find_blocks
from fallow.weights.fixed_norm import FixedNorm, insert_norms
from fallow.weights.groups import anneal, ascend, descend, exempt, split_groups
from fallow.weights.initialisers import ByLayer, Fresh, Initialiser, Recorded, Rewound, own_initialiser
from fallow.weights.layers import execution_order, is_norm, layers
from fallow.weights.masks import mask, matrices, random_mask, smallest
from fallow.weights.optimizer_state import reset_state
from fallow.weights.partition import Part, Partition
from fallow.weights.redraw import redraw
from fallow.weights.rescale import norms, rescale
from fallow.weights.slim import kernel_mask, slim

__all__ = [
    "Block",
    "ByLayer",
    "FixedNorm",
    "Fresh",
    "Initialiser",
    "Part",
    "Partition",
    "Recorded",
    "Rewound",
    "anneal",
    "ascend",
    "descend",
    "execution_order",
    "exempt",
    "find_blocks",
    "insert_norms",
    "is_norm",
    "kernel_mask",
    "layers",
    "mask",
    "matrices",
    "norms",
    "own_initialiser",
    "random_mask",
    "redraw",
    "rescale",
    "reset_state",
    "slim",
    "smallest",
    "split_groups",
]
