"""Nodes of autograd, and where backward is."""

from typing import TYPE_CHECKING

from memplan.seam.find import lent
from memplan.seam.patch import used

USED = (
    *used(
        "torch._C",
        "_current_autograd_node",
        "_current_graph_task_id",
        why="ops of backward are told from those of forward",
        source="torch/csrc/autograd/python_engine.cpp, torch/csrc/autograd/init.cpp",
    ),
    *used(
        "torch._C._autograd",
        "SavedTensor",
        "_get_sequence_nr",
        why="ops of backward belong to the module whose forward they follow",
        source="torch/csrc/autograd/init.cpp, torch/csrc/autograd/python_saved_variable_hooks.cpp",
    ),
    *used(
        "torch.autograd.graph",
        "_engine_run_backward",
        why="what hooks of saved tensors do is told from what the node itself does",
        source="torch/autograd/graph.py _engine_run_backward",
    ),
)
"""Rows of the table."""

if TYPE_CHECKING:
    from torch._C import (
        _current_autograd_node as current_autograd_node,
        _current_graph_task_id as current_graph_task_id,
    )
    from torch._C._autograd import SavedTensor, _get_sequence_nr as get_sequence_nr
    from torch.autograd.graph import _engine_run_backward as engine_run_backward
else:
    __getattr__ = lent(USED)
