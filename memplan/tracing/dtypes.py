"""What a step computes in, and whether the device has it."""

from collections.abc import Collection, Mapping

import torch

from memplan.tracing.records import Computing, DeviceTraits

WITHOUT = {
    "bfloat16": "bfloat16 on a GPU whose cores have none: PyTorch emulates it, slowly; fp16 runs in hardware",
    "float8": "float8 on a GPU whose cores have none: torch._scaled_mm refuses to run there",
}
"""Dtype → what the report says where the device lacks it."""

SHORT: Mapping[torch.dtype, Computing] = {torch.float16: "fp16", torch.bfloat16: "bf16"}
"""What options call the types that compute faster than fp32."""


def computing(arithmetic: Mapping[torch.dtype, int]) -> Computing:
    """Return in what most arithmetic is done, as options call it, of FLOPs by type."""
    most = max(arithmetic, key=arithmetic.__getitem__, default=torch.float32)
    return SHORT.get(most, "fp32")


def lacking(device: DeviceTraits, dtypes: Collection[torch.dtype]) -> tuple[str, ...]:
    """What a report leaves out because the device lacks a dtype.

    Args:
        device: What the step is traced for.
        dtypes: Of the tensors that its ops made.
    """
    names = [str(dtype).removeprefix("torch.") for dtype in dtypes]
    return tuple(WITHOUT[lacked] for lacked in device.lacks if any(name.startswith(lacked) for name in names))
