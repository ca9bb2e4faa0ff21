"""What tensors and their storages tell of themselves, and what is made of them."""

from typing import TYPE_CHECKING, Any

from memplan.seam.find import lent
from memplan.seam.patch import used

USED = (
    *used(
        "torch",
        "_foreach_add_",
        "_foreach_div_",
        "_foreach_lerp_",
        "_foreach_sign_",
        why="many tensors are computed with at once",
        source="aten/src/ATen/native/native_functions.yaml",
    ),
    *used(
        "torch.jit._builtins",
        "_register_builtin",
        required=False,
        why="functions that torch.jit compiles meanwhile know what stands for one of torch's",
        source="torch/jit/_builtins.py",
    ),
    *used(
        "torch.Tensor",
        "_make_subclass",
        "_make_wrapper_subclass",
        why="tensors of another class are made",
        source="torch/csrc/autograd/python_variable.cpp",
    ),
    *used(
        "torch._C",
        "TensorBase",
        "_set_throw_on_mutable_data_ptr",
        "_set_warn_deprecated_on_mutable_data_ptr",
        "_storage_Use_Count",
        why="results are remembered, and nobody else holds what an op may overwrite",
        source="torch/csrc/autograd/python_variable.cpp, torch/csrc/Module.cpp",
    ),
    *used(
        "torch._C._nn",
        "_parse_to",
        why="modules are moved as on the device",
        source="torch/csrc/autograd/python_nn_functions.h",
    ),
    *used(
        "torch._VF",
        "_pad_packed_sequence",
        why="packed sequences are padded as on the device",
        source="aten/src/ATen/native/PackedSequence.cpp",
    ),
    *used(
        "torch._prims_common",
        "compute_elementwise_output_strides",
        why="results of elementwise ops lie as torch lays them",
    ),
    *used(
        "torch.utils.data.dataloader", "_SingleProcessDataLoaderIter", why="batches are loaded in the traced process"
    ),
)
"""Rows of the table."""

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import (
        _foreach_add_ as foreach_add_,
        _foreach_div_ as foreach_div_,
        _foreach_lerp_ as foreach_lerp_,
        _foreach_sign_ as foreach_sign_,
    )
    from torch._C import (
        TensorBase,
        _set_throw_on_mutable_data_ptr as set_throw_on_mutable_data_ptr,
        _set_warn_deprecated_on_mutable_data_ptr as set_warn_deprecated_on_mutable_data_ptr,
        _storage_Use_Count as storage_Use_Count,
    )
    from torch._C._nn import _parse_to as parse_to
    from torch._prims_common import compute_elementwise_output_strides
    from torch.jit._builtins import _register_builtin as register_builtin
    from torch.utils.data.dataloader import _SingleProcessDataLoaderIter as SingleProcessDataLoaderIter

    make_subclass: Callable[..., Any]
    make_wrapper_subclass: Callable[..., Any]
    pad_packed_sequence: Callable[..., Any]
else:
    __getattr__ = lent(USED)
