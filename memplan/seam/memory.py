"""What torch tells of the memory of a device, and what it compiles for memplan."""

from typing import TYPE_CHECKING, Any

from memplan.seam.find import lent
from memplan.seam.patch import used

USED = (
    *used(
        "torch.cuda.memory",
        "_dump_snapshot",
        "_record_memory_history",
        "_snapshot",
        why="allocations of a real run are known",
    ),
    *used(
        "torch._C",
        "_cuda_hasPrimaryContext",
        why="a reading makes no context on a device",
        source="torch/csrc/cuda/Module.cpp",
        required=False,
    ),
    *used(
        "torch._C",
        "_cuda_attach_out_of_memory_observer",
        why="failed allocations are told",
        source="torch/csrc/cuda/Module.cpp",
        required=False,
    ),
    *used("torch.cuda", "_lazy_call", why="failed allocations are told from the first on", required=False),
    *used("torch.utils.cpp_extension", "_get_build_directory", why="what was compiled is found"),
)
"""Rows of the table."""

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.utils.cpp_extension import _get_build_directory as get_build_directory

    dump_snapshot: Callable[..., Any]
    record_memory_history: Callable[..., Any]
    snapshot: Callable[..., Any]
    lazy_call: Callable[[Callable[[], None]], None] | None
    cuda_hasPrimaryContext: Callable[[int], bool] | None  # noqa: N816
    cuda_attach_out_of_memory_observer: Callable[[Callable[[int, int, int, int], None]], None] | None
else:
    __getattr__ = lent(USED)
