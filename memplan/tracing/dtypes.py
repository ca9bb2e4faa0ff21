"""What a step computes in, and whether the device has it."""

from collections.abc import Collection

import torch

from memplan.tracing.records import DeviceTraits

WITHOUT = {
    "bfloat16": "bfloat16 on a GPU whose cores have none: PyTorch emulates it, slowly; fp16 runs in hardware",
    "float8": "float8 on a GPU whose cores have none: torch._scaled_mm refuses to run there",
}
"""Dtype → what the report says where the device lacks it."""


def lacking(device: DeviceTraits, dtypes: Collection[torch.dtype]) -> tuple[str, ...]:
    """What a report leaves out because the device lacks a dtype.

    Args:
        device: What the step is traced for.
        dtypes: Of the tensors that its ops made.
    """
    names = [str(dtype).removeprefix("torch.") for dtype in dtypes]
    return tuple(WITHOUT[lacked] for lacked in device.lacks if any(name.startswith(lacked) for name in names))
