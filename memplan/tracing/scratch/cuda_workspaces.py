"""Work spaces of cuBLAS and cuBLASLt: kept by thread, shared, or taken for one call, as the release of torch has it.

Follows aten/src/ATen/cuda/CublasHandlePool.cpp, CUDABlas.cpp (``gemm_and_bias``) and native/cuda/Blas.cpp
(``isInputCompliesAddmmCudaLt``). cuBLAS's comes right after the output of the first product on a handle, before which
nothing else has used it, and stays: the forward thread has one, the autograd thread another.

| torch | cuBLAS | cuBLASLt (``addmm`` with a bias) |
|---|---|---|
| to 2.8 | kept | CUBLASLT_WORKSPACE_SIZE, for the call (kept since pull request 156495) |
| 2.9 to 2.11 | kept | the same, kept: 1,048,576 bytes on an H100 with torch 2.11.0+cu130, 2026-11-23 |
| 2.12 to 2.14 | kept | cuBLAS's own (pull requests 168175, 175879), unless TORCH_CUBLASLT_UNIFIED_WORKSPACE is off |
| from 2.15 | for the call (pull request 194311) | for the call; both as in 2.14 with TORCH_CUBLAS_WORKSPACE_CACHE=1 |
"""

import os
import re

import torch

from memplan.tracing.cuda.release import since
from memplan.tracing.scratch.cuda_shapes import argument, frees
from memplan.tracing.scratch.rules import Call, Scratch

KIB = 1024
_PAIR = re.compile(r":(\d+):(\d+)")
"""CublasHandlePool.cpp ``parseChosenWorkspaceSize``: KiB and how many of them, several times if need be."""
_LT_KIB = 1024
"""CublasHandlePool.cpp ``parseCUDABlasLtWorkspaceSize``."""
_LT_TYPES = frozenset({torch.float64, torch.float32, torch.float16, torch.bfloat16})


def product_workspaces(call: Call, *, through_lt: bool) -> tuple[Scratch, ...]:
    """What the libraries take for one product.

    Args:
        call: The product.
        through_lt: Does cuBLASLt run it?
    """
    lt = through_lt and not _shared()
    if _kept():
        cublas = (Scratch("keep", f"cublas:{_thread(call)}", _cublas_bytes(call)),)
        return (*cublas, *_lt_workspace(call)) if lt else cublas
    return _for_the_call("cublaslt", _lt_bytes()) if lt else _for_the_call("cublas", _cublas_bytes(call))


def adds_bias_through_lt(call: Call) -> bool:
    """``isInputCompliesAddmmCudaLt``: a bias of one row, no scaling of it, and a second operand of more than one."""
    bias, first, second = call.args[:3]
    if os.environ.get("DISABLE_ADDMM_CUDA_LT") == "1" or argument(call, 3, "beta", default=1) != 1:
        return False
    wide = len([size for size in bias.shape if size != 1]) <= 1
    fits = wide and bias.is_contiguous() and bias.dim() > 0 and bias.shape[-1] == second.shape[1]
    return fits and min(second.shape) > 1 and first.dtype in _LT_TYPES and bool(call.out.is_contiguous())


def _lt_workspace(call: Call) -> tuple[Scratch, ...]:
    if since("2.9"):
        return (Scratch("keep", f"cublaslt:{_thread(call)}", _lt_bytes()),)
    return _for_the_call("cublaslt", _lt_bytes())


def _for_the_call(key: str, nbytes: int) -> tuple[Scratch, ...]:
    return (Scratch("alloc", key, nbytes), *frees(key))


def _kept() -> bool:
    return not since("2.15") or _is_on("TORCH_CUBLAS_WORKSPACE_CACHE", default=False)


def _shared() -> bool:
    """Does cuBLASLt use cuBLAS's work space? It can be asked to since 2.8 (pull request 151163)."""
    return _kept() and since("2.8") and _is_on("TORCH_CUBLASLT_UNIFIED_WORKSPACE", default=since("2.12"))


def _cublas_bytes(call: Call) -> int:
    """The device's default, unless CUBLAS_WORKSPACE_CONFIG says something else, as it must where work is to repeat."""
    given = _PAIR.findall(os.environ.get("CUBLAS_WORKSPACE_CONFIG", ""))
    return sum(int(size) * KIB * int(count) for size, count in given) if given else call.device.cublas_workspace_bytes


def _lt_bytes() -> int:
    given = os.environ.get("CUBLASLT_WORKSPACE_SIZE", "")
    return (int(given) if given.isdecimal() else _LT_KIB) * KIB


def _thread(call: Call) -> str:
    return "backward" if call.in_backward else "forward"


def _is_on(name: str, *, default: bool) -> bool:
    """c10/util/env.h ``check_env``."""
    return {"1": True, "0": False}.get(os.environ.get(name, ""), default)
