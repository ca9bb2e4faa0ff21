"""Streams out of traces and out of real histories; the recorded snapshots are read a second time by another reader."""

import os
from pathlib import Path

import pytest
import torch
from torch import nn

from memplan.job.source import ModelSource
from memplan.job.spec import JobSpec, PresetTarget
from memplan.snapshot.read import load_snapshot
from memplan.tracing.records import DeviceTraits, Trace
from memplan.tracing.run import trace_job
from memplan.validate.compare import compare
from memplan.validate.records import PARTS, AllocationStream, Cause
from memplan.validate.streams import StreamWriter, predicted_stream, recorded_stream
from tests.support.benchmarks import benchmark

pytestmark = pytest.mark.usefixtures("workspaces_stay")
ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("MEMPLAN_DATA", ROOT.parent / "shared" / "data")) / "snapshots"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="needs the recorded snapshots (MEMPLAN_DATA)")
programs = benchmark("cuda_streams.programs")
snapshot = benchmark("cuda_streams.snapshot")


@pytest.fixture(scope="module")
def trace() -> Trace:
    source = ModelSource(
        model=lambda: nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4)),
        batch=lambda size, _: torch.randn(size, 32),
        loss=lambda output, _: output.square().mean(),
    )
    spec = JobSpec(target=PresetTarget(name="none"), batch_size=8)
    return trace_job(lambda: source, spec, DeviceTraits(kind="cuda", capability=(9, 0), sm_count=132))


def live(stream: AllocationStream) -> list[int]:
    held, heights = 0, []
    for size in stream.sizes:
        held += size
        heights.append(held)
    return heights


def test_the_stream_holds_every_device_event_of_the_trace(trace: Trace) -> None:
    stream = predicted_stream(trace, steps=len(trace.steps))
    sizes = [
        trace.storages[e.storage].nbytes * (1 if e.action == "alloc" else -1)
        for e in trace.events
        if trace.storages[e.storage].place == "device" and trace.storages[e.storage].nbytes
    ]
    end = len(stream)
    assert list(stream.sizes) == sizes[:end]
    assert len(stream.marks) == len(trace.steps)
    assert all(height >= 0 for height in live(stream))


def test_more_steps_repeat_the_last(trace: Trace) -> None:
    short, long = predicted_stream(trace, steps=2), predicted_stream(trace, steps=5)
    assert long.sizes[: len(short)] == short.sizes
    last = list(short.sizes[short.marks[-1] :])
    assert list(long.sizes[len(short) :]) == last * 3
    # A step that leaves what it found can be repeated for ever.
    assert live(long)[-1] == live(short)[-1]
    assert long.peak() == short.peak()


def test_fewer_steps_end_early(trace: Trace) -> None:
    assert len(predicted_stream(trace, steps=1).marks) == 1


def test_set_up_is_the_models_placement(trace: Trace) -> None:
    stream = predicted_stream(trace, steps=1)
    first = stream.marks[0]
    assert list(stream.sizes[:first]) == [4 * size for size in (64 * 32, 64, 4 * 64, 4)]
    assert [stream.known[index] for index in stream.causes[:first]] == [
        Cause("parameter", name, "") for name in ("0.weight", "0.bias", "2.weight", "2.bias")
    ]
    assert stream.phases is not None
    assert {PARTS[code] for code in stream.phases} == set(PARTS)


def test_a_batch_is_moved_tensor_by_tensor() -> None:
    """``tensor.to("cuda")`` takes along what a view shows and no more; the same tensor twice is moved once."""

    def batch(size: int, _: object) -> tuple[torch.Tensor, ...]:
        data = torch.zeros(size, 33)
        return data[:, :32], data[:, 1:], data, data

    source = ModelSource(model=lambda: nn.Linear(32, 4), batch=batch, loss=lambda output, _: output.square().mean())
    spec = JobSpec(target=PresetTarget(name="none"), batch_size=8)
    for kind, expected in (("cuda", [8 * 32 * 4, 8 * 32 * 4, 8 * 33 * 4]), ("cpu", [8 * 33 * 4])):
        found = trace_job(lambda: source, spec, DeviceTraits(kind=kind))
        inputs = [storage.nbytes for storage in found.storages if storage.role == "input"]
        assert inputs == expected * len(found.steps)


def test_workspaces_and_modules_are_named(trace: Trace) -> None:
    known = predicted_stream(trace, steps=2).known
    assert any(cause.what.endswith("(workspace)") for cause in known)
    assert any(cause.what == "aten.addmm" and cause.where == "2" for cause in known)


def test_a_writer_keeps_each_cause_once() -> None:
    written, one, other = StreamWriter(), Cause("a", "", ""), Cause("b", "", "")
    for size, cause in ((1, one), (2, other), (-1, one)):
        written.add(size, cause)
    stream = written.stream([0])
    assert [stream.known[index] for index in stream.causes] == [one, other, one]
    assert stream.known == (one, other)


@needs_data
@pytest.mark.parametrize("name", ["kkaitlyn_memory_ctx128_fullstep.pickle", "cranberrii__memory_snapshot.pickle"])
def test_a_recorded_history_keeps_order_and_sizes(name: str) -> None:
    expected = snapshot.stream_of(DATA / name).steps
    found = recorded_stream(load_snapshot(DATA / name).devices[0].events, marks=[0])
    assert [("alloc", size) if size > 0 else ("free", -size) for size in found.sizes] == list(expected)


@needs_data
def test_recorded_stacks_are_named() -> None:
    events = load_snapshot(DATA / "kkaitlyn_memory_ctx128_fullstep.pickle").devices[0].events
    known = recorded_stream(events, marks=[0]).known
    # Counted by hand in the snapshot's own frames: the softmax of the author's transformer.py, line 138.
    assert any(cause.what == "aten.exp" and cause.source.endswith("transformer.py:138") for cause in known)
    assert any(cause == Cause("aten.bmm", "BmmBackward0", "") for cause in known)
    assert any(cause.what.endswith("(workspace)") for cause in known)


@pytest.mark.slow
@needs_data
def test_a_known_program_aligns_with_its_recorded_run() -> None:
    """What ``benchmarks/cuda_streams`` predicts of a published program is what the GPU wrote down, event for event."""
    name = "wedsonlin_medium_128_inference_memory_snapshot.pickle"
    ours, writer = programs.predict(programs.PROGRAMS[name]).steps, StreamWriter()
    for action, size in ours:
        writer.add(size if action == "alloc" else -size, Cause("", "", ""))
    real = recorded_stream(load_snapshot(DATA / name).devices[0].events, marks=[0])
    assert compare(writer.stream([0]), real).is_exact
