"""Modes that see every call and every op, and what switches them off."""

from typing import TYPE_CHECKING

from memplan.seam.find import lent
from memplan.seam.patch import used

USED = (
    *used(
        "torch.utils._python_dispatch",
        "TorchDispatchMode",
        "_disable_current_modes",
        "_get_current_dispatch_mode_stack",
        "is_traceable_wrapper_subclass",
        why="every op is seen",
    ),
    *used(
        "torch.overrides",
        "_get_current_function_mode_stack",
        why="user code that torch calls back runs under the modes of the trace",
    ),
    *used(
        "torch.utils._device",
        "CURRENT_DEVICE",
        "DeviceContext",
        "_device_constructors",
        why="factories of tensors are known",
    ),
    *used(
        "torch._C",
        "DisableTorchFunction",
        "_DisableTorchDispatch",
        "_TorchDispatchModeKey",
        "_get_dispatch_mode",
        "_is_torch_function_mode_enabled",
        "_len_torch_dispatch_stack",
        why="what memplan does for its own sake is not recorded",
        source="torch/csrc/autograd/python_torch_functions_manual.cpp, torch/csrc/utils/disable_torch_function.cpp",
    ),
    *used(
        "torch._C._functorch",
        "get_unwrapped",
        "is_functorch_wrapped_tensor",
        why="tensors within vmap and grad are those that they wrap",
        source="torch/csrc/functorch/init.cpp",
    ),
)
"""Rows of the table."""

if TYPE_CHECKING:
    import torch
    from torch._C import (
        DisableTorchFunction,
        _DisableTorchDispatch as DisableTorchDispatch,
        _get_dispatch_mode as get_dispatch_mode,
        _is_torch_function_mode_enabled as is_torch_function_mode_enabled,
        _len_torch_dispatch_stack as len_torch_dispatch_stack,
        _TorchDispatchModeKey as TorchDispatchModeKey,
    )
    from torch._C._functorch import get_unwrapped, is_functorch_wrapped_tensor
    from torch.overrides import _get_current_function_mode_stack as get_current_function_mode_stack
    from torch.utils._device import DeviceContext, _device_constructors as device_constructors
    from torch.utils._python_dispatch import (
        TorchDispatchMode,
        _disable_current_modes as disable_current_modes,
        _get_current_dispatch_mode_stack as get_current_dispatch_mode_stack,
        is_traceable_wrapper_subclass,
    )

    CURRENT_DEVICE: torch.device | None
else:
    __getattr__ = lent(USED)
