"""FSDP2 and HSDP: ``fully_shard`` on every repeated block and on the whole."""

from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard

from memplan.errors import UsageError
from memplan.job.parallel import Parallel
from memplan.job.spec import JobSpec, Precision
from memplan.runtime.checkpoint.blocks import repeated_blocks
from memplan.seam.patches.sharding import CUT_INTO_SHARDS
from memplan.seam.replace import Replacement, replaced
from memplan.tracing.sharding import world

REDUCED_IN = {"bf16-mixed": torch.bfloat16, "fp16-mixed": torch.float16}
"""Precision → dtype in which parameters are gathered; gradients are then reduced in fp32 (torchtitan's defaults)."""

_REFUSED = frozenset({"adamw-8bit", "paged-adamw-8bit"})
"""Optimizers whose kernels read memory by address, of which a DTensor has none (bitsandbytes issue 1633, 2025)."""


def shard(model: nn.Module, spec: JobSpec, mesh: DeviceMesh) -> nn.Module:
    """Shard a model over the data-parallel ranks; runs with its parameters on the meta device.

    Raises:
        UsageError: The optimizer cannot update what is sharded.
    """
    if spec.optimizer in _REFUSED:
        raise UsageError(
            f"bitsandbytes' {spec.optimizer} crashes on the sharded parameters of FSDP2 (its issue 1633)",
            where="--optimizer",
            hint="torchao's AdamW8bit, made in the target's optimizer(), takes them",
        )
    options: dict[str, Any] = {"mesh": data_mesh(mesh), "mp_policy": mixed_precision(spec.precision)}
    options["offload_policy"] = CPUOffloadPolicy() if spec.parallel.offload else OffloadPolicy()
    blocks = repeated_blocks(model)
    with replaced((Replacement(CUT_INTO_SHARDS.path, _cut_into_shards),)):
        for name in blocks:
            fully_shard(model.get_submodule(name), reshard_after_forward=spec.parallel.reshard, **options)
        # Left to torch where nothing is said: the root's own parameters stay, since backward needs them at once.
        if spec.parallel.reshard is not True:
            options["reshard_after_forward"] = spec.parallel.reshard
        fully_shard(model, **options)
    world.current().assume(_said(len(blocks), spec.parallel, spec.precision))
    return model


def _cut_into_shards(tensor: torch.Tensor, num_chunks: int, dim: int) -> list[torch.Tensor]:
    """``_chunk_with_empty`` with one empty shard for all ranks that have none: of 4,096 most have."""
    chunks = list(torch.chunk(tensor, num_chunks, dim=dim))
    return [*chunks, *[chunks[0].new_empty(0)] * (num_chunks - len(chunks))]


def data_mesh(mesh: DeviceMesh) -> DeviceMesh:
    """The ranks among which states are shared: shards and those of a sequence, within replicas where there are any."""
    names = mesh.mesh_dim_names or ()
    sharing: list[str] = [name for name in ("dp_shard", "cp") if name in names]
    if not sharing:
        return mesh["dp_replicate"] if "dp_replicate" in names else mesh
    flat = mesh["dp_shard", "cp"]._flatten("dp_shard_cp") if len(sharing) > 1 else mesh[sharing[0]]
    if "dp_replicate" not in names:
        return flat
    sharing = ["dp_shard_cp"] if len(sharing) > 1 else sharing
    return mesh["dp_replicate", sharing[0]]


def mixed_precision(precision: Precision) -> MixedPrecisionPolicy:
    """The policy for a precision: ``-mixed`` gathers parameters in 16 bits, everything else changes nothing."""
    if precision not in REDUCED_IN:
        return MixedPrecisionPolicy()
    return MixedPrecisionPolicy(param_dtype=REDUCED_IN[precision], reduce_dtype=torch.float32)


def _said(blocks: int, parallel: Parallel, precision: Precision) -> str:
    units = f"each of {blocks} blocks and the rest" if blocks else "the whole model"
    match parallel.reshard:
        case bool():
            kept = "freed after forward" if parallel.reshard else "kept until backward"
        case _:
            kept = f"kept over {parallel.reshard} ranks after forward"
    mixed = f", gathered in {precision.removesuffix('-mixed')} and reduced in fp32 without autocast"
    return f"fully_shard of {units}; gathered blocks are {kept}" + (mixed if precision in REDUCED_IN else "")
