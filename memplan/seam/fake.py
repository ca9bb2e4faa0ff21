"""Tensors without memory, and the modes in which they are made."""

from typing import TYPE_CHECKING

from memplan.seam.find import lent
from memplan.seam.patch import used

USED = (
    *used(
        "torch._subclasses.fake_tensor",
        "FakeTensor",
        "FakeTensorMode",
        "DataDependentOutputException",
        "DynamicOutputShapeException",
        "unset_fake_temporarily",
        why="a step runs without memory and without arithmetic",
    ),
    *used(
        "torch._guards",
        "TracingContext",
        "detect_fake_mode",
        "tracing",
        why="a compiler that captures is told from the code that it captures",
    ),
    *used("torch.nested._internal.nested_int", "NestedIntNode", why="nested tensors have ragged sizes without symbols"),
    *used(
        "torch.nested._internal.nested_tensor", "NestedTensor", why="nested tensors are made on the CPU of the trace"
    ),
)
"""Rows of the table."""

if TYPE_CHECKING:
    from torch._guards import TracingContext, detect_fake_mode, tracing
    from torch._subclasses.fake_tensor import (
        DataDependentOutputException,
        DynamicOutputShapeException,
        FakeTensor,
        FakeTensorMode,
        unset_fake_temporarily,
    )
    from torch.nested._internal.nested_int import NestedIntNode
    from torch.nested._internal.nested_tensor import NestedTensor
else:
    __getattr__ = lent(USED)
