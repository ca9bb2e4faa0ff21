"""What memplan knows of a GPU: one frozen record per profile file."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

Kind = Literal["cuda", "rocm", "cpu"]
LEAST_CAPABILITY: Final = {"bfloat16": (8, 0), "float8": (8, 9)}
"""Dtype → the compute capability from which NVIDIA's cores have it. Sources: torch/cuda/__init__.py is_bf16_supported;
aten/src/ATen/native/cuda/ScaledBlas.cpp _scaled_mm_allowed_device, which refuses others (torch 2.13)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProfile:
    """One device as the planner sees it. Every figure's source and date stand in its TOML file."""

    name: str
    """File stem and what users type, e.g. ``h100-80g``."""
    title: str
    """The vendor's name, e.g. ``NVIDIA H100 SXM5 80GB``."""
    kind: Kind
    """``cpu`` has no CUDA semantics and no caching allocator."""
    total_bytes: int
    """What ``torch.cuda.get_device_properties().total_memory`` reports; 0 for ``cpu`` means no fixed limit."""
    usable_bytes: int
    """What a fresh process can allocate in all, its CUDA context included."""
    context_bytes: int
    """CUDA context plus lazily loaded modules: device memory outside the caching allocator. Where handles are known, of
    a step that uses cuBLAS and cuDNN in forward and backward."""
    context_low_bytes: int = 0
    """The least that was measured on cards of this class; 0: not known."""
    context_high_bytes: int = 0
    """The most that was measured on cards of this class; 0: not known."""
    cublas_handle_bytes: int = 0
    """Of the context, what each thread that uses cuBLAS adds; 0: not known."""
    cudnn_handle_bytes: int = 0
    """The same of cuDNN."""
    cublas_workspace_bytes: int
    """One cuBLAS workspace (per thread and stream), taken from the caching allocator."""
    compute_capability: tuple[int, int] | None = None
    """``(major, minor)``; None where there is no such thing."""
    sm_count: int
    """Streaming multiprocessors (compute units on AMD)."""
    threads_per_sm: int
    """Resident threads per multiprocessor."""
    memory_bandwidth: float
    """Device memory, bytes per second."""
    peak_flops: Mapping[str, float]
    """Dense peak FLOP/s by dtype name (``fp32``, ``tf32``, ``bf16``, ``fp16``, ``fp8``, ``int8``…), no sparsity."""
    host_link_bandwidth: float
    """Host to device, one direction, bytes per second."""
    peer_link_bandwidth: float
    """NVLink or Infinity Fabric to peers, sum of both directions, bytes per second; 0 without one."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Field name → source and date."""
    aliases: tuple[str, ...] = ()
    """Other names for it, in the form of ``name``."""

    @property
    def lacks(self) -> tuple[str, ...]:
        """Dtypes that its cores cannot multiply, which other cards can (``LEAST_CAPABILITY``)."""
        capability = self.compute_capability
        return tuple(name for name, least in LEAST_CAPABILITY.items() if capability is not None and capability < least)


def all_have(profiles: Iterable[GpuProfile], dtype: str) -> bool:
    """Can the cores of all of these cards multiply in a dtype that some lack?"""
    return not any(dtype in profile.lacks for profile in profiles)
