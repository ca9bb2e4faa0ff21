"""Calibration: the profile that is written loads back with the figures that were measured."""

import contextlib
import dataclasses
import datetime as dt
import itertools
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from memplan.errors import UsageError
from memplan.hardware.catalog import load_profile
from memplan.report.validate.calibration import render
from memplan.units import Bytes
from memplan.validate import calibrate as calibrate_module
from memplan.validate.calibrate import write_profile
from memplan.validate.calibrate_here import Bench, calibrate_here
from memplan.validate.calibration_records import HOST_TO_DEVICE, WITHIN_DEVICE, Calibration, Transfer
from tests.validate.profiles import H200

TODAY = dt.date(2026, 11, 20)
MEASURED = Calibration(
    facts=H200,
    usable_bytes=149_900_000_000,
    context_low_bytes=520_000_000,
    context_bytes=610_000_000,
    cublas_workspace_bytes=33_554_432,
    cudnn_workspace_bytes=0,
    transfers=(Transfer(HOST_TO_DEVICE, 1 << 28, 55.25e9), Transfer(WITHIN_DEVICE, 1 << 28, 4.3e12)),
    notes=("something could not be measured",),
)


def test_a_known_card_is_refined_under_its_own_name(tmp_path: Path) -> None:
    path = tmp_path / "h200.toml"
    written = write_profile(MEASURED, path, today=TODAY)
    loaded = load_profile("NVIDIA H200", profile_dirs=(tmp_path,))
    shipped = load_profile("h200")
    assert loaded == written.after
    assert written.before is not None
    assert written.before.name == "h200"
    assert loaded.total_bytes == H200.total_bytes
    assert loaded.usable_bytes == 149_900_000_000
    assert (loaded.context_low_bytes, loaded.context_bytes, loaded.context_high_bytes) == (520_000_000,) + (
        610_000_000,
    ) * 2
    assert loaded.host_link_bandwidth == pytest.approx(55.25e9)
    assert loaded.memory_bandwidth == pytest.approx(4.3e12)
    # What nobody measured stays as shipped.
    assert loaded.peak_flops == shipped.peak_flops
    assert loaded.title == shipped.title
    source = loaded.sources["context_bytes"]
    assert "memplan validate --calibrate" in source
    assert "2026-11-20" in source
    assert "driver 580.159.03" in source
    assert "torch 2.11.0" in source


def test_a_card_like_a_known_one_gets_a_file_of_its_own(tmp_path: Path) -> None:
    odd = dataclasses.replace(H200, name='NVIDIA H200 "lab"')
    written = write_profile(dataclasses.replace(MEASURED, facts=odd), tmp_path / "lab.toml", today=TODAY)
    assert written.after.name == "lab"
    assert written.after.title == 'NVIDIA H200 "lab"'
    assert written.before is not None
    assert written.after.peak_flops == written.before.peak_flops


def test_a_card_like_none_gets_every_key(tmp_path: Path) -> None:
    odd = dataclasses.replace(H200, name="NVIDIA Z1", capability=(12, 7), total_bytes=Bytes(7_000_000_000))
    figures = dataclasses.replace(MEASURED, facts=odd, usable_bytes=6_900_000_000)
    written = write_profile(figures, tmp_path / "z1.toml", today=TODAY)
    assert written.before is None
    assert written.after.total_bytes == 7_000_000_000
    assert written.after.compute_capability == (12, 7)
    assert dict(written.after.peak_flops) == {}


def test_what_was_not_measured_is_left_to_the_base(tmp_path: Path) -> None:
    nothing = dataclasses.replace(
        MEASURED,
        usable_bytes=None,
        context_low_bytes=None,
        context_bytes=None,
        cublas_workspace_bytes=None,
        transfers=(),
    )
    # The base's usable memory must not exceed the total that the driver gives.
    after = write_profile(nothing, tmp_path / "h200.toml", today=TODAY).after
    shipped = load_profile("h200")
    assert after.usable_bytes == shipped.usable_bytes
    assert after.context_bytes == shipped.context_bytes
    assert after.host_link_bandwidth == shipped.host_link_bandwidth
    assert after.sources["context_bytes"] == shipped.sources["context_bytes"]


def test_usable_memory_never_exceeds_a_smaller_total(tmp_path: Path) -> None:
    shipped = load_profile("h200")
    less = dataclasses.replace(H200, total_bytes=Bytes(shipped.usable_bytes - 1_000_000_000))
    after = write_profile(
        dataclasses.replace(MEASURED, facts=less, usable_bytes=None), tmp_path / "h200.toml", today=TODAY
    ).after
    assert after.total_bytes - after.usable_bytes == shipped.total_bytes - shipped.usable_bytes


def test_without_a_file_the_users_folder_takes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate_module, "user_folder", lambda: tmp_path / "memplan" / "gpus")
    written = write_profile(MEASURED, None, today=TODAY)
    assert written.path == tmp_path / "memplan" / "gpus" / "h200.toml"
    assert written.path.is_file()


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write the profile"):
        write_profile(MEASURED, tmp_path / "file" / "h200.toml", today=TODAY)


def test_the_report_shows_both_figures_and_the_file(tmp_path: Path) -> None:
    written = write_profile(MEASURED, tmp_path / "h200.toml", today=TODAY)
    text = "\n".join(line.plain for line in render(written))
    assert str(written.path) in text
    assert "55.25 GB/s" in text
    assert "something could not be measured" in text


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("device", ["auto", "cuda", "cpu"])
def test_without_cuda_nothing_is_calibrated(device: str) -> None:
    with pytest.raises(UsageError):
        calibrate_here(device)


class Clock:
    """A CUDA event that measures 4 ms between any two."""

    def record(self) -> None: ...

    def elapsed_time(self, other: "Clock") -> float:
        assert other is not self
        return 4.0


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """``torch.cuda`` over the CPU's memory: the kernels run for real, the counters are played."""
    requested = itertools.count(0, 10_000_000)
    state = SimpleNamespace(free=[600, 100])
    counters = ("requested_bytes.all.current", "requested_bytes.all.peak")
    monkeypatch.setattr("memplan.validate.calibrate_here.COPIED", 1 << 16)
    for name, function in {
        "synchronize": lambda *_: None,
        "memory_stats": lambda _: {key: next(requested) for key in counters},
        "mem_get_info": lambda _: (state.free.pop(0) if len(state.free) > 1 else state.free[0], 1000),
        "memory_reserved": lambda _: 50,
        "reset_peak_memory_stats": lambda _: None,
        "Event": lambda **_: Clock(),
    }.items():
        monkeypatch.setattr(torch.cuda, name, function)
    with contextlib.suppress(AttributeError):
        yield state


@pytest.mark.usefixtures("played")
def test_every_measurement_runs() -> None:
    told: list[str] = []
    found = Bench(torch.device("cpu"), 1000, told.append).run(H200)
    assert found.context_low_bytes == 1000 - 600 - 50
    assert found.context_bytes == 1000 - 100 - 50
    # The watcher saw 1000 bytes with its own context in place.
    assert found.usable_bytes == 1350
    rates = {transfer.kind: transfer.bytes_per_second for transfer in found.transfers}
    assert rates["host to device, pageable"] == pytest.approx((1 << 16) / 0.004)
    assert rates[WITHIN_DEVICE] == pytest.approx(2 * (1 << 16) / 0.004)
    # A build for the CPU cannot pin memory: noted, and the rest goes on.
    assert set(rates) | {HOST_TO_DEVICE, "device to host, pinned"} == {
        HOST_TO_DEVICE,
        "device to host, pinned",
        "host to device, pageable",
        "device to host, pageable",
        WITHIN_DEVICE,
    }
    assert not [note for note in found.notes if "kernels" in note]
    assert told


@pytest.mark.usefixtures("played")
def test_without_a_watcher_contexts_are_not_known() -> None:
    found = Bench(torch.device("cpu"), None, lambda _: None).run(H200)
    assert found.context_bytes is None
    assert found.usable_bytes is None
    assert any("second process" in note for note in found.notes)
