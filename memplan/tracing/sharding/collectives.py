"""Collectives on fake tensors, for releases of torch that have no shape functions for them (2.6).

What newer ones do stands in torch/distributed/_meta_registrations.py: results lie in tensors that the caller has made,
so an op only returns them, with a piece of work that is done.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from memplan.seam.modes import disable_current_modes
from memplan.seam.operators import dispatch_has_kernel_for_dispatch_key, scoped_library

_OPS = (
    "broadcast_", "allreduce_", "allgather_", "_allgather_base_", "reduce_scatter_", "_reduce_scatter_base_", "reduce_",
    "gather_", "scatter_", "alltoall_", "alltoall_base_", "barrier", "send", "recv_", "recv_any_source_",
)  # fmt: skip


@contextmanager
def collectives_of_fakes() -> Iterator[None]:
    """Let collectives of the default process group, and of those made later, run on fake tensors."""
    missing = [name for name in _OPS if not dispatch_has_kernel_for_dispatch_key(f"c10d::{name}", "Meta")]
    with scoped_library("c10d", "IMPL") as library:
        if missing:
            with disable_current_modes():
                work = dist.all_reduce(torch.empty(1), async_op=True).boxed()
        for name in missing:
            library.impl(name, _done(name, work), "Meta")
        yield


def _done(name: str, work: Any) -> Callable[..., Any]:
    returns_tensors = len(getattr(torch.ops.c10d, name).default._schema.returns) > 1
    return lambda *args: (args[0], work) if returns_tensors else work
