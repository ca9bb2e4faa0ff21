import os
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from memplan.errors import UsageError
from memplan.validate import watcher
from memplan.validate.device import facts_here
from memplan.validate.watcher import free_before


def test_the_cpu_describes_itself() -> None:
    facts = facts_here("cpu")
    assert (facts.kind, facts.index) == ("cpu", 0)
    assert 0 < facts.free_bytes <= facts.total_bytes <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert facts.versions["torch"] == torch.__version__
    assert facts.name


@pytest.mark.parametrize("asked", ["gpu", "cuda:x", "cpu:1", "", "auto:0", "cuda:-1"])
def test_other_words_are_refused(asked: str) -> None:
    with pytest.raises(UsageError, match="--device takes"):
        facts_here(asked)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_cuda_auto_is_the_cpu_and_cuda_is_an_error() -> None:
    assert facts_here("auto").kind == "cpu"
    with pytest.raises(UsageError, match="no CUDA device"):
        facts_here("cuda")


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    properties = SimpleNamespace(
        major=9, minor=0, total_memory=150_000_000_000, multi_processor_count=132, max_threads_per_multi_processor=2048
    )
    functions: dict[str, Any] = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "set_device": lambda _: None,
        "synchronize": lambda *_: None,
        "mem_get_info": lambda _: (149_000_000_000, 150_100_000_000),
        "get_device_properties": lambda _: properties,
        "get_device_name": lambda _: "NVIDIA H200",
    }
    for name, function in functions.items():
        monkeypatch.setattr(torch.cuda, name, function)
    return functions


@pytest.mark.usefixtures("played")
def test_a_cuda_device_describes_itself() -> None:
    facts = facts_here("auto")
    assert (facts.kind, facts.name, facts.capability, facts.sm_count) == ("cuda", "NVIDIA H200", (9, 0), 132)
    assert facts.total_bytes == 150_100_000_000
    assert facts.free_bytes == 149_000_000_000
    assert facts.threads_per_sm == 2048


@pytest.mark.usefixtures("played")
def test_a_device_that_is_not_there_is_refused() -> None:
    with pytest.raises(UsageError, match="there is no cuda:3"):
        facts_here("cuda:3")


def test_a_device_that_fails_is_explained(played: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    del played

    def fail(_: int) -> None:
        raise RuntimeError("CUDA error: all CUDA-capable devices are busy\nmore")

    monkeypatch.setattr(torch.cuda, "set_device", fail)
    with pytest.raises(UsageError, match="cannot be used: CUDA error: all CUDA-capable devices are busy\n"):
        facts_here("cuda:0")


def _watching(monkeypatch: pytest.MonkeyPatch, program: str) -> int | None:
    monkeypatch.setattr(watcher, "_WATCHER", program)
    with free_before(0) as free:
        return free


def test_the_watcher_says_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _watching(monkeypatch, "import sys; print(12345, flush=True); sys.stdin.read()") == 12345


def test_a_watcher_lives_as_long_as_its_context(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "_WATCHER", "import os, sys; print(os.getpid(), flush=True); sys.stdin.read()")
    with free_before(0) as process:
        assert process is not None
        os.kill(process, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


@pytest.mark.parametrize("program", ["raise SystemExit(1)", "print('no figure', flush=True)"])
def test_a_watcher_that_fails_says_nothing(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    assert _watching(monkeypatch, program) is None


def test_a_watcher_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "WATCHER_SECONDS", 0.3)
    assert _watching(monkeypatch, "import time; time.sleep(60)") is None


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_the_real_watcher_fails_where_there_is_no_gpu() -> None:
    with free_before(0) as free:
        assert free is None
