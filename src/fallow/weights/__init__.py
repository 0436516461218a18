"""The weights of any model: which are early and which late, drawing them afresh, what the optimiser keeps.

These functions know nothing of fallow's loop: they work in anyone's own.
"""

from fallow.weights.blocks import Block, find_blocks
from fallow.weights.groups import ascend, descend, split_groups
from fallow.weights.initialisers import ByLayer, Fresh, Initialiser, Recorded, own_initialiser
from fallow.weights.layers import execution_order, is_norm, layers
from fallow.weights.optimizer_state import reset_state
from fallow.weights.partition import Part, Partition
from fallow.weights.redraw import redraw

__all__ = [
    "Block",
    "ByLayer",
    "Fresh",
    "Initialiser",
    "Part",
    "Partition",
    "Recorded",
    "ascend",
    "descend",
    "execution_order",
    "find_blocks",
    "is_norm",
    "layers",
    "own_initialiser",
    "redraw",
    "reset_state",
    "split_groups",
]
