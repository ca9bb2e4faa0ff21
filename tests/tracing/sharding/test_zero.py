"""DeepSpeed's ZeRO in a trace: against the textbook, and against DeepSpeed running for real on two CPU processes."""

import importlib
import importlib.metadata
import importlib.util
import json
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from memplan.errors import UsageError
from memplan.job.adapters import Lora
from memplan.job.load import load_source
from memplan.job.parallel import parse_parallel
from memplan.job.spec import FileTarget, JobSpec
from memplan.job.zero import Zero
from memplan.replay.host import host_peak
from memplan.tracing.records import DeviceTraits, Trace
from memplan.tracing.run import trace_job
from memplan.tracing.sharding.zero import library, world
from memplan.tracing.sharding.zero.settings import settings
from tests.tracing.sharding import zero_model

needs_deepspeed = pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="needs deepspeed")
HERE = Path(__file__).parent
ROOT = HERE.parents[2]
BUCKET = 400_000
SMALL = Zero(reduce_bucket_size=BUCKET, param_persistence_threshold=0, prefetch_bucket_size=300_000)
PARAMETERS = sum(parameter.numel() for parameter in zero_model.model().parameters())
RANKS = 4


def job(parallel: str, zero: Zero = SMALL, **options) -> JobSpec:
    target = FileTarget(path=HERE / "zero_model.py")
    return JobSpec(target=target, parallel=parse_parallel(parallel), zero=zero, **{"precision": "bf16", **options})


def traced(spec: JobSpec) -> Trace:
    """The job's trace; each is made once, as DeepSpeed takes its time."""
    if repr(spec) not in _TRACES:
        _TRACES[repr(spec)] = trace_job(lambda: load_source(spec), spec, DeviceTraits(kind="cuda"))
    return _TRACES[repr(spec)]


_TRACES: dict[str, Trace] = {}


def held(trace, place: str = "device") -> int:
    """Bytes that the trace leaves behind there; workspaces of cuBLAS, which no CPU run has, left out."""
    freed = {event.storage for event in trace.events if event.action == "free"}
    left = (each for each in trace.storages if each.id not in freed and each.place == place)
    return sum(each.nbytes for each in left if each.role != "workspace")


def held_as(trace, role: str, place: str = "device") -> int:
    freed = {event.storage for event in trace.events if event.action == "free"}
    left = (each for each in trace.storages if each.id not in freed and each.place == place)
    return sum(each.nbytes for each in left if each.role == role)


def peak_of_set_up(trace: Trace) -> int:
    live = most = 0
    for event in trace.events[: trace.steps[0].first_event]:
        storage = trace.storages[event.storage]
        if storage.place == "device":
            live += storage.nbytes if event.action == "alloc" else -storage.nbytes
        most = max(most, live)
    return most


def peak_of_step(trace) -> int:
    live = most = 0
    for index, event in enumerate(trace.events):
        storage = trace.storages[event.storage]
        if storage.place == "device" and storage.role != "workspace":
            live += storage.nbytes if event.action == "alloc" else -storage.nbytes
        if index >= trace.steps[-1].first_event:
            most = max(most, live)
    return most


# Each matrix and vector is padded to a multiple of the ranks, the flat buffers of stages 1 and 2 to twice that; and the
# optimizer's step counts, a few bytes for each of its tensors, are states too.
PADDING = 16 * RANKS * len(list(zero_model.model().parameters()))


@pytest.mark.slow
@needs_deepspeed
@pytest.mark.parametrize(("parallel", "parameters", "gradients"), [("zero1", 1, 0), ("zero2", 1, 0), ("zero3", 0, 1)])
def test_states_are_those_of_the_textbook(parallel, parameters, gradients):
    """Between steps: 2P + 12P/N at stages 1 and 2, whose gradients are gone; 3 keeps 2P/N of them, and a bucket."""
    trace = traced(job(f"{parallel}={RANKS}"))
    share = PARAMETERS / RANKS
    assert trace.repeats
    assert held_as(trace, "optimizer_state") == pytest.approx(12 * share, abs=PADDING)
    assert held_as(trace, "parameter") == pytest.approx(2 * PARAMETERS if parameters else 2 * share, abs=PADDING)
    assert held_as(trace, "gradient") == pytest.approx(gradients * (2 * share + 2 * BUCKET), abs=PADDING)


@needs_deepspeed
def test_a_bucket_costs_its_whole_size_however_small_the_model_is():
    """One in half precision at stage 2, two with ``overlap_comm``; and its copy while it is reduced holds gradients
    alone."""
    sizes = {
        (bucket, overlap): peak_of_step(traced(job("zero2=4", Zero(reduce_bucket_size=bucket, overlap_comm=overlap))))
        for bucket in (20_000_000, 30_000_000)
        for overlap in (False, True)
    }
    assert sizes[30_000_000, False] - sizes[20_000_000, False] == 2 * 10_000_000
    assert sizes[30_000_000, True] - sizes[20_000_000, True] == 2 * 2 * 10_000_000
    assert sizes[20_000_000, True] - sizes[20_000_000, False] == 2 * 20_000_000


@needs_deepspeed
def test_offload_moves_states_to_the_host():
    """Stage 2: master weights, both moments, fp32 gradients and a half copy of the shard are the host's."""
    share = PARAMETERS / RANKS
    trace = traced(job(f"zero2={RANKS}", Zero(reduce_bucket_size=BUCKET, offload_optimizer="cpu", pin_memory=False)))
    largest = max(parameter.numel() for parameter in zero_model.model().parameters())
    assert held_as(trace, "optimizer_state") == 0
    assert held(trace, "host") == pytest.approx((12 + 4 + 2) * share + 2 * largest, abs=PADDING)
    assert host_peak(trace) >= held(trace, "host")
    pinned = traced(job(f"zero2={RANKS}", Zero(reduce_bucket_size=BUCKET, offload_optimizer="cpu")))
    assert held(pinned, "host") + held(pinned, "pinned") == pytest.approx(held(trace, "host"), abs=PADDING)
    # Torch's allocator of pinned memory gives powers of two.
    assert host_peak(pinned) > host_peak(trace)


@needs_deepspeed
def test_stage_3_on_the_host_leaves_the_device_what_runs():
    on_device = traced(job("zero3=4"))
    offloaded = traced(job("zero3=4", Zero(**_fields(SMALL), offload_optimizer="cpu", offload_param="cpu")))
    assert held_as(offloaded, "parameter") == held_as(offloaded, "optimizer_state") == 0
    assert held_as(offloaded, "parameter", "pinned") == pytest.approx(held_as(on_device, "parameter"), abs=PADDING)
    assert peak_of_step(offloaded) < peak_of_step(on_device)
    assert offloaded.nvme_bytes == 0


@needs_deepspeed
def test_the_disk_holds_the_states():
    """DeepSpeed writes what is larger than 1 MiB; the layers' shards are not, the fp32 shard of all is."""
    sizes = _fields(SMALL) | {"param_buffer_size": 1_000_000}
    trace = traced(job("zero3=4", Zero(**sizes, offload_optimizer="nvme", offload_param="nvme")))
    assert trace.nvme_bytes == pytest.approx(12 * PARAMETERS / RANKS, rel=0.02)
    assert held_as(trace, "optimizer_state", "host") < PARAMETERS
    # Five buffers for parameters, in page-locked memory that DeepSpeed takes for itself.
    assert held(trace, "host") > 5 * 2 * 1_000_000


def _fields(zero: Zero) -> dict[str, int]:
    names = ("reduce_bucket_size", "param_persistence_threshold", "prefetch_bucket_size")
    return {name: getattr(zero, name) for name in names}


@pytest.mark.slow
@needs_deepspeed
def test_ranks_of_a_node_keep_a_second_copy():
    """ZeRO++ hpZ: between forward and step each rank holds its share of the node's copy too."""
    fields = _fields(SMALL) | {"max_live_parameters": 500_000, "max_reuse_distance": 100_000}
    plain, second = (peak_of_step(traced(job("zero3=4", Zero(**fields, hpz_partition_size=size)))) for size in (1, 2))
    assert second - plain == pytest.approx(2 * PARAMETERS / 2, rel=0.05)


@needs_deepspeed
@pytest.mark.parametrize(
    ("parallel", "options", "what"),
    [
        ("zero3=4", {"mode": "inference"}, "shards training"),
        ("zero3=4,tp=2", {}, "not built"),
    ],
)
def test_what_deepspeed_does_not_step_is_refused(parallel, options, what):
    with pytest.raises(UsageError, match=what):
        traced(job(parallel, **options))


def test_without_deepspeed_the_user_is_told_to_install_it(monkeypatch):
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    monkeypatch.delitem(sys.modules, "deepspeed", raising=False)
    with pytest.raises(UsageError, match="not installed"):
        library.deepspeed()


@needs_deepspeed
def test_small_parameters_persist():
    """Those below the threshold are held whole beside their partition."""
    partitioned, persistent = (
        held(traced(job("zero3=4", Zero(reduce_bucket_size=BUCKET, param_persistence_threshold=threshold))))
        for threshold in (0, 2_000)
    )
    small = sum(each.numel() for each in zero_model.model().parameters() if each.numel() < 2_000)
    assert persistent - partitioned == pytest.approx(2 * small, abs=PADDING)


@needs_deepspeed
def test_weights_are_flattened_on_the_host_where_the_gpu_has_no_room_for_two_copies():
    spec = job("zero2=16")
    weights = 2 * PARAMETERS
    tight = trace_job(lambda: load_source(spec), spec, DeviceTraits(kind="cuda", total_bytes=weights * 3 // 2))
    assert held(tight) == held(traced(spec))
    assert peak_of_set_up(traced(spec)) >= 2 * weights
    # Else only the shard's fp32 weights come on top, and as many zeros for its gradients.
    assert peak_of_set_up(tight) == pytest.approx(weights + 8 * PARAMETERS / 16, abs=16 * PADDING)


@needs_deepspeed
def test_activations_that_deepspeed_offloads_are_on_the_host():
    """``checkpointing.configure(checkpoint_in_cpu=True)``: inputs of layers go to pinned buffers and come back."""
    tokens = 500
    target = FileTarget(path=HERE / "zero_checkpointed.py")
    trace = traced(replace(job("zero2=4"), target=target, batch_size=tokens // 2))
    state = tokens * zero_model.WIDTH * 2
    assert state in {each.nbytes for each in trace.storages if each.place == "pinned"}
    assert host_peak(trace) >= state


@needs_deepspeed
@pytest.mark.parametrize("ranks", [4, 7])
def test_fewer_views_allocate_the_same(monkeypatch, ranks):
    """Gathering and scattering without a view per rank: the sizes that come and go are DeepSpeed's own."""
    fields = _fields(SMALL) | {"max_live_parameters": 500_000, "max_reuse_distance": 100_000}
    spec = job(f"zero3={ranks}", Zero(**fields))
    quick = traced(spec)
    monkeypatch.setattr(world, "few_views", tuple)
    own = trace_job(lambda: load_source(spec), spec, DeviceTraits(kind="cuda"))
    # Paddings are one tensor instead of several, each of a few elements.
    assert large(quick) == large(own)
    assert held(quick) == held(own)
    assert peak_of_step(quick) == pytest.approx(peak_of_step(own), abs=PADDING)


def large(trace: Trace) -> list[tuple[str, int]]:
    """Allocations and frees above the size of padding."""
    sizes = ((event.action, trace.storages[event.storage].nbytes) for event in trace.events)
    return [(action, nbytes) for action, nbytes in sizes if nbytes > PADDING]


@needs_deepspeed
def test_frozen_parameters_are_partitioned_too():
    """LoRA at stage 3: what is frozen is no rank's whole, though no optimizer knows it."""
    trace = traced(job("zero3=4", lora=Lora(rank=8, alpha=16)))
    assert held_as(trace, "parameter") == pytest.approx(2 * trace.model.parameters / 4, rel=0.05)
    assert held_as(trace, "optimizer_state") == pytest.approx(12 * trace.model.trainable_parameters / 4, abs=PADDING)


@needs_deepspeed
def test_mixed_precision_is_deepspeeds_own():
    assert held(traced(job("zero2=4", precision="bf16-mixed"))) == held(traced(job("zero2=4")))


@needs_deepspeed
def test_a_trace_leaves_deepspeed_as_it_was():
    torch = importlib.import_module("torch")
    linear, groups = torch.nn.functional.linear, importlib.import_module("deepspeed.utils.groups")
    former = dict(vars(groups))
    traced(job("zero3=4"))
    assert torch.nn.functional.linear is linear
    assert dict(vars(groups)) == former
    assert importlib.import_module("deepspeed.comm.comm").cdb is None


@needs_deepspeed
@pytest.mark.slow
@pytest.mark.parametrize("parallel", ["zero1=2", "zero2=2", "zero3=2"])
@pytest.mark.parametrize(
    "zero",
    [
        SMALL,
        Zero(reduce_bucket_size=2_000_000, overlap_comm=False, param_persistence_threshold=2_000),
        Zero(
            reduce_bucket_size=2_000_000,
            prefetch_bucket_size=300_000,
            param_persistence_threshold=0,
            max_live_parameters=500_000,
            max_reuse_distance=100_000,
        ),
    ],
)
def test_ranks_hold_what_real_ones_do(parallel, zero):
    check_against_real(job(parallel, zero))


@pytest.mark.slow
@needs_deepspeed
def test_a_rank_holds_what_a_real_one_does():
    check_against_real(job("zero3=2", Zero(**_fields(SMALL) | {"param_persistence_threshold": 2_000})))


def check_against_real(spec: JobSpec) -> None:
    """What is held between steps is the same to the byte.

    A real peak may be higher: gloo gathers and scatters by way of a buffer as large as the whole tensor, and holds it
    until its threads are done.
    """
    trace, real = traced(spec), real_ranks(settings(spec, HERE), ranks=spec.parallel.ranks)
    assert [rank["held"] for rank in real] == [held(trace)] * spec.parallel.ranks
    # The rank whose threads were late least.
    peak = min(rank["peak"] for rank in real)
    assert peak * 0.85 < peak_of_step(trace) < peak * 1.03


def real_ranks(config: dict[str, object], *, ranks: int) -> list[dict[str, int]]:
    """Run DeepSpeed on as many processes; what each says."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "tests.tracing.sharding.zero_run", json.dumps(config)]
    running = [
        subprocess.Popen(
            [*command, str(rank), str(ranks), str(port)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    said = [process.communicate(timeout=300) for process in running]
    assert [process.returncode for process in running] == [0] * ranks, said[0][1][-2000:]
    return [json.loads(output.splitlines()[-1]) for output, _ in said]
