"""Compiled models whose layers ranks share: AOTAutograd takes DTensors apart, and Inductor writes the collectives."""

import importlib
import shutil
from collections import Counter
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from memplan.errors import EstimateError
from memplan.job.parallel import parse_parallel
from memplan.tracing.records import Trace
from memplan.tracing.sharding.tensor_names import by_names
from tests.support.ranks import real_ranks
from tests.tracing.jobs import CPU, trace
from tests.tracing.sharding import toy
from tests.tracing.sharding.test_tensor_parallel import tiny_llama
from tests.tracing.sharding.toy import Decoder, decoder, needs_recent_torch, parameter_bytes, traced

pytest.importorskip("triton")
pytestmark = [needs_recent_torch, pytest.mark.filterwarnings("ignore")]
BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
SMALL = 16
"""Bytes: the scalars of a real optimizer's loop are not what is compared."""


def share(model: Any, mesh: DeviceMesh) -> None:
    """Share the layers, and compile every block, as torchtitan does."""
    by_names(model, mesh["tp"], sequence=True)
    for block in model.layers:
        block.compile()


def signed(recorded: Trace) -> list[tuple[int, str]]:
    """Signed bytes of what the last step allocates and frees, each with its phase."""
    step = recorded.steps[-1]
    events = recorded.events[step.first_event : step.end_event]
    sizes = [recorded.storages[event.storage].nbytes * (1 if event.action == "alloc" else -1) for event in events]
    return [
        (size, recorded.ops[event.op].phase)
        for size, event in zip(sizes, events, strict=True)
        if abs(size) > SMALL and recorded.storages[event.storage].place == "device"
    ]


def peak(recorded: Trace) -> int:
    return max(accumulate(size for size, _ in signed(recorded)))


def is_eager(recorded: Trace) -> bool:
    return any("traced as eager" in sentence for sentence in recorded.not_modelled)


def collectives(recorded: Trace) -> Counter[str]:
    return Counter(op.name for op in recorded.ops if op.name.startswith("_c10d_functional"))


def test_compiled_blocks_send_what_eager_ones_do_and_keep_less() -> None:
    given = replace(decoder(), parallelize=share)
    eager, compiled = (traced("tp=2", given=given, compile=choice) for choice in ("eager", "inductor"))
    assert not is_eager(compiled)
    assert parameter_bytes(compiled) == parameter_bytes(eager)
    assert collectives(compiled) == collectives(eager)
    assert peak(compiled) < peak(eager)
    assert not any(op.name == "aten.silu.default" for op in compiled.ops)


@pytest.mark.slow
def test_parameters_that_are_read_as_local_tensors_are_inputs() -> None:
    # Layers that transformers shares read theirs by ``to_local()``.
    eager, compiled = (traced("tp=2", given=tiny_llama(), compile=choice) for choice in ("eager", "inductor"))
    assert not is_eager(compiled)
    assert parameter_bytes(compiled) == parameter_bytes(eager)
    assert sum(collectives(compiled).values()) == sum(collectives(eager).values())
    assert not any(op.name == "aten.silu.default" for op in compiled.ops)


@pytest.mark.slow
@pytest.mark.skipif(
    torch.torch_version.TorchVersion(torch.__version__) >= "2.14", reason="later releases run it, or fail otherwise"
)
def test_what_torch_compiles_and_cannot_run_is_told() -> None:
    with pytest.raises(EstimateError, match="cannot run them under tensor parallelism"):
        traced("tp=2", compile="inductor", checkpoint="full")


def real(_: int, ranks: int) -> list[int]:
    """Signed bytes of a settled step of one of several real ranks."""
    compile_cpu = importlib.import_module("compile_cpu")
    model = Decoder()
    by_names(model, init_device_mesh("cpu", (ranks,), mesh_dim_names=("tp",))["tp"], sequence=False)
    return compile_cpu.settled(model, toy.words, toy.loss)


def whole(model: nn.Module, mesh: DeviceMesh) -> None:
    by_names(model, mesh["tp"], sequence=False)
    model.compile()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile compiles C++ for the CPU")
def test_real_ranks_allocate_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes train over gloo, whose sums need no memory of their own here.

    Its threads let go of what was summed when they come to it: frees are in no order, and one message may be left.
    """
    monkeypatch.setenv("PYTHONPATH", str(BENCHMARKS), prepend=":")
    monkeypatch.syspath_prepend(BENCHMARKS)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        given = replace(decoder(), parallelize=whole)
        job = {"parallel": parse_parallel("tp=2"), "compile": "inductor", "optimizer": "adamw"}
        predicted = signed(trace(given, CPU, batch_size=importlib.import_module("compile_cpu").BATCH, **job))
    finally:
        torch.set_num_threads(threads)
    sizes = [size for size, _ in predicted]
    before = max(index for index, (_, phase) in enumerate(predicted) if phase == "backward") + 1
    allocated = [size for size in sizes[:before] if size > 0]
    message = importlib.import_module("compile_cpu").BATCH * toy.TOKENS * toy.WIDTH * torch.float32.itemsize
    for rank in real_ranks(real, 2, tmp_path):
        truth = [size for size in rank if abs(size) > SMALL]
        assert [size for size in truth if size > 0][: len(allocated)] == allocated
        assert 0 <= max(accumulate(truth)) - max(accumulate(sizes)) <= message


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile compiles C++ for the CPU")
@pytest.mark.parametrize("name", ["sequence", "titan-selective", "titan-loss", "transformers-llama"])
def test_a_rank_allocates_what_a_real_one_does(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name.startswith("transformers"):
        pytest.importorskip("transformers.distributed.tensor_parallel")
    monkeypatch.syspath_prepend(BENCHMARKS)
    found = importlib.import_module("compile_ranks").compared(name)
    assert found.same_sizes
    assert found.peaks[0] == found.peaks[1]
