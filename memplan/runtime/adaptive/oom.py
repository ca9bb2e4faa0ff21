"""Running out of memory: known when it happens, and nothing of the attempt left behind."""

import gc
import traceback

import torch

_MESSAGES = (
    # c10/core/impl/alloc_cpu.cpp
    "DefaultCPUAllocator: can't allocate memory",
    "DefaultCPUAllocator: not enough memory",
    # c10/cuda/CUDAException.cpp with cudaErrorMemoryAllocation: from outside of the caching allocator.
    "CUDA error: out of memory",
    # aten/src/ATen/cuda/Exceptions.cpp; handles and workspaces of the libraries.
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUSPARSE_STATUS_ALLOC_FAILED",
    "CUSOLVER_STATUS_ALLOC_FAILED",
    # aten/src/ATen/native/cudnn/Conv_v8.cpp and Conv_v7.cpp: every algorithm failed, most often for want of workspace.
    "unable to find an engine to execute this computation",
    "Unable to find a valid cuDNN algorithm to run convolution",
    # aten/src/ATen/mps/MPSAllocator.mm
    "MPS backend out of memory",
)
"""What a RuntimeError says where memory was missing and PyTorch has no type of its own for it. The two of cuDNN have
other causes too: those stay at every size, so that whoever tries smaller ones sees them again at the last."""


def is_oom(error: BaseException) -> bool:
    """Does an error say that memory ran out, of a device or of the host?

    What it was raised from (``raise … from``) counts too.
    """
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    if isinstance(error, RuntimeError) and any(message in str(error) for message in _MESSAGES):
        return True
    return error.__cause__ is not None and is_oom(error.__cause__)


def forget(error: BaseException) -> None:
    """Drop what the frames of an error hold: activations of the step that died. File and line stay readable.

    Frames that still run keep what they have: call it where they are left.
    """
    linked: BaseException | None = error
    seen: set[int] = set()
    while linked is not None and id(linked) not in seen:
        seen.add(id(linked))
        traceback.clear_frames(linked.__traceback__)
        linked = linked.__cause__ or linked.__context__


def release_memory() -> None:
    """Collect reference cycles, and give cached blocks of CUDA back. Slow: between attempts, never in each step."""
    gc.collect()
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.empty_cache()


def first_line(error: BaseException) -> str:
    """What an error says, in one line."""
    return (str(error) or type(error).__name__).splitlines()[0]
