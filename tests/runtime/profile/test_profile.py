"""``memplan.profile`` on CPU tensors, whose sizes are known."""

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import memplan
from memplan.errors import MemplanError, UsageError
from memplan.runtime.meters import cpu, cuda
from memplan.runtime.profile import counters
from memplan.runtime.profile.recording import DOCUMENT, Recording, read, render
from memplan.runtime.profile.records import Region, Sample
from memplan.runtime.profile.session import Sampler
from tests.runtime.profile.strategies import RECORDINGS

MIB = 1 << 20


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    if not cpu.can_count():
        pytest.skip("no C++ compiler")


def take(mib: int) -> torch.Tensor:
    return torch.empty(mib * MIB, dtype=torch.uint8)


def regions(recording: Recording) -> dict[str, Region]:
    return {"/".join(region.path): region for region in recording.regions}


def test_deltas_and_peaks_of_nested_regions() -> None:
    with memplan.profile("run", depth="counters") as run:
        kept = take(2)
        with memplan.profile("outer"):
            early = take(5)
            del early
            with memplan.profile("inner"):
                late = take(3)
                del late
            held = take(1)
    found = regions(run.recording)
    assert list(found) == ["run", "run/outer", "run/outer/inner"]
    # The inner region reset the counters' peak; the outer one's was before it.
    assert [found[name].growth_bytes for name in found] == [7 * MIB, 5 * MIB, 3 * MIB]
    assert [found[name].delta_bytes for name in found] == [3 * MIB, MIB, 0]
    assert [found[name].total_bytes for name in found] == [11 * MIB, 9 * MIB, 3 * MIB]
    assert [found[name].allocations for name in found] == [4, 3, 1]
    assert run.recording.peak_bytes - run.recording.start_bytes == 7 * MIB
    del kept, held


def test_calls_of_one_region_are_added_up() -> None:
    with memplan.profile("run", depth="counters") as run:
        for size in (1, 4, 2):
            with memplan.profile("part"):
                take(size)
    part = regions(run.recording)["run/part"]
    assert (part.calls, part.growth_bytes, part.delta_bytes, part.total_bytes) == (3, 4 * MIB, 0, 7 * MIB)


def test_an_exception_keeps_the_numbers_and_passes() -> None:
    run = memplan.profile("run", depth="counters")

    @memplan.profile("part")
    def part() -> float:
        return take(3).numel() / 0

    with pytest.raises(ZeroDivisionError), run:
        part()
    found = regions(run.recording)
    assert (found["run/part"].errors, found["run/part"].growth_bytes) == (1, 3 * MIB)
    assert found["run"].errors == 1
    assert not cpu.is_counting()


def test_a_decorated_function_is_a_region_wherever_it_is_called() -> None:
    @memplan.profile("work")
    def work(depth: int) -> torch.Tensor:
        """Takes."""
        return work(depth - 1) if depth else take(1)

    assert work(0).numel() == MIB
    assert (work.__name__, work.__doc__) == ("work", "Takes.")
    with memplan.profile("run", depth="counters") as run:
        work(2)
    found = regions(run.recording)
    assert list(found) == ["run", "run/work", "run/work/work", "run/work/work/work"]
    assert {region.calls for region in found.values()} == {1}


def test_a_decorated_function_may_begin_the_recording() -> None:
    profiled = memplan.profile("train", depth="counters")
    train = profiled(lambda size: take(size).numel())
    assert train(1) == MIB
    first = profiled.recording
    assert train(2) == 2 * MIB
    assert [first.peak_bytes - first.start_bytes, profiled.recording.peak_bytes - profiled.recording.start_bytes] == [
        MIB,
        2 * MIB,
    ]


def test_what_gives_control_away_is_no_region() -> None:
    async def wait() -> None:
        await asyncio.sleep(0)

    def some() -> Iterator[int]:
        yield 1

    for function in (wait, some):
        with pytest.raises(UsageError, match="no plain function"):
            memplan.profile("x")(function)


def test_a_recording_inside_of_another_is_a_region_of_it() -> None:
    with memplan.profile("outer", depth="counters") as outer, memplan.profile("inner", depth="full") as inner:
        take(1)
    assert list(regions(outer.recording)) == ["outer", "outer/inner"]
    with pytest.raises(UsageError, match="only a region"):
        _ = inner.recording


def test_one_object_may_be_entered_inside_of_itself() -> None:
    run = memplan.profile("run", depth="counters")
    with run:
        with run, run:
            take(1)
        with memplan.profile("after"):
            take(2)
    found = regions(run.recording)
    assert list(found) == ["run", "run/run", "run/run/run", "run/after"]
    assert found["run"].total_bytes == 3 * MIB


def test_without_a_recording_nothing_is_counted_or_kept() -> None:
    with memplan.profile("region") as region:
        region.step()
        assert not cpu.is_counting()
    with pytest.raises(UsageError, match="no recording"):
        _ = region.recording


def test_a_region_that_a_recording_finds_open_or_leaves_open() -> None:
    before, run, inside = memplan.profile("before"), memplan.profile("run", depth="counters"), memplan.profile("inside")
    before.__enter__()
    run.__enter__()
    before.__exit__(None, None, None)
    inside.__enter__()
    kept = take(1)
    run.__exit__(None, None, None)
    inside.__exit__(None, None, None)
    found = regions(run.recording)
    assert list(found) == ["run", "run/inside"]
    assert found["run/inside"].delta_bytes == MIB
    del kept


def test_each_thread_has_its_own_stack() -> None:
    ready, go = threading.Barrier(2), threading.Event()

    def load() -> None:
        with memplan.profile("load"):
            ready.wait()
            take(4)
            go.set()

    with memplan.profile("run", depth="full") as run:
        thread = threading.Thread(target=load)
        thread.start()
        with memplan.profile("forward"):
            ready.wait()
            go.wait()
            thread.join()
    found = regions(run.recording)
    assert next(iter(found)) == "run"
    assert set(found) == {"run", "load", "run/forward"}
    # The counters are the process's: what one thread takes is in the regions of all.
    assert {region.growth_bytes for region in found.values()} == {4 * MIB}
    events, borders = run.recording.events, run.recording.borders
    [worker] = {thread for thread, size in zip(events.threads, events.sizes, strict=True) if size == 4 * MIB}
    names = {border.thread: run.recording.regions[border.region].path[0] for border in borders if border.region >= 0}
    assert names[worker] == "load"
    assert sorted(names.values()) == ["load", "run"]


def test_sampling_sees_what_came_and_went_between_two_looks() -> None:
    with memplan.profile("run", depth="sampled", sample_seconds=0.02) as run:
        deadline = time.monotonic() + 0.3
        while time.monotonic() < deadline:
            take(8)
    samples, overhead = run.recording.samples, run.recording.overhead
    assert overhead.samples >= 2
    assert max(sample.peak_bytes for sample in samples) == run.recording.peak_bytes
    assert run.recording.peak_bytes - run.recording.start_bytes == 8 * MIB
    assert [sample.nanoseconds for sample in samples] == sorted(sample.nanoseconds for sample in samples)
    assert overhead.interval_seconds >= 0.02
    assert 0 < overhead.sampling_seconds < 0.1


def test_looks_that_take_long_become_rare() -> None:
    def look() -> Sample:
        until = time.thread_time() + 0.002
        while time.thread_time() < until:
            pass
        return Sample(0, 0, 0)

    sampler = Sampler(look, 0.001, share=0.05)
    sampler.start()
    time.sleep(0.5)
    sampler.stop()
    assert 2 <= sampler.looks <= 14
    assert sampler.interval >= 0.04


@given(st.lists(st.integers(0, 100), min_size=1, max_size=200), st.integers(1, 8))
def test_samples_without_room_are_joined_and_no_peak_is_lost(levels: list[int], half: int) -> None:
    sampler = Sampler(lambda: Sample(0, 0, 0), 0.5, most_samples=2 * half)
    for moment, level in enumerate(levels):
        sampler.keep(Sample(moment, level, level))
    assert len(sampler.samples) <= 2 * half
    assert max(sample.peak_bytes for sample in sampler.samples) == max(levels)
    assert sampler.samples[-1].nanoseconds == len(levels) - 1
    assert sampler.samples[-1].allocated_bytes == levels[-1]


def train(run: Any, steps: int = 3) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8))
    optimizer = torch.optim.AdamW(model.parameters())
    batch = torch.randn(32, 64)
    for _ in range(steps):
        run.step()
        with memplan.profile("forward"):
            loss = model(batch).square().mean()
        with memplan.profile("backward"):
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def test_all_events_together_are_what_the_counters_say() -> None:
    with memplan.profile("run", depth="full") as run:
        train(run)
    recording, found = run.recording, regions(run.recording)
    levels = list(recording.events.levels(recording.start_bytes))
    assert max(levels) == recording.peak_bytes
    assert levels[-1] == recording.end_bytes
    assert sum(size for size in recording.events.sizes if size > 0) == found["run"].total_bytes
    assert len(recording.steps) == 3
    assert list(recording.events.nanoseconds) == sorted(recording.events.nanoseconds)


def test_torch_profiler_writes_the_same_events_where_there_is_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    train(memplan.profile("warm"))
    with memplan.profile("run", depth="full") as run:
        train(run)
    counted = run.recording

    def none() -> None:
        raise MemplanError("no compiler")

    monkeypatch.setattr(cpu, "quick_library", none)
    with memplan.profile("run", depth="full") as run:
        train(run)
    profiled = run.recording
    assert (counted.source, profiled.source) == ("cpu", "resident")
    assert list(profiled.events.sizes) == list(counted.events.sizes)
    assert [first_events(each) for each in (profiled, counted)] == [first_events(counted)] * 2
    assert len(profiled.notes) == 2
    assert regions(profiled)["run"].total_bytes is None
    assert profiled.peak_bytes > 10 * MIB


def first_events(recording: Recording) -> list[int]:
    """How many events came before each step."""
    return [sum(at < step for at in recording.events.nanoseconds) for step in recording.steps]


def test_events_without_room_are_told() -> None:
    with memplan.profile("run", depth="full", most_events=3) as run:
        for _ in range(4):
            take(1)
    assert (len(run.recording.events), run.recording.events.dropped) == (3, 5)
    assert any("5 events found no room" in note for note in run.recording.notes)


def test_bad_arguments_are_told_together() -> None:
    with pytest.raises(UsageError, match=r"depth is 'deep'.*sample_seconds.*most_events"):
        memplan.profile("x", depth="deep", sample_seconds=0, most_events=0)
    with pytest.raises(UsageError, match="no device of PyTorch"), memplan.profile("x", depth="counters", device="gpu"):
        pass
    with pytest.raises(UsageError, match="cannot be profiled"), memplan.profile("x", depth="counters", device="meta"):
        pass
    # None of them left anything behind.
    with memplan.profile("x", depth="counters") as run:
        pass
    assert run.recording.regions


class Card:
    """A CUDA device that answers what torch 2.13's functions answer; one 3 MiB block comes and goes between looks."""

    def __init__(self) -> None:
        self.allocated = self.total = self.count = 0
        self.peak = 0
        self.trace: list[dict[str, Any]] = []
        self.recording: Any = None

    def allocate(self, size: int, address: int, *, block: int | None = None) -> None:
        """Counters are of blocks, events of what was asked for (``alloc_found_block``, CUDACachingAllocator.cpp)."""
        self.allocated += block or size
        self.total += block or size
        self.count += 1
        self.peak = max(self.peak, self.allocated)
        self._note("alloc", address, size)

    def free(self, size: int, address: int) -> None:
        self.allocated -= size
        self._note("free_requested", address, size)
        self._note("free_completed", address, size)

    def _note(self, action: str, address: int, size: int) -> None:
        self.trace.append({"action": action, "addr": address, "size": size, "time_us": time.time_ns() // 1000})

    def stats(self, index: int) -> dict[str, int]:
        assert index == 1
        return {
            "allocated_bytes.all.current": self.allocated,
            "allocated_bytes.all.peak": self.peak,
            "allocated_bytes.all.allocated": self.total,
            "allocation.all.allocated": self.count,
        }

    def reset(self, index: int) -> None:
        assert index == 1
        self.peak = self.allocated

    def record(self, enabled: str | None, **options: Any) -> None:
        self.recording = (enabled, options)

    def snapshot(self, device: int) -> dict[str, Any]:
        assert device == 1
        return {"segments": [], "device_traces": [[], self.trace]}


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Card:
    found = Card()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "memory_stats", found.stats)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", found.reset)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda index: (0, index))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(name="Card"))
    monkeypatch.setattr(cuda, "keeper", cuda.PeakKeeper())
    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", found.record)
    monkeypatch.setattr(torch.cuda.memory, "_snapshot", found.snapshot)
    return found


def test_a_card_is_read_by_its_own_counters(card: Card) -> None:
    card.allocate(MIB, 0)
    with memplan.profile("run", depth="full") as run:
        run.step()
        with memplan.profile("inner"):
            card.allocate(3 * MIB, 1000)
            card.free(3 * MIB, 1000)
        card.allocate(512, 2000)
    recording = run.recording
    assert (recording.device, recording.source, recording.start_bytes) == ("cuda:1", "cuda", MIB)
    assert regions(recording)["run/inner"].growth_bytes == 3 * MIB
    assert recording.peak_bytes == 4 * MIB
    assert list(recording.events.sizes)[-3:] == [3 * MIB, -3 * MIB, 512]
    assert card.recording[0] is None


def test_events_of_a_card_are_what_was_asked_for_and_the_recording_says_so(card: Card) -> None:
    with memplan.profile("run", depth="full") as run:
        card.allocate(10 * MIB + 100, 0, block=12 * MIB)
    recording = run.recording
    assert recording.peak_bytes == 12 * MIB
    assert list(recording.events.levels()) == [10 * MIB + 100]
    assert any("asked for" in note for note in recording.notes)
    with memplan.profile("run", depth="counters") as run:
        card.allocate(512, 1)
    assert run.recording.notes == ()


def test_a_recording_takes_no_peak_of_a_card_away(card: Card) -> None:
    card.allocate(MIB, 0)
    with memplan.profile("run", depth="counters"):
        with memplan.profile("large"):
            card.allocate(3 * MIB, 1)
            card.free(3 * MIB, 1)
        with memplan.profile("small"):
            card.allocate(512, 2)
        inside = cuda.cuda_reading(1)
    assert inside.allocated == MIB + 512
    assert inside.peak_allocated == cuda.cuda_reading(1).peak_allocated == 4 * MIB
    card.allocate(6 * MIB, 3)
    assert cuda.cuda_reading(1).peak_allocated == 7 * MIB + 512
    card.free(6 * MIB, 3)
    cuda.keeper.forget(1)
    assert cuda.cuda_reading(1).peak_allocated == MIB + 512


def test_a_card_that_nobody_uses_yet_gets_no_context(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("this would create a context")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setattr(torch.cuda, "current_device", refuse)
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda _: {})
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", refuse)
    assert counters.chosen(None)[0] == "cuda:0"
    with memplan.profile("run", depth="counters") as run:
        pass
    assert run.recording.peak_bytes == 0


# ----- files


@given(RECORDINGS)
def test_what_is_saved_is_what_is_read(recording: Recording) -> None:
    text = render(recording)
    assert read(json.loads(text), "file") == recording
    assert text == json.dumps(json.loads(text), sort_keys=True, separators=(",", ":")) + "\n"


def test_a_saved_recording_replaces_a_file_as_a_whole(tmp_path: Path) -> None:
    with memplan.profile("run", depth="full") as run:
        take(1)
    file = run.recording.save(tmp_path / "run.json")
    assert run.recording.save(str(file)) == file
    assert [each.name for each in tmp_path.iterdir()] == ["run.json"]
    assert read(json.loads(file.read_text()), str(file)) == run.recording


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"command": "estimate", "schema_version": "1.0"},
        {"command": "profile", "schema_version": "2.0"},
        {"command": "profile", "schema_version": "1.0"},
    ],
)
def test_what_is_no_recording_is_refused_with_its_file(content: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        read(content, "run.json")
    assert "run.json" in str(caught.value.where)


def test_columns_that_differ_in_length_are_refused() -> None:
    with memplan.profile("run", depth="full") as run:
        take(1)
    content = DOCUMENT.plain(run.recording)
    content["events"]["bytes"].append(1)
    with pytest.raises(UsageError, match="differ in length"):
        read(content, "run.json")


def test_columns_that_are_no_lists_are_refused() -> None:
    with memplan.profile("run", depth="full") as run:
        take(1)
    content = DOCUMENT.plain(run.recording)
    content["events"]["bytes"] = 1
    with pytest.raises(UsageError, match="bytes"):
        read(content, "run.json")


def test_records_and_files_need_no_torch() -> None:
    modules = "memplan.runtime.profile.recording, memplan.report.profile.overlay"
    code = f"import sys, {modules}; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize(
    ("part", "value"), [("depth", {}), ("regions", [{}]), ("notes", [3]), ("steps", ["x"]), ("versions", [])]
)
def test_a_recording_with_a_part_of_another_kind_is_refused(part: str, value: object) -> None:
    with memplan.profile("run", depth="full") as run:
        take(1)
    content = DOCUMENT.plain(run.recording)
    if part == "regions":
        content["regions"][0] |= {"path": [{}]}
    else:
        content[part] = value
    with pytest.raises(UsageError, match=f"{part}.*: "):
        read(content, "run.json")
