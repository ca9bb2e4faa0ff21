"""The CUDA meter with ``torch.cuda`` played by a small machine: counters, history and free memory."""

import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from memplan.job.spec import FileTarget, JobSpec
from memplan.tracing.real_device import RealDevice
from memplan.validate import cuda
from memplan.validate import run as run_module
from memplan.validate.cuda import CudaMeter
from memplan.validate.run import run_here

MIB = 1 << 20
CONTEXT = 500 * MIB
TOTAL = 80 * 1024 * MIB


@dataclass
class Machine:
    """What ``torch.cuda`` shows; allocations are rounded to 512 bytes, segments to 2 MiB."""

    requested: int = 0
    peak: int = 0
    reserved: int = 0
    allocs: int = 0
    frees: int = 0
    others: int = 0
    trace: list[dict[str, Any]] = field(default_factory=list)
    recording: list[Any] = field(default_factory=list)
    refuses: tuple[str, ...] = ()
    content: bytes | None = None

    def alloc(self, size: int) -> int:
        self.requested += size
        self.peak = max(self.peak, self.requested)
        self.reserved = max(self.reserved, -(-self.requested // (2 * MIB)) * 2 * MIB)
        self.allocs += 1
        address = 0x7F00_0000_0000 + 512 * self.allocs
        self._note("alloc", address, size)
        return address

    def free(self, address: int, size: int) -> None:
        self.requested -= size
        self.frees += 1
        self._note("free_requested", address, size)
        self._note("free_completed", address, size)

    def _note(self, action: str, address: int, size: int) -> None:
        if self.recording:
            frames = [{"filename": "/home/me/model.py", "line": 7, "name": "forward"}]
            self.trace.append(
                {"action": action, "addr": address, "size": size, "stream": 0, "time_us": 1, "frames": frames}
            )

    def stats(self, _: int) -> dict[str, int]:
        return {
            "requested_bytes.all.peak": self.peak,
            "allocated_bytes.all.peak": self.peak + 512,
            "reserved_bytes.all.peak": self.reserved,
            "allocation.all.allocated": self.allocs,
            "allocation.all.freed": self.frees,
            "num_alloc_retries": 3,
        }

    def record(self, enabled: str | None, **options: Any) -> None:
        if options.get("stacks") in self.refuses:
            raise RuntimeError("record_context_cpp is not supported here\nsecond line")
        self.recording = [options] if enabled else []

    def dump(self, path: str) -> None:
        content = {"segments": [], "device_traces": [self.trace], "allocator_settings": {}}
        Path(path).write_bytes(pickle.dumps(content) if self.content is None else self.content)

    def info(self, _: int) -> tuple[int, int]:
        return TOTAL - self.others - CONTEXT - self.reserved, TOTAL


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    played = Machine()
    stand_ins: dict[str, Any] = {
        "set_device": lambda _: None,
        "synchronize": lambda *_: None,
        "memory_stats": played.stats,
        "mem_get_info": played.info,
    }
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        monkeypatch.delenv(name, raising=False)
    for name, function in stand_ins.items():
        monkeypatch.setattr(torch.cuda, name, function)
    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", played.record)
    monkeypatch.setattr(torch.cuda.memory, "_dump_snapshot", played.dump)
    return played


def step(machine: Machine, sizes: tuple[int, ...] = (4096, 1000)) -> None:
    blocks = [(machine.alloc(size), size) for size in sizes]
    for address, size in reversed(blocks):
        machine.free(address, size)


def run(machine: Machine, meter: CudaMeter, steps: int = 3) -> None:
    meter.start()
    machine.alloc(3 * MIB)
    for _ in range(steps):
        with meter.step():
            step(machine)


def meter(free: int | None = TOTAL, keep: Path | None = None, recorded_steps: int = 2) -> CudaMeter:
    return CudaMeter(0, free, recorded_steps=recorded_steps, keep=keep)


def test_peaks_are_the_allocators_own_and_device_counts_the_context(machine: Machine) -> None:
    watched = meter()
    run(machine, watched)
    found = watched.finish()
    assert found.peaks.requested == 3 * MIB + 5096
    assert found.peaks.allocated == 3 * MIB + 5096 + 512
    assert found.peaks.reserved == 4 * MIB
    assert found.peaks.device == CONTEXT + 4 * MIB
    assert found.context_bytes == CONTEXT
    assert found.retries == 3
    assert found.notes == ()


def test_the_history_becomes_a_stream_with_the_steps_marked(machine: Machine) -> None:
    watched = meter()
    run(machine, watched)
    stream = watched.finish().stream
    assert stream is not None
    one_step = [4096, 1000, -1000, -4096]
    assert list(stream.sizes) == [3 * MIB, *one_step * 3]
    assert stream.marks == (1, 5, 9)
    assert stream.known[0].source.endswith("model.py:7")


def test_what_other_processes_hold_does_not_count(machine: Machine) -> None:
    machine.others = 10 * 1024 * MIB
    watched = meter(free=TOTAL - machine.others)
    run(machine, watched)
    assert watched.finish().peaks.device == CONTEXT + 4 * MIB


def test_without_a_watcher_the_device_figure_is_missing_and_said_to_be(machine: Machine) -> None:
    watched = meter(free=None)
    run(machine, watched)
    found = watched.finish()
    assert found.peaks.device is None
    assert found.context_bytes is None
    assert "not known" in found.notes[0]


def test_another_allocator_than_the_predicted_one_is_said(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    watched = meter()
    run(machine, watched)
    assert "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True is set" in watched.finish().notes[0]


def test_where_cpp_stacks_are_refused_python_ones_do(machine: Machine) -> None:
    machine.refuses = ("all",)
    watched = meter()
    run(machine, watched)
    found = watched.finish()
    assert found.stream is not None
    assert found.notes == ("no history with all stacks: record_context_cpp is not supported here",)


def test_where_no_history_can_be_had_peaks_are_measured_all_the_same(machine: Machine) -> None:
    machine.refuses = ("all", "python")
    watched = meter()
    run(machine, watched)
    found = watched.finish()
    assert found.stream is None
    assert found.peaks.requested == 3 * MIB + 5096
    assert len(found.notes) == 2


def test_a_history_that_cannot_be_read_is_a_note(machine: Machine) -> None:
    machine.content = b"not a pickle"
    watched = meter()
    run(machine, watched)
    found = watched.finish()
    assert found.stream is None
    assert found.peaks.reserved == 4 * MIB
    assert "could not be read" in found.notes[0]


def test_a_long_history_ends_once_the_traced_steps_are_in_it(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "MOST_EVENTS", 6)
    watched = meter(recorded_steps=2)
    run(machine, watched, steps=5)
    stream = watched.finish().stream
    assert stream is not None
    assert stream.marks == (1, 5)
    assert len(stream) == 9
    assert machine.recording == []


def test_the_snapshot_is_kept_where_asked(machine: Machine, tmp_path: Path) -> None:
    keep = tmp_path / "kept.pickle"
    watched = meter(keep=keep)
    run(machine, watched)
    watched.finish()
    assert pickle.loads(keep.read_bytes())["device_traces"] == [machine.trace]


def test_a_step_that_fails_is_still_measured(machine: Machine) -> None:
    watched = meter()
    watched.start()

    def full() -> None:
        with watched.step():
            machine.alloc(7 * MIB)
            raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        full()
    found = watched.finish()
    assert found.peaks.requested == 7 * MIB
    assert found.peaks.device == CONTEXT + 8 * MIB


def test_a_whole_run_on_the_device(machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Everything between the command and ``torch.cuda``; tensors stay where they are, the machine counts the steps."""

    class Here(RealDevice):
        def __init__(self, device: torch.device) -> None:
            assert device == torch.device("cuda", 0)
            super().__init__(torch.device("cpu"))

        def place_batch(self, make: Any) -> Any:
            step(machine, (100 * MIB,))
            return super().place_batch(make)

    path = tmp_path / "net.py"
    path.write_text(
        "import torch\nmodel = torch.nn.Linear(4, 2)\n"
        "def batch(batch_size): return torch.ones(batch_size, 4)\n"
        "def loss(output, batch): return output.sum()\n"
    )
    monkeypatch.setattr(run_module, "RealDevice", Here)
    spec = JobSpec(target=FileTarget(path=path))
    found = run_here(spec, device="cuda:0", steps=5, traced_steps=2, seconds=60, free_before=TOTAL)
    assert found.steps == 5
    assert found.measured.peaks == (100 * MIB, 100 * MIB + 512, 100 * MIB, CONTEXT + 100 * MIB)
    assert found.measured.stream is not None
    assert found.measured.stream.marks == (0, 2, 4, 6, 8)
    assert list(found.measured.stream.sizes) == [100 * MIB, -100 * MIB] * 5
