"""``-f snapshot``, ``-f perfetto`` and ``-f speedscope``: what may be asked for, and what is written."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from memplan.cli.app import main
from memplan.measure import compose
from memplan.measure.records import RecordedEstimate
from memplan.replay.policy import AllocatorPolicy
from memplan.replay.records import BlockLayout, MemoryLayout, SegmentLayout
from memplan.report.history.viewer import render
from memplan.snapshot.records import DeviceSnapshot, Frame, Snapshot, SnapshotEvent
from tests.cli.conftest import Library
from tests.report.example_estimates import FITS, UNKNOWN

Run = Callable[..., int]
MIB = 1 << 20
STACK = (Frame("op", 0, "aten.mm.default"), Frame("phase", 0, "forward"), Frame("category", 0, "activation"))
HISTORY = Snapshot(
    devices=(
        DeviceSnapshot(
            device=0,
            layout=MemoryLayout(
                segments=(
                    SegmentLayout(
                        address=20 * MIB,
                        size=20 * MIB,
                        stream=0,
                        small=False,
                        blocks=(
                            BlockLayout(address=20 * MIB, size=4 * MIB, requested=4 * MIB, state="allocated"),
                            BlockLayout(address=24 * MIB, size=16 * MIB, requested=0, state="free"),
                        ),
                    ),
                ),
                requested=4 * MIB,
                allocated=4 * MIB,
                reserved=20 * MIB,
            ),
            events=(
                SnapshotEvent("segment_alloc", 20 * MIB, 20 * MIB, 0, STACK, 0),
                SnapshotEvent("alloc", 20 * MIB, 4 * MIB, 0, STACK, 1),
            ),
            block_frames={20 * MIB: STACK},
        ),
    ),
    settings={},
)
TARGET = """
import torch

def model():
    return torch.nn.Linear(64, 64)

def batch(batch_size):
    return torch.randn(batch_size, 64)

def loss(output, batch):
    return output.square().mean()
"""


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    def record(spec, profiles, *, detail, **_) -> tuple[RecordedEstimate, ...]:
        assert detail == "histories"
        return tuple(RecordedEstimate(estimate=FITS, history=HISTORY) for _ in profiles)

    monkeypatch.setattr(compose, "estimate", record)


def test_without_an_export_nothing_is_recorded(run: Run, library: Library, tmp_path: Path) -> None:
    assert run("-f", f"json={tmp_path / 'report.json'}") == 0
    assert library.details == ["figures"]


def test_an_export_stands_beside_the_report(run: Run, recorded: None, tmp_path: Path, capsys) -> None:
    assert run("-f", "snapshot=memory.pickle", "-f", "perfetto=trace.json", "-f", "speedscope=s.json") == 0
    captured = capsys.readouterr()
    assert "FITS" in captured.out
    assert captured.err == ""
    content = pickle.loads((tmp_path / "memory.pickle").read_bytes())
    assert [event["action"] for event in content["device_traces"][0]] == ["segment_alloc", "alloc"]
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert json.loads((tmp_path / "s.json").read_text())["profiles"][0]["endValue"] == 4 * MIB


@pytest.mark.parametrize("name", ["perfetto", "speedscope"])
def test_text_exports_may_go_to_standard_output_alone(run: Run, recorded: None, name: str, capsys) -> None:
    assert run("-f", name) == 0
    assert json.loads(capsys.readouterr().out)
    assert run("-f", name, "-f", "json=report.json") == 0
    assert run("-f", name, "-f", "json") == 2


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["-f", "snapshot"], "name a file"),
        (["-f", "snapshot=nowhere/memory.pickle"], "folder that exists"),
        (["-f", "flamegraph"], "must be one of text, json, html, snapshot, perfetto, speedscope"),
        (["-f", "snapshot=memory.pickle", "--gpu", "a100-80g"], "memory-{gpu}"),
        (["-f", "perfetto", "--gpu", "a100-80g"], "needs a file for each --gpu"),
    ],
)
def test_what_cannot_be_written_is_refused_before_any_work(
    run: Run, library, words: list[str], complaint: str, capsys
) -> None:
    assert run(*words) == 2
    assert complaint in capsys.readouterr().err
    assert library.specs == []


def test_each_gpu_has_a_file_of_its_own(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys) -> None:
    answers = (
        RecordedEstimate(estimate=FITS, history=HISTORY),
        RecordedEstimate(estimate=UNKNOWN, history=None),
    )
    monkeypatch.setattr(compose, "estimate", lambda *_, **__: answers)
    assert run("--gpu", "a100-80g", "-f", "snapshot=memory-{gpu}.pickle") == 3
    assert [path.name for path in tmp_path.glob("memory-*")] == [f"memory-{FITS.gpu.name}.pickle"]
    assert "no snapshot" in capsys.readouterr().err


def test_the_same_gpu_twice_is_one_gpu(run: Run, recorded: None, tmp_path: Path) -> None:
    assert run("--gpu", "h100-80g", "-f", "snapshot=memory.pickle") == 0
    assert (tmp_path / "memory.pickle").exists()


def test_a_target_is_recorded_in_its_child_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    (tmp_path / "net.py").write_text(TARGET)
    monkeypatch.chdir(tmp_path)
    words = ["-f", "snapshot=memory.pickle", "-f", "json"]
    assert main(["estimate", "net.py", "--gpu", "a100-80g", "--batch-size", "32", *words]) == 0
    report = json.loads(capsys.readouterr().out)
    content = pickle.loads((tmp_path / "memory.pickle").read_bytes())
    (trace,) = content["device_traces"]
    reserved = sum(event["size"] for event in trace if event["action"] == "segment_alloc")
    assert reserved == report["peak"]["reserved_bytes"] == sum(s["total_size"] for s in content["segments"])
    assert content["allocator_settings"]["expandable_segments"] is AllocatorPolicy().expandable_segments
    assert any(frame["filename"] == "op" for event in trace for frame in event["frames"])


def test_a_snapshot_file_is_exported_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "memory.pickle").write_bytes(render(HISTORY))
    words = ["-f", "speedscope=s.json", "-f", "snapshot=again.pickle", "-f", "perfetto=trace.json"]
    assert main(["snapshot", "memory.pickle", *words]) == 0
    first, again = ((tmp_path / name).read_bytes() for name in ("memory.pickle", "again.pickle"))
    assert pickle.loads(again) == pickle.loads(first)
    assert json.loads((tmp_path / "s.json").read_text())["profiles"][0]["endValue"] == 4 * MIB
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
