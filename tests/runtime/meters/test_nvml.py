"""GPUs as the driver would show them; the driver is a stub that answers what nvidia-ml-py documents."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from memplan.runtime.meters import nvml
from memplan.runtime.monitor import sources
from memplan.units import GIB


class NVMLError(Exception):
    pass


class LibraryError(NVMLError):
    pass


class DriverError(NVMLError):
    pass


def driver(**changes: Any) -> SimpleNamespace:
    processes = {0: [SimpleNamespace(pid=77)], 1: []}
    answers = {
        "NVMLError": NVMLError,
        "NVMLError_LibraryNotFound": LibraryError,
        "NVMLError_DriverNotLoaded": DriverError,
        "nvmlInit": lambda: None,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(
            used=(handle + 1) * GIB, free=(79 - handle) * GIB, total=80 * GIB
        ),
        "nvmlDeviceGetName": lambda handle: b"NVIDIA H100",
        "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle}",
        "nvmlDeviceGetComputeRunningProcesses": processes.__getitem__,
    }
    return SimpleNamespace(**{**answers, **changes})


def fail(error: type[Exception]) -> Any:
    def failing(*_: Any) -> None:
        raise error("no")

    return failing


def test_every_card_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", driver())
    found, missing = nvml.connect()
    assert found is not None
    assert missing == ""
    first, second = found.readings()
    assert (first.device, first.name, first.uuid, first.used, first.total) == (
        "cuda:0", "NVIDIA H100", "GPU-0", GIB, 80 * GIB,
    )  # fmt: skip
    assert (second.used, second.allocated, second.reserved) == (2 * GIB, None, None)
    assert (found.users(0), found.users(1)) == ({77}, frozenset())


@pytest.mark.parametrize("counted_as_used", [False, True], ids=["apart", "within"])
def test_what_the_driver_keeps_for_itself_is_neither_used_nor_there(counted_as_used: bool) -> None:
    """As CUDA counts. NVIDIA's guides of drivers 525 and 590 differ on whether it is within ``used``."""

    def memory(handle: int, version: int | None = None) -> SimpleNamespace:
        if version is None:
            return SimpleNamespace(used=3 * GIB, free=77 * GIB, total=80 * GIB)
        assert version == 0x02000028
        used = 3 * GIB if counted_as_used else 2 * GIB
        return SimpleNamespace(used=used, free=77 * GIB, total=80 * GIB, reserved=GIB)

    first, _ = nvml.Nvml(driver(nvmlMemory_v2=0x02000028, nvmlDeviceGetMemoryInfo=memory)).readings()
    assert (first.used, first.total, first.free) == (2 * GIB, 79 * GIB, 77 * GIB)


def test_a_driver_without_the_second_version_is_asked_in_the_first() -> None:
    def memory(handle: int, version: int | None = None) -> SimpleNamespace:
        if version is not None:
            raise NVMLError("function not found")
        return SimpleNamespace(used=3 * GIB, free=77 * GIB, total=80 * GIB)

    first, _ = nvml.Nvml(driver(nvmlMemory_v2=0x02000028, nvmlDeviceGetMemoryInfo=memory)).readings()
    assert (first.used, first.total) == (3 * GIB, 80 * GIB)


def test_a_card_that_cannot_be_read_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", driver(nvmlDeviceGetMemoryInfo=fail(NVMLError)))
    found, _ = nvml.connect()
    assert found is not None
    assert found.readings() == ()


@pytest.mark.parametrize(
    ("module", "says"),
    [
        (None, "nvidia-ml-py is missing"),
        (driver(nvmlInit=fail(NVMLError)), "not read from outside: no"),
        (driver(nvmlInit=fail(LibraryError)), ""),
        (driver(nvmlInit=fail(DriverError)), ""),
    ],
)
def test_why_there_is_no_driver(monkeypatch: pytest.MonkeyPatch, module: Any, says: str) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", module)
    found, missing = nvml.connect()
    assert found is None
    assert says in missing
    assert bool(says) == bool(missing)


@pytest.mark.parametrize(
    ("tree", "known", "read"),
    [({77}, {77}, ["cuda:0"]), ({5}, {77, 5}, []), ({5}, {5}, ["cuda:0"])],
    ids=["its own", "somebody else's", "ids of another container"],
)
def test_only_the_runs_own_cards_count(
    monkeypatch: pytest.MonkeyPatch, tree: set[int], known: set[int], read: list[str]
) -> None:
    monkeypatch.setattr(sources.psutil, "pid_exists", known.__contains__)
    cards = sources._cards(nvml.Nvml(driver()), frozenset(tree))
    assert [card.device for card in cards] == read
