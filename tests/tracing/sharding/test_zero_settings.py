"""Settings as DeepSpeed's own parser reads them."""

import importlib
import importlib.util
from pathlib import Path

import pytest

from memplan.job.parallel import parse_parallel
from memplan.job.spec import JobSpec, PresetTarget
from memplan.job.zero import Zero
from memplan.tracing.sharding.zero import library
from memplan.tracing.sharding.zero.settings import settings

pytestmark = pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="needs deepspeed")
DISK = Path("/nowhere")
SAME = (
    "contiguous_gradients", "reduce_scatter", "round_robin_gradients", "reduce_bucket_size", "allgather_bucket_size",
    "prefetch_bucket_size", "max_live_parameters", "max_reuse_distance", "param_persistence_threshold",
    "sub_group_size",
)  # fmt: skip
"""Fields of ``Zero`` that DeepSpeed's configuration has under the same name."""
ODD = Zero(
    contiguous_gradients=False,
    reduce_scatter=False,
    round_robin_gradients=True,
    reduce_bucket_size=11,
    allgather_bucket_size=22,
    prefetch_bucket_size=33,
    max_live_parameters=44,
    max_reuse_distance=55,
    param_persistence_threshold=66,
    sub_group_size=77,
    hpz_partition_size=2,
    overlap_comm=False,
    offload_optimizer="nvme",
    offload_param="nvme",
    pin_memory=False,
    param_buffer_count=6,
    param_buffer_size=88,
    optimizer_buffer_count=7,
    param_max_in_cpu=99,
)


def read(zero: Zero | None, parallel: str = "zero3=4", **options):
    """``zero_optimization`` as DeepSpeed understands it."""
    library.deepspeed()
    spec = JobSpec(target=PresetTarget(name="gpt2"), parallel=parse_parallel(parallel), zero=zero, **options)
    document = settings(spec, DISK)
    parsed = importlib.import_module("deepspeed.runtime.zero.config").DeepSpeedZeroConfig
    return document, parsed(**document["zero_optimization"])


@pytest.mark.parametrize("parallel", ["zero1=4", "zero2=4", "zero3=4"])
def test_defaults_are_deepspeeds(parallel):
    _, said = read(None, parallel)
    own = importlib.import_module("deepspeed.runtime.zero.config").DeepSpeedZeroConfig(stage=int(parallel[4]))
    assert said == own


def test_every_setting_arrives():
    _, said = read(ODD)
    assert {name: getattr(said, name) for name in SAME} == {name: getattr(ODD, name) for name in SAME}
    assert said.zero_hpz_partition_size == ODD.hpz_partition_size
    assert said.overlap_comm is False
    optimizer, parameters = said.offload_optimizer, said.offload_param
    assert (optimizer.device, optimizer.pin_memory, optimizer.buffer_count) == ("nvme", False, 7)
    assert (parameters.device, parameters.buffer_count, parameters.buffer_size) == ("nvme", 6, 88)
    assert parameters.max_in_cpu == 99
    assert optimizer.nvme_path == parameters.nvme_path == DISK


def test_parameters_are_offloaded_at_stage_3_alone():
    _, said = read(ODD, "zero2=4")
    assert said.offload_param is None
    assert said.offload_optimizer is not None


def test_offload_of_the_job_is_to_the_host_unless_a_disk_is_named():
    _, said = read(None, "zero3=4,offload=yes")
    assert (said.offload_optimizer.device, said.offload_param.device) == ("cpu", "cpu")
    _, said = read(Zero(offload_optimizer="nvme"), "zero3=4,offload=yes")
    assert (said.offload_optimizer.device, said.offload_param.device) == ("nvme", "cpu")


@pytest.mark.parametrize(
    ("precision", "enabled"),
    [("fp32", None), ("bf16", "bf16"), ("bf16-mixed", "bf16"), ("fp16", "fp16"), ("fp16-mixed", "fp16")],
)
def test_the_batch_and_the_precision_are_the_jobs(precision, enabled):
    document, _ = read(None, precision=precision, batch_size=3, grad_accum=5, clip_grad_norm=0.5)
    assert document["train_micro_batch_size_per_gpu"] == 3
    assert document["gradient_accumulation_steps"] == 5
    assert document["gradient_clipping"] == 0.5
    assert {name for name in ("bf16", "fp16") if name in document} == ({enabled} if enabled else set())
