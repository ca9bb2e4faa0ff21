"""The Python that Inductor writes around its kernels, loaded so that it runs on fake tensors."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from memplan.seam.compiler import WRITTEN


class Idle:
    """A kernel that does nothing, however it is called."""

    def __call__(self, *_: object, **__: object) -> None:
        """Do nothing."""

    def __getattr__(self, name: str) -> "Idle":
        if name.startswith("__"):
            raise AttributeError(name)
        return self


IDLE = Idle()


def idle(*_: object, **__: object) -> Idle:
    """A compiled kernel, whatever its source."""
    return IDLE


def loader(kind: str) -> Callable[..., ModuleType]:
    """What replaces ``PyCodeCache.load_by_key_path`` for code that was written for ``cuda`` or ``cpu``."""

    def load(key: str, path: str, linemap: object = None, attrs: Mapping[str, Any] | None = None, **_: object) -> Any:
        del linemap
        module = ModuleType(f"inductor_{key}")
        module.__file__ = path
        source = Path(path).read_text(encoding="utf-8")
        for said, instead in WRITTEN.items():
            source = source.replace(said, instead)
        # No file of the user's: an op's line is where the region is called.
        exec(compile(source, f"<inductor {key}>", "exec"), module.__dict__)  # noqa: S102 (torch wrote it)
        module.__dict__.update(_names(kind))
        for name, value in (attrs or {}).items():
            setattr(module, name, value)
        return module

    return load


_STATE_BYTES = 16
"""aten/src/ATen/cuda/CUDAGeneratorImpl.cpp ``get_state``: seed and offset."""


def _names(kind: str) -> dict[str, Any]:
    """Names that the code defines for itself, all C++ functions below the dispatcher."""
    return {
        "empty_strided_cpu": _empty_strided("cpu"),
        "empty_strided_cpu_pinned": _empty_strided("cpu"),
        "empty_strided_cuda": _empty_strided(kind),
        "reinterpret_tensor": _reinterpret,
        "assert_size_stride": _nothing,
        "assert_alignment": _nothing,
        "get_raw_stream": _nothing,
        "device_guard": nullcontext,
        "run_intermediate_hooks": _nothing,
        "run_and_save_rng_state": _saving_state,
        "run_with_rng_state": _with_state,
    }


def _empty_strided(device: str) -> Callable[..., torch.Tensor]:
    def empty(size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        return torch.empty_strided(size, stride, dtype=dtype, device=device)

    return empty


def _reinterpret(tensor: torch.Tensor, size: tuple[int, ...], stride: tuple[int, ...], offset: int = 0) -> torch.Tensor:
    """Offsets count from where the tensor begins (torch/csrc/inductor/inductor_ops.cpp ``_reinterpret_tensor``)."""
    return torch.as_strided(tensor, size, stride, tensor.storage_offset() + offset)


def _saving_state(op: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[torch.Tensor, Any]:
    """torch/_prims/rng_prims.py ``register_run_and_save_rng_state_op``: the state lies on the host."""
    return torch.empty(_STATE_BYTES, dtype=torch.uint8, device="cpu"), op(*args, **kwargs)


def _with_state(state: torch.Tensor, op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    del state
    return op(*args, **kwargs)


def _nothing(*_: object) -> int:
    return 0
