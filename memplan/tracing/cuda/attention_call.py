"""One scaled_dot_product_attention as CUDA's choice of kernel sees it."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch

AttentionKernel = Literal["flash", "efficient", "cudnn", "math"]
Capability = tuple[int, int]


class Operand(NamedTuple):
    """One tensor as the checks see it."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    requires_grad: bool = False
    offset: int = 0

    @classmethod
    def of(cls, tensor: torch.Tensor) -> "Operand":
        """The facts of a tensor."""
        return cls(
            tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.requires_grad, int(tensor.storage_offset())
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionCall:
    """The arguments of one scaled_dot_product_attention, and where it runs."""

    query: Operand
    key: Operand
    value: Operand
    mask: Operand | None = None
    dropout: float = 0.0
    is_causal: bool = False
    enable_gqa: bool = False
    grad_enabled: bool = True
    """Is grad mode on?"""
    deterministic: bool = False
    """``torch.use_deterministic_algorithms(True)``, not merely warning."""
    capability: Capability = (8, 0)
    """Compute capability."""
    cudnn_version: int = 91900
    """``torch.backends.cudnn.version()`` there."""

    @property
    def trains(self) -> bool:
        """sdp_utils_cpp.h ``input_requires_grad``."""
        return self.grad_enabled and any(x.requires_grad for x in (self.query, self.key, self.value))

    @property
    def operands(self) -> tuple[Operand, Operand, Operand]:
        """Query, key and value."""
        return self.query, self.key, self.value
