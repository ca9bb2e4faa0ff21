"""torchtitan's runs under FSDP2, eager as far as their sources say: blocks checkpointed in several ways, ranks, models.

transformers' models stand for torchtitan's own, which have the same products and sizes. Parameters are gathered in bf16
and gradients reduced in fp32, norms are clipped and AdamW is ``foreach``, as its configurations had it.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from memplan.job.parallel import Parallel
from memplan.job.source import ModelSource
from memplan.job.spec import JobSpec, PresetTarget
from published.speed.row import Row

if TYPE_CHECKING:
    from torch import nn
    from torch.distributed.device_mesh import DeviceMesh

AO = "torchao float8nocompile README @105f1ad7, 2025-01 (Llama 3 8B, 1 x 4096, FSDP2 over 8 H100, eager)"
RANKS = "torchtitan benchmarks/llama3_h100_202412 (Llama 3.1 8B, 2 x 8192, FSDP2, H100 of 2.4 TB/s, eager)"
THIRTEEN = "torchtitan docs/performance.md @04133643, 2024 (Llama 2 13B, 2 x 4096, FSDP2 over 64 A100)"
EIGHT = "the same page (Llama 3 8B, 1 x 8192, FSDP2 over 64 A100)"
SEVENTY = "the same page (Llama 2 70B, 4096, FSDP2 over 64 A100)"
TENSOR = "torchtitan pull request 481, 2024-07 (Llama 3.1 405B, 2 x 8192, FSDP2 16 x TP 8 over 128 H100 of 2.4 TB/s)"
_SLOWER = {"memory_bandwidth": 2.4e12, "total_bytes": 102_048_000_000, "usable_bytes": 102_031_000_000}
"""Its H100s: 95.04 GiB as pull request 165 logs them, HBM2e; they drew 500 W at most, which is not modelled."""


def _job(name: str, batch: int, length: int, ranks: int, *, checkpoint: str = "none", tensor: int = 1) -> JobSpec:
    parallel = Parallel(data="fsdp2", shards=ranks, tensor=tensor)
    return JobSpec(
        target=PresetTarget(name=name), batch_size=batch, seq_len=length, precision="bf16-mixed", parallel=parallel,
        checkpoint=checkpoint, clip_grad_norm=1.0,
    )  # fmt: skip


def rows() -> Iterator[Row]:
    """All rows."""
    own = partial(Row, table=AO, gpu="h100-80g")
    eight = _job("llama-3.1-8b", 1, 4096, 8)
    yield own(name="nothing checkpointed", spec=eight, gib=53.12, tokens_per_second=5339.0)
    yield own(name="every second block", spec=eight, change=by_layer, gib=40.6, tokens_per_second=4882.4)
    yield own(name="every block", spec=replace(eight, checkpoint="full"), gib=28.07, tokens_per_second=4502.0)
    ranks = partial(Row, table=RANKS, gpu="h100-80g", card=_SLOWER, change=by_op)
    yield ranks(name="8 ranks", spec=_job("llama-3.1-8b", 2, 8192, 8), gib=82.4, tokens_per_second=5762)
    yield ranks(name="128 ranks", spec=_job("llama-3.1-8b", 2, 8192, 128), gib=67.0, tokens_per_second=5605)
    older = partial(Row, gpu="a100-80g")
    thirteen = partial(older, table=THIRTEEN, spec=_job("llama-2-13b", 2, 4096, 64))
    yield thirteen(name="nothing checkpointed", tokens_per_second=2162)
    yield thirteen(name="every second block", change=by_layer, tokens_per_second=1914)
    yield thirteen(name="selected ops", change=by_op, tokens_per_second=1904)
    eight = _job("llama-3.1-8b", 1, 8192, 64)
    yield older(table=EIGHT, name="every second block", spec=eight, change=by_layer, tokens_per_second=2904)
    yield older(table=EIGHT, name="selected ops", spec=eight, change=by_op, tokens_per_second=2973)
    seventy = partial(older, table=SEVENTY)
    yield seventy(
        name="selected ops, batch 1", spec=_job("llama-2-70b", 1, 4096, 64), change=by_op, tokens_per_second=355
    )
    yield seventy(
        name="every block, batch 2", spec=_job("llama-2-70b", 2, 4096, 64, checkpoint="full"), tokens_per_second=353
    )
    yield Row(
        table=TENSOR, name="every block", gpu="h100-80g", card=_SLOWER,
        spec=_job("llama-3.1-405b", 2, 8192, 16, checkpoint="full", tensor=8), tokens_per_second=109,
    )  # fmt: skip


def by_layer(source: ModelSource, spec: JobSpec) -> ModelSource:
    """Every second block checkpointed, counted from one (``selective_ac_option = "2"``)."""
    return replace(source, parallelize=partial(_parallelize, spec, lambda number: {} if number % 2 == 0 else None))


def by_op(source: ModelSource, spec: JobSpec) -> ModelSource:
    """Every block checkpointed but for the results of some of its ops (``selective_ac_option = "op"``)."""
    return replace(source, parallelize=partial(_parallelize, spec, lambda _: {"context_fn": _contexts}))


def _parallelize(
    spec: JobSpec, options: Callable[[int], dict[str, Any] | None], model: "nn.Module", mesh: "DeviceMesh"
) -> None:
    """torchtitan/parallelisms/parallelize_llama.py: ``apply_ac``, then ``apply_fsdp``, on the meta device."""
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    from memplan.tracing.sharding.fsdp import shard
    from memplan.tracing.sharding.materialise import on_meta

    layers = model.get_submodule("model.layers")
    with on_meta(model, "cuda"):
        for number, (name, layer) in enumerate(list(layers.named_children()), 1):
            if (chosen := options(number)) is not None:
                layers.register_module(name, checkpoint_wrapper(layer, preserve_rng_state=False, **chosen))
        shard(model, spec, mesh)


def _contexts() -> Any:
    """Products are kept, every second one made again; attention is kept."""
    import torch
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

    names = ("mm", "_scaled_dot_product_efficient_attention", "_scaled_dot_product_flash_attention")
    kept = {getattr(torch.ops.aten, name).default for name in names}
    seen: dict[str, int] = defaultdict(int)

    def policy(context: Any, func: Any, *_: Any, **__: Any) -> CheckpointPolicy:
        mode = "recompute" if context.is_recompute else "forward"
        seen[mode] += func is torch.ops.aten.mm.default
        again = func is torch.ops.aten.mm.default and seen[mode] % 2 == 0
        return CheckpointPolicy.MUST_SAVE if func in kept and not again else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)
