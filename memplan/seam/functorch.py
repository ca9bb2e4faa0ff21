"""AOTAutograd: forward and backward as one graph."""

from typing import TYPE_CHECKING

from memplan.seam.find import lent
from memplan.seam.patch import used

_AT_ONCE = "backward is lowered with forward"

USED = (
    *used("torch._functorch", "config", why=_AT_ONCE, source="torch/_functorch/config.py"),
    # Not in 2.6; 2.13 is the next release that was looked at.
    *used("torch._functorch.config", "force_non_lazy_backward_lowering", since="2.13", why=_AT_ONCE),
    *used("torch._functorch.aot_autograd", "aot_function", why="forward and backward become one graph"),
    *used(
        "torch._functorch._aot_autograd",
        "descriptors",
        why="results that are saved for backward are described",
        source="torch/_functorch/_aot_autograd/descriptors.py",
        since="2.8",
    ),
    *used(
        "torch._functorch.partitioners",
        "min_cut_rematerialization_partition",
        why="--compile aot_eager cuts graphs as the backend of that name does",
        source="torch/_dynamo/backends/debugging.py aot_eager",
    ),
    *used("torch._functorch._aot_autograd.schemas", "ViewAndMutationMeta", why="it is known what AOTAutograd may save"),
)
"""Rows of the table."""

if TYPE_CHECKING:
    from types import ModuleType

    from torch._functorch import config
    from torch._functorch._aot_autograd.schemas import ViewAndMutationMeta
    from torch._functorch.aot_autograd import aot_function
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    descriptors: ModuleType | None
    force_non_lazy_backward_lowering: bool | None
else:
    __getattr__ = lent(USED)
