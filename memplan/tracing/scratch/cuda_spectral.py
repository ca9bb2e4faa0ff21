"""Scratch of Fourier transforms: dense copies of the input, and cuFFT's work space as a range.

Follows aten/src/ATen/native/cuda/SpectralOps.cpp (``_exec_fft``, ``_fft_c2r_cufft``). How much a plan takes only cuFFT
knows. Its documentation (*cuFFT API Reference*, Allocation and Sizes) says that powers of two need very little, and
that large primes may need eight times as much as a power of two of their size.
"""

from collections.abc import Mapping
from typing import Any

from memplan.tracing.scratch.cuda_shapes import allocations, nbytes
from memplan.tracing.scratch.rules import Call, Rule, Scratch, Script

_MOST_COPIES = 8


def _rule(*, always_copied: bool) -> Rule:
    def rule(call: Call) -> Script | None:
        source, dims = call.args[0], call.args[1]
        wide = max(nbytes(source), nbytes(call.out))
        if not wide or not dims:
            return None
        # What is transformed must lie innermost and in order.
        rank = source.dim()
        innermost = sorted(dim % rank for dim in dims) == list(range(rank - len(dims), rank))
        copied = nbytes(source) if always_copied or not innermost or not source.is_contiguous() else 0
        sides = call.out.shape if call.out.numel() > source.numel() else source.shape
        likely = 0 if all(_is_power_of_two(sides[dim]) for dim in dims) else wide
        return Script(after=(*allocations((("input", copied),)), Scratch("alloc", "plan", likely, _MOST_COPIES * wide)))

    return rule


def _is_power_of_two(size: Any) -> bool:
    return int(size) & (int(size) - 1) == 0


SPECTRAL_RULES: Mapping[str, Rule] = {
    "aten._fft_r2c.default": _rule(always_copied=False),
    "aten._fft_c2c.default": _rule(always_copied=False),
    # Complex-to-real transforms may overwrite their input.
    "aten._fft_c2r.default": _rule(always_copied=True),
}
"""Op name → rule."""
