"""Truth of ``--compile inductor`` with tensor parallelism: predicted steps of one rank against real compiled ones.

The first rank of a job trains for real on the CPU under ``torch.compile``, in a group that sends nothing (torch's
``fake`` backend): what a rank allocates does not depend on what it is sent, and gloo's own copies are not there. The
same program is traced for the ``cpu`` device. Compared are peaks within a settled step, how many allocations and frees
there are, and how many of forward and backward come in the very order (the trace steps plain parameters and DTensors
apart, which torch may step in turn). Usage::

    python benchmarks/compile_ranks.py [NAME ...]

Needs a C++ compiler, transformers 5.20 or later for the models named after theirs, and torch 2.13.
"""

import functools
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import accumulate, takewhile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from compile_cpu import BATCH, SMALL, own, settled, texts
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

from memplan.job.parallel import parse_parallel
from memplan.tracing.sharding.process_group import MESH_DIMENSIONS
from memplan.tracing.sharding.tensor_names import by_names
from memplan.tracing.sharding.tensor_parallel import _by_own_plan, _untied
from tests.tracing.sharding import toy

KEPT = {
    torch.ops.aten.mm.default,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,  # noqa: SLF001
    torch.ops._c10d_functional.reduce_scatter_tensor.default,  # noqa: SLF001 - torchtitan names it so.
}
"""What selective checkpointing keeps here, of products every second one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One program."""

    model: Callable[[], nn.Module]
    share: Callable[[Any, DeviceMesh], None]
    """Shares, and says what is compiled."""
    batch: Callable[[int], Any] = toy.words
    loss: Callable[[Any, Any], torch.Tensor] = toy.loss
    parallel: str = "tp=2"
    """As ``--parallel`` takes it."""
    around: Callable[[], AbstractContextManager[object]] = nullcontext
    """Where the steps run."""

    @property
    def mesh(self) -> dict[str, int]:
        """Dimension to ranks."""
        parallel = parse_parallel(self.parallel)
        return {name: ranks for name, degree in MESH_DIMENSIONS.items() if (ranks := getattr(parallel, degree)) > 1}


def by_layer_names(model: nn.Module, mesh: DeviceMesh, *, sequence: bool) -> None:
    """Memplan's plan by names, the model compiled as a whole."""
    by_names(model, mesh["tp"], sequence=sequence)
    model.compile(dynamic=False)


def by_block(model: Any, mesh: DeviceMesh) -> None:
    """The same without sharing a sequence, each block compiled."""
    by_names(model, mesh["tp"], sequence=False)
    for block in model.layers:
        block.compile(dynamic=False)


def by_transformers(model: Any, mesh: DeviceMesh) -> None:
    """Transformers' plan, the model compiled as a whole."""
    with _untied(model):
        _by_own_plan(model, parse_parallel("tp=2"), mesh)
    model.compile(dynamic=False)


def as_torchtitan(model: Any, mesh: DeviceMesh, *, logits: bool = True, again: dict[str, Any] | None = None) -> None:
    """Torchtitan's plan for Llama: sequence parallel, each block compiled alone, then FSDP2.

    ``logits``: every rank has all of them. ``again``: blocks are checkpointed, with these options.
    """
    whole = Replicate() if logits else Shard(-1)
    frame = {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=whole, use_local_output=logits),
    }
    parallelize_module(model, mesh["tp"], frame)
    for index, block in enumerate(model.layers):
        parallelize_module(block, mesh["tp"], _of_block())
        block.attention.n_heads //= mesh["tp"].size()
        if again is not None:
            model.layers[index] = checkpoint_wrapper(block, preserve_rng_state=False, **again)
    for block in model.layers:
        block.compile(dynamic=False, fullgraph=True)
        if "dp_shard" in (mesh.mesh_dim_names or ()):
            fully_shard(block, mesh=mesh["dp_shard"])
    if "dp_shard" in (mesh.mesh_dim_names or ()):
        fully_shard(model, mesh=mesh["dp_shard"])


def _of_block() -> dict[str, ParallelStyle]:
    gathered = {"input_layouts": (Shard(1),), "desired_input_layouts": (Replicate(),)}
    styles: dict[str, ParallelStyle] = {name: SequenceParallel() for name in ("norm1", "norm2")}
    styles |= {name: PrepareModuleInput(**gathered) for name in ("attention", "feed_forward")}
    inward = ("attention.wq", "attention.wk", "attention.wv", "feed_forward.w1", "feed_forward.w3")
    styles |= {name: ColwiseParallel() for name in inward}
    return styles | {name: RowwiseParallel(output_layouts=Shard(1)) for name in ("attention.wo", "feed_forward.w2")}


def every_second_product() -> Any:
    """Torchtitan's ``selective_ac_option = "op"``."""
    products = {"seen": 0}

    def policy(context: Any, op: Any, *_: Any, **__: Any) -> CheckpointPolicy:
        is_product = op == torch.ops.aten.mm.default
        products["seen"] += is_product and not context.is_recompute
        keep = op in KEPT and not (is_product and products["seen"] % 2 == 0)
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def llama() -> nn.Module:
    """Two layers of transformers' Llama with a head of its own."""
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 64, "intermediate_size": 128, "vocab_size": 500, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    return LlamaForCausalLM(LlamaConfig(**sizes, **heads, tie_word_embeddings=False, use_cache=False))


_BOTH = "fsdp=2,tp=2"
CASES = {
    "layers": Case(model=toy.Decoder, share=functools.partial(by_layer_names, sequence=False)),
    "sequence": Case(model=toy.Decoder, share=functools.partial(by_layer_names, sequence=True)),
    "blocks": Case(model=toy.Decoder, share=by_block),
    "titan": Case(model=toy.Decoder, share=as_torchtitan, parallel=_BOTH),
    "titan-selective": Case(
        model=toy.Decoder,
        share=functools.partial(as_torchtitan, again={"context_fn": every_second_product}),
        parallel=_BOTH,
    ),
    # torch 2.13 fails, for real and traced; 2.14 does not.
    "titan-full": Case(
        model=toy.Decoder, share=functools.partial(as_torchtitan, again={}), parallel=_BOTH
    ),
    "titan-loss": Case(
        model=toy.Decoder, share=functools.partial(as_torchtitan, logits=False), parallel=_BOTH, around=loss_parallel
    ),
    "transformers-llama": Case(model=llama, share=by_transformers, batch=texts, loss=own),
}  # fmt: skip


def real(name: str) -> list[tuple[int, str]]:
    """Signed bytes of one settled step under the real ``torch.compile``, in no phase."""
    from memplan.seam.distributed import FakeStore

    case = CASES[name]
    ranks = functools.reduce(int.__mul__, case.mesh.values())
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    mesh, model = init_device_mesh("cpu", tuple(case.mesh.values()), mesh_dim_names=tuple(case.mesh)), case.model()
    case.share(model, mesh)
    # It is compiled already.
    model.compile = lambda **_: None  # type: ignore[method-assign]
    with case.around():
        return [(size, "") for size in settled(model, case.batch, case.loss)]


def predicted(name: str) -> list[tuple[int, str]]:
    """The same from a trace, each with its phase."""
    from memplan.job.source import ModelSource
    from memplan.job.spec import FileTarget, JobSpec
    from memplan.tracing.records import DeviceTraits
    from memplan.tracing.run import trace_job

    case = CASES[name]
    source = ModelSource(
        model=case.model, batch=lambda size, _: case.batch(size), loss=case.loss, parallelize=case.share
    )
    parallel = parse_parallel(case.parallel)
    spec = JobSpec(target=FileTarget(path=Path(__file__)), batch_size=BATCH, compile="inductor", parallel=parallel)
    with case.around():
        trace = trace_job(lambda: source, spec, DeviceTraits(kind="cpu"))
    if any("traced as eager" in sentence for sentence in trace.not_modelled):
        raise SystemExit("\n".join(trace.not_modelled))
    step, sizes = trace.steps[-1], [storage.nbytes for storage in trace.storages]
    events = trace.events[step.first_event : step.end_event]
    return [
        (sizes[event.storage] * (1 if event.action == "alloc" else -1), trace.ops[event.op].phase) for event in events
    ]


def in_child(side: str, name: str) -> list[tuple[int, str]]:
    """Run one side in a fresh process."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, __file__, f"--{side}", name]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600, check=True)
    return [(size, phase) for size, phase in json.loads(done.stdout.strip().splitlines()[-1]) if abs(size) > SMALL]


@dataclass(frozen=True, slots=True)
class Compared:
    """A real and a predicted step."""

    peaks: tuple[int, int]
    """Real and predicted bytes within the step."""
    events: tuple[int, int]
    same_sizes: bool
    """Are all allocations and frees the same, in some order?"""
    in_order: tuple[int, int]
    """Allocations and frees of forward and backward that come in the same order, of how many."""


def compared(name: str) -> Compared:
    """Run a case on both sides."""
    truth, guess = in_child("real", name), in_child("predicted", name)
    sizes = [size for size, _ in truth], [size for size, _ in guess]
    before = max(index for index, (_, phase) in enumerate(guess) if phase == "backward") + 1
    alike = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(*sizes, strict=False)))
    peaks = max(accumulate(sizes[0])), max(accumulate(sizes[1]))
    same = Counter(sizes[0]) == Counter(sizes[1])
    return Compared(peaks, (len(truth), len(guess)), same, (min(alike, before), before))


def main(names: list[str]) -> None:
    """Print the table."""
    print(f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, {time.strftime('%Y-%m-%d')}")
    print(f"{'program':<20}{'real peak':>12}{'predicted':>12}{'error':>9}{'events':>8}  same sizes  in order")
    for name in names or CASES:
        try:
            found = compared(name)
        except subprocess.CalledProcessError as failed:
            print(f"{name:<20}  fails: {failed.cmd[-2]}", flush=True)
            continue
        error = 100 * (found.peaks[1] / found.peaks[0] - 1)
        peaks = f"{found.peaks[0]:>12,}{found.peaks[1]:>12,}{error:>+8.2f}%"
        same = "yes" if found.same_sizes else f"no ({found.events[1]})"
        print(
            f"{name:<20}{peaks}{found.events[0]:>8}  {same:<10}  {found.in_order[0]} of {found.in_order[1]}", flush=True
        )


if __name__ == "__main__":
    if sys.argv[1:2] in (["--real"], ["--predicted"]):
        torch.set_num_threads(1)
        print(json.dumps({"--real": real, "--predicted": predicted}[sys.argv[1]](sys.argv[2])), flush=True)
        # The group keeps threads; now and then, the end of the interpreter aborts with them.
        os._exit(0)
    else:
        main(sys.argv[1:])
