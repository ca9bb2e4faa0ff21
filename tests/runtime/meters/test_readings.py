"""Readings of devices and of the host, with what PyTorch and the kernel would answer."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from memplan.runtime.meters import cpu, cuda, host
from memplan.runtime.meters.read import read
from memplan.units import GIB, MIB

STATS = {
    "allocated_bytes.all.current": 3 * GIB,
    "allocated_bytes.all.peak": 5 * GIB,
    "requested_bytes.all.current": 3 * GIB - 100,
    "reserved_bytes.all.current": 8 * GIB,
    "reserved_bytes.all.peak": 9 * GIB,
    "inactive_split_bytes.all.current": 2 * GIB,
    "num_alloc_retries": 1,
    "num_ooms": 2,
}
"""Keys of ``torch.cuda.memory_stats`` as its documentation lists them."""


@pytest.fixture
def _two_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch._C, "_cuda_hasPrimaryContext", lambda index: True, raising=False)
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda index: STATS if index else {})
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda index: (70 * GIB, 80 * GIB))
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda index: SimpleNamespace(name="Card", uuid=f"GPU-{index}")
    )


@pytest.mark.usefixtures("_two_cards")
def test_every_card_is_read() -> None:
    first, second = read().devices
    assert (first.device, first.allocated, first.reserved, first.fragmentation) == ("cuda:0", 0, 0, 0.0)
    assert (second.device, second.name, second.uuid) == ("cuda:1", "Card", "GPU-1")
    assert (second.allocated, second.peak_allocated, second.requested) == (3 * GIB, 5 * GIB, 3 * GIB - 100)
    assert (second.reserved, second.peak_reserved, second.cached) == (8 * GIB, 9 * GIB, 5 * GIB)
    assert (second.inactive, second.fragmentation) == (2 * GIB, 0.25)
    assert (second.used, second.total, second.free) == (10 * GIB, 80 * GIB, 70 * GIB)
    assert (second.retries, second.ooms) == (1, 2)


def test_a_reading_creates_no_context(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: pytest.fail("asked the driver"))
    assert cuda.device_count() == 0
    [device] = read().devices
    assert device.device == "cpu"


def test_without_counting_nobody_knows_what_tensors_take() -> None:
    [device] = read().devices
    assert (device.allocated, device.peak_allocated, device.reserved, device.cached) == (None, None, None, None)
    assert device.fragmentation is None
    assert 0 < device.used < device.total


def test_counted_tensors_stand_in_the_reading() -> None:
    if not cpu.can_count():
        pytest.skip("no C++ compiler")
    with cpu.counting():
        [before] = read().devices
        kept = torch.empty(MIB)
        [after] = read().devices
        assert before.allocated is not None
        assert after.allocated is not None
        assert after.allocated - before.allocated == kept.nbytes


def test_resident_memory_is_the_kernels() -> None:
    reading = host.host_reading(os.getpid())
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS")]
    assert reading.resident == pytest.approx(int(line.split()[1]) * 1024, rel=0.05)


def container(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"memory.{name}").write_text(text)
    return folder


def test_a_containers_limit_counts_where_it_is_lower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        host, "_CGROUP",
        container(tmp_path, max=f"{512 * MIB}\n", current=f"{200 * MIB}\n", stat=f"anon 1\ninactive_file {80 * MIB}\n"),
    )  # fmt: skip
    reading = host.host_reading()
    assert reading.total == host.container_limit() == 512 * MIB
    assert reading.available == (512 - (200 - 80)) * MIB


def test_a_control_group_of_version_1_counts_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "memory").mkdir()
    files = {"limit_in_bytes": 512 * MIB, "usage_in_bytes": 200 * MIB, "stat": f"inactive_file {80 * MIB}"}
    container(tmp_path / "memory", **{name: f"{text}\n" for name, text in files.items()})
    monkeypatch.setattr(host, "_CGROUP", tmp_path)
    reading = host.host_reading()
    assert (reading.total, reading.available) == (512 * MIB, (512 - (200 - 80)) * MIB)


@pytest.mark.parametrize("limit", ["max\n", "", str(1 << 62)])
def test_no_limit_is_the_machines(limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unlimited = host.host_reading().total
    monkeypatch.setattr(host, "_CGROUP", container(tmp_path, max=limit))
    assert host.host_reading().total >= unlimited


def test_a_limit_without_figures_of_use_leaves_all_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_CGROUP", container(tmp_path, max=str(64 * MIB)))
    assert host.host_reading().available <= 64 * MIB


def test_no_cgroup_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_CGROUP", tmp_path / "none")
    assert host.container_limit() is None
