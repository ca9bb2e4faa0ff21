"""Storages told apart without addresses, which fake ones do not have."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch.distributed.tensor import DTensor

from memplan.seam.distributed import FSDPParam
from memplan.seam.patches.sharding import HAS_MEMORY, RESET_SHARD, SAME_STORAGE
from memplan.seam.replace import Replacement, attribute, replaced


@contextmanager
def comparing_storages() -> Iterator[None]:
    """Let FSDP tell storages apart, which it does by their addresses: fake ones have none."""
    table = (
        Replacement(
            RESET_SHARD.path,
            _reset_once(attribute(RESET_SHARD.path)),
        ),
        Replacement(SAME_STORAGE.path, lambda a, b: _storage(a)._cdata == _storage(b)._cdata),
        Replacement(HAS_MEMORY.path, lambda tensor: _storage(tensor).nbytes() > 0),
    )
    with replaced(table):
        yield


def _reset_once(reset: Callable[[FSDPParam], None]) -> Callable[[FSDPParam], None]:
    """FSDP2 pads a shard again unless it finds its own padded memory behind the parameter."""

    def reset_unless_same(sharded: FSDPParam) -> None:
        found = getattr(sharded._module_info.module, sharded._module_info.param_name)
        is_known = found is sharded.sharded_param and not found.is_meta
        if not is_known or _storage(found)._cdata != sharded._sharded_param_data.untyped_storage()._cdata:
            reset(sharded)

    return reset_unless_same


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage:
    return (tensor._local_tensor if isinstance(tensor, DTensor) else tensor).untyped_storage()
