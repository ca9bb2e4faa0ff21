"""Operators as torch's dispatcher knows them."""

from typing import TYPE_CHECKING

from memplan.seam.find import lent
from memplan.seam.patch import used

USED = (
    *used("torch._ops", "HigherOrderOperator", "OpOverload", why="an op is known by its schema"),
    *used(
        "torch._C",
        "DispatchKey",
        "DispatchKeySet",
        "_ExcludeDispatchKeyGuard",
        "_PreserveDispatchKeyGuard",
        "_RestorePythonTLSSnapshot",
        "_dispatch_get_all_op_names",
        "_dispatch_has_kernel_for_dispatch_key",
        "_dispatch_keys",
        "_dispatch_tls_set_dispatch_key_excluded",
        "_jit_get_all_schemas",
        why="an op runs by the kernel that it has on the device",
        source="torch/csrc/utils/python_dispatch.cpp, torch/csrc/jit/python/init.cpp",
    ),
    *used(
        "torch._C",
        "_get_sdp_priority_order",
        "_set_sdp_priority_order",
        why="attention runs by the kernel that CUDA's order finds first",
        source="torch/csrc/Module.cpp",
    ),
    *used("torch.library", "_scoped_library", why="kernels are replaced for the length of a context"),
    *used("torch._library.custom_ops", "OPDEFS", why="operators of Triton's kernels run their Python part"),
    *used("torch._library.triton", "set_wrap_triton_enabled", why="Triton's kernels are launched and not captured"),
    *used(
        "torch._higher_order_ops.flex_attention",
        "FlexAttentionHOP",
        why="flex_attention takes the compiled kernel's memory",
    ),
)
"""Rows of the table."""

if TYPE_CHECKING:
    from torch._C import (  # type: ignore[attr-defined]
        DispatchKey,
        DispatchKeySet,
        _dispatch_get_all_op_names as dispatch_get_all_op_names,
        _dispatch_has_kernel_for_dispatch_key as dispatch_has_kernel_for_dispatch_key,
        _dispatch_keys as dispatch_keys,
        _dispatch_tls_set_dispatch_key_excluded as dispatch_tls_set_dispatch_key_excluded,
        _ExcludeDispatchKeyGuard as ExcludeDispatchKeyGuard,
        _get_sdp_priority_order as get_sdp_priority_order,
        _jit_get_all_schemas as jit_get_all_schemas,
        _PreserveDispatchKeyGuard as PreserveDispatchKeyGuard,
        _RestorePythonTLSSnapshot as RestorePythonTLSSnapshot,
        _set_sdp_priority_order as set_sdp_priority_order,
    )
    from torch._higher_order_ops.flex_attention import FlexAttentionHOP
    from torch._library.custom_ops import OPDEFS
    from torch._library.triton import set_wrap_triton_enabled
    from torch._ops import HigherOrderOperator, OpOverload
    from torch.library import _scoped_library as scoped_library
else:
    __getattr__ = lent(USED)
