"""What lets torch's own sharding run as one rank among ranks that are not there."""

from memplan.seam.patch import Patch, patch, patches

_RANKS = (
    "init_process_group",
    "destroy_process_group",
    "barrier",
    "monitored_barrier",
    "broadcast_object_list",
    "all_gather_object",
    "gather_object",
    "recv_object_list",
    "is_nccl_available",
    "new_group",
)

GATHERED_PARAMETER = patch(
    "torch.distributed.fsdp._fully_shard._fsdp_param.FSDPParam.init_all_gather_outputs",
    why="gathered parameters count as parameters",
    source="torch/distributed/fsdp/_fully_shard/_fsdp_param.py FSDPParam",
)
CUT_INTO_SHARDS = patch(
    "torch.distributed.fsdp._fully_shard._fsdp_param._chunk_with_empty",
    required=False,
    why="thousands of ranks that get nothing of a parameter share one empty shard",
    source="torch/distributed/fsdp/_fully_shard/_fsdp_common.py _chunk_with_empty",
)
RESET_SHARD = patch(
    "torch.distributed.fsdp._fully_shard._fsdp_param.FSDPParam.reset_sharded_param",
    why="FSDP2 keeps a shard that it has padded",
    source="torch/distributed/fsdp/_fully_shard/_fsdp_param.py FSDPParam.reset_sharded_param",
)
SAME_STORAGE = patch(
    "torch.distributed.fsdp._flat_param._same_storage",
    why="FSDP1 tells storages apart that have no addresses",
    source="torch/distributed/fsdp/_flat_param.py",
)
HAS_MEMORY = patch(
    "torch.distributed.fsdp._flat_param._data_ptr_allocated",
    why="FSDP1 tells storages apart that have no addresses",
    source="torch/distributed/fsdp/_flat_param.py",
)
CAST_LABELS = patch(
    "torch.distributed.tensor.parallel.loss._cast_to_dtensor",
    why="what lies on the device is on the device of the mesh, where a loss asks that is computed in shards",
    source="torch/distributed/tensor/parallel/loss.py loss_parallel",
)
SET_TIMEOUT = patch(
    "torch.distributed.distributed_c10d._set_pg_timeout",
    why="a group that sends nothing waits for nobody",
    source="torch/distributed/distributed_c10d.py _set_pg_timeout",
)
GET_ACCELERATOR = patch(
    "torch._C._get_accelerator",
    why="FSDP1 without a device_id finds the GPU of the trace",
    source="torch/distributed/fsdp/_init_utils.py _init_device_handle",
)
WARN_CPU_INIT = patch(
    "torch.distributed.fsdp._init_utils._warn_cpu_init",
    required=False,
    why="FSDP1 does not warn of parameters that memplan moves",
    source="torch/distributed/fsdp/_init_utils.py _get_compute_device",
)
PROPAGATE_SHARDING = patch(
    "torch.distributed.tensor._sharding_prop.ShardingPropagator.propagate_op_sharding_non_cached",
    why="the sharding of alike elements is worked out once",
    source="torch/distributed/tensor/_sharding_prop.py",
)
PROPAGATE_SHAPES = patch(
    "torch.distributed.tensor._sharding_prop.ShardingPropagator._propagate_tensor_meta_non_cached",
    why="shapes of global tensors are not recorded as ops of the step",
    source="torch/distributed/tensor/_sharding_prop.py",
)
MAKE_WRAPPER = patch(
    "torch.Tensor._make_wrapper_subclass",
    why="DTensors lie on the device of the trace",
    source="torch/csrc/autograd/python_variable.cpp THPVariable_make_wrapper_subclass",
)
DRAW_SHARDS = patch(
    "torch.distributed.tensor._random.OffsetBasedRNGTracker._distribute_region",
    why="shards of random numbers have no numbers that ranks could agree on",
    source="torch/distributed/tensor/_random.py",
)
RANDOM_TRACKER = patch(
    "torch.distributed.tensor._random.OffsetBasedRNGTracker.__init__",
    why="the first random op on DTensors may move the state of a generator to a GPU that is played",
    source="torch/distributed/tensor/_random.py",
)
COMPARE_SHAPES = patch(
    "torch.nn.parallel.distributed._verify_param_shape_across_processes",
    why="DDP does not compare values among ranks",
    source="torch/nn/parallel/distributed.py",
)
REGISTER_HOOK = patch(
    "torch.nn.parallel.DistributedDataParallel.register_comm_hook",
    why="a program's communication hook runs where memplan's stands",
    source="torch/nn/parallel/distributed.py DistributedDataParallel.register_comm_hook",
)
ALL_REDUCE = patch(
    "torch.distributed.all_reduce",
    why="what a communication hook waits for is there",
    source="torch/distributed/distributed_c10d.py all_reduce",
)
REBUILD_BUCKETS = patch(
    "torch._C._distributed_c10d.Reducer._rebuild_buckets",
    why="DDP's reducer rebuilds its buckets with real numbers",
    source="torch/csrc/distributed/c10d/reducer.cpp Reducer::rebuild_buckets",
)
MESH_METHODS = (
    *patches(
        "torch.distributed.device_mesh.DeviceMesh",
        "__init__",
        "__getitem__",
        "get_local_rank",
        "from_group",
        why="meshes compute with real numbers of ranks",
        source="torch/distributed/device_mesh.py DeviceMesh",
    ),
    *patches(
        "torch.distributed.device_mesh.DeviceMesh",
        "_flatten",
        "_unflatten",
        "_concatenate",
        "_get_all_submeshes",
        "mesh",
        required=False,
        why="meshes compute with real numbers of ranks",
        source="torch/distributed/device_mesh.py DeviceMesh",
    ),
)
"""Methods of meshes that compute with tensors of ranks."""
RINGS = patches(
    "torch.distributed.tensor.experimental._context_parallel._attention",
    "_templated_ring_attention",
    "_templated_ring_attention_backward",
    required=False,
    why="a few turns of a long ring stand for all",
    source="torch/distributed/tensor/experimental/_context_parallel/_attention.py",
)
"""Their loops go once around the ranks of a ring; where there are none, every turn is traced."""
NUMBER_OF_WORK = patch(
    "torch.distributed._meta_registrations.generate_unique_id",
    required=False,
    why="collectives of fake tensors draw no random numbers, which those of a run do not",
    source="torch/distributed/_meta_registrations.py create_fakework",
)
GATHERED_KEYS = patch(
    "torch.distributed.tensor.experimental._context_parallel._attention._AllGatherRotater.next_buffer",
    required=False,
    why="of what a ring gathers, one rank's part is looked at in a turn, and not those of all",
    source="torch/distributed/tensor/experimental/_context_parallel/_attention.py",
)

PATCHES: tuple[Patch, ...] = (
    GATHERED_PARAMETER,
    CUT_INTO_SHARDS,
    RESET_SHARD,
    SAME_STORAGE,
    HAS_MEMORY,
    GET_ACCELERATOR,
    WARN_CPU_INIT,
    PROPAGATE_SHARDING,
    PROPAGATE_SHAPES,
    MAKE_WRAPPER,
    DRAW_SHARDS,
    RANDOM_TRACKER,
    COMPARE_SHAPES,
    CAST_LABELS,
    SET_TIMEOUT,
    REGISTER_HOOK,
    ALL_REDUCE,
    REBUILD_BUCKETS,
    NUMBER_OF_WORK,
    GATHERED_KEYS,
    *patches(
        "torch.distributed",
        *_RANKS,
        why="a rank's code finds the other ranks",
        source="torch/distributed/distributed_c10d.py",
    ),
    *patches(
        "torch.distributed.distributed_c10d",
        *_RANKS,
        why="a rank's code finds the other ranks",
        source="torch/distributed/distributed_c10d.py",
    ),
    *MESH_METHODS,
    *RINGS,
    *patches(
        "*",
        "init_device_mesh",
        why="meshes compute with real numbers of ranks",
        source="torch/distributed/device_mesh.py init_device_mesh",
    ),
    *patches(
        "torch.nn.parallel.DistributedDataParallel",
        "__init__",
        why="DDP's reducer leaves its result in its buckets",
        source="torch/nn/parallel/distributed.py DistributedDataParallel",
    ),
)
