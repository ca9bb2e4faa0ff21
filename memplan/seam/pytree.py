"""Trees of tuples, lists and dictionaries with tensors at their leaves."""

from typing import TYPE_CHECKING

from memplan.seam.find import lent
from memplan.seam.patch import used

USED = (
    *used(
        "torch.utils._pytree",
        "TreeSpec",
        "tree_flatten",
        "tree_leaves",
        "tree_map",
        "tree_map_only",
        "tree_unflatten",
        why="tensors are found wherever they stand in arguments and results",
    ),
)
"""Rows of the table."""

if TYPE_CHECKING:
    from torch.utils._pytree import TreeSpec, tree_flatten, tree_leaves, tree_map, tree_map_only, tree_unflatten
else:
    __getattr__ = lent(USED)
