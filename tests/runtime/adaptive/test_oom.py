"""Errors that say that memory ran out, and what is left of the step that died."""

import subprocess
import sys
import weakref

import pytest
import torch

from memplan.runtime.adaptive.oom import forget, is_oom


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB."),
        torch.cuda.OutOfMemoryError("anything"),
        MemoryError(),
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to "
            "allocate 8589934592 bytes. Error code 12 (Cannot allocate memory)"
        ),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
        RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"),
        RuntimeError("GET was unable to find an engine to execute this computation"),
        RuntimeError("MPS backend out of memory (MPS allocated: 17.00 GB)"),
    ],
)
def test_memory_ran_out(error: Exception) -> None:
    assert is_oom(error)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA error: device-side assert triggered"),
        RuntimeError("shape '[3]' is invalid for input of size 4"),
        ValueError("DefaultCPUAllocator: can't allocate memory"),
        KeyError("out of memory"),
        RuntimeError(),
    ],
)
def test_something_else_happened(error: Exception) -> None:
    assert not is_oom(error)


def test_what_it_was_raised_from_counts() -> None:
    def layer() -> None:
        try:
            raise torch.OutOfMemoryError("gone")
        except RuntimeError as inner:
            raise ValueError("layer 3 failed") from inner

    with pytest.raises(ValueError, match="layer 3") as caught:
        layer()
    assert is_oom(caught.value)


def test_frames_let_go_of_what_the_step_held() -> None:
    held: list[weakref.ref[torch.Tensor]] = []

    def inner() -> None:
        activation = torch.ones(7)
        held.append(weakref.ref(activation))
        try:
            raise torch.OutOfMemoryError("first")
        finally:
            deeper(activation + 1)

    def deeper(activation: torch.Tensor) -> None:
        held.append(weakref.ref(activation))
        raise RuntimeError("second, while the first was handled")

    def caught() -> Exception:
        try:
            inner()
        except RuntimeError as error:
            return error
        raise AssertionError

    error = caught()
    assert [each() is None for each in held] == [False, False]
    forget(error)
    assert [each() is None for each in held] == [True, True]
    assert error.__traceback__ is not None  # Where it happened can still be printed.


REAL = """
import resource, sys, torch
from memplan.runtime.adaptive.finder import find_batch
from memplan.runtime.adaptive.micro_batch import AutoMicroBatch

MIB = 1 << 20
torch.set_num_threads(1)  # Each thread takes address space for a stack and a heap.
model = torch.nn.Sequential(torch.nn.Linear(8, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
model(torch.ones(8, 8)).sum().backward()  # Threads and libraries take their address space before it is counted.
taken = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + 160 * MIB, resource.RLIM_INFINITY))

def step_for(size):
    model(torch.ones(size, 8)).sum().backward()

found = find_batch(step_for, start=8192, multiple_of=4096)
# Of 256 floats each: two activations, and in backward two gradients: 2 to 6 of them are alive at once. What else takes
# address space, and pieces that fit nothing, may cost a third.
assert 160 * MIB / (9 * 1024) < found.size < 160 * MIB / (2 * 1024), found
assert found.ended == "optimal", found
assert all("DefaultCPUAllocator" in each.error for each in found.tries if not each.fits), found
model.zero_grad()
step = AutoMicroBatch(model, lambda rows: model(rows.expand(-1, 8)).mean())
done = step(torch.ones(found.size * 3, 1))
assert done.retries and len(done.samples) >= 3 and sum(done.samples) == found.size * 3, done
print("survived", found.size, done.retries, len(done.samples))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS and /proc")
def test_the_real_allocator_really_fails() -> None:
    done = subprocess.run([sys.executable, "-c", REAL], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.startswith("survived"), done.stderr
