"""Sharded parameters and tensors, buckets of gradients, groups that send nothing."""

from typing import TYPE_CHECKING, Any

from memplan.seam.find import lent
from memplan.seam.patch import used

USED = (
    *used(
        "torch.distributed.fsdp._fully_shard._fsdp_param",
        "FSDPParam",
        why="shards and gathered parameters of FSDP2 are known",
    ),
    *used(
        "torch.distributed.tensor",
        "_random",
        why="no random generator of DTensor outlives a trace",
        source="torch/distributed/tensor/_random.py",
    ),
    *used(
        "torch.distributed.tensor.DTensor",
        "_op_dispatcher",
        why="nothing that DTensor remembers of ops outlives a trace",
        source="torch/distributed/tensor/_api.py",
    ),
    *used(
        "torch.distributed.tensor._op_schema",
        "OpSchema",
        "OutputSharding",
        why="the sharding of alike elements is worked out once",
    ),
    *used(
        "torch.distributed.tensor._sharding_prop",
        "ShardingPropagator",
        why="the sharding of alike elements is worked out once",
    ),
    *used(
        "torch._C",
        "_clear_DTensor_sharding_propagator_cache",
        why="nothing that DTensor remembers of ops outlives a trace",
        source="torch/csrc/autograd/python_variable.cpp",
        required=False,
    ),
    *used(
        "torch._C._distributed_c10d",
        "GradBucket",
        "Reducer",
        why="DDP's reducer runs on fake gradients",
        source="torch/csrc/distributed/c10d/reducer.cpp",
    ),
    *used("torch.testing._internal.distributed.fake_pg", "FakeStore", why="a rank runs without the others"),
)
"""Rows of the table."""

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch._C._distributed_c10d import GradBucket, Reducer
    from torch.distributed.fsdp._fully_shard._fsdp_param import FSDPParam
    from torch.distributed.tensor import _random as random
    from torch.distributed.tensor._op_schema import OpSchema, OutputSharding
    from torch.distributed.tensor._sharding_prop import ShardingPropagator
    from torch.testing._internal.distributed.fake_pg import FakeStore

    op_dispatcher: Any
    clear_DTensor_sharding_propagator_cache: Callable[[], None] | None  # noqa: N816
else:
    __getattr__ = lent(USED)
