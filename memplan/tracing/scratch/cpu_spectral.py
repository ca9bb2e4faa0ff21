"""Scratch of Fourier transforms on CPU: the copy that brings transformed dimensions to the end.

Follows aten/src/ATen/native/mkl/SpectralOps.cpp: ``_exec_fft`` permutes its source and collapses the other dimensions
into one, which copies what does not lie so; several dimensions back to real numbers are transforms one after the other
(``_fft_c2r_mkl``). MKL's own buffers do not pass through PyTorch's allocator. Held against torch.profiler's memory
events on torch 2.13.0 with MKL 2024.2, November 2026.
"""

from collections.abc import Sequence
from itertools import pairwise

from memplan.tracing.scratch.cpu_shapes import nbytes
from memplan.tracing.scratch.rules import Call, Rule, Scratch, Script, within


def _copy_bytes(shape: Sequence[int], stride: Sequence[int], dims: Sequence[int], size: int) -> int:
    """Bytes of the copy that collapsing the dimensions beside ``dims`` takes; none where they lie closely.

    MKL reads no expanded dimensions: they are written out.
    """
    if any(step == 0 and length > 1 for step, length in zip(stride, shape, strict=True)):
        return size
    transformed = {dim % len(shape) for dim in dims}
    others = sorted((stride[dim], shape[dim]) for dim in range(len(shape)) if dim not in transformed and shape[dim] > 1)
    closely = all(below[0] * below[1] == above[0] for below, above in pairwise(others))
    return 0 if closely else size


def transform(call: Call) -> Script | None:
    """``_fft_c2c`` and ``_fft_r2c``."""
    source = call.args[0]
    return within({"copy": _copy_bytes(source.shape, source.stride(), call.args[1], nbytes(source))})


def to_real(call: Call) -> Script | None:
    """``_fft_c2r``: all dimensions but the last as complex numbers first."""
    source, dims = call.args[0], call.args[1]
    size = nbytes(source)
    if len(dims) == 1:
        return within({"copy": _copy_bytes(source.shape, source.stride(), dims, size)})
    copy = _copy_bytes(source.shape, source.stride(), dims[:-1], size)
    first = [Scratch("alloc", "complex", size)]
    first += [Scratch("alloc", "copy", copy), Scratch("free", "copy")] if copy else []
    # What the first transforms leave lies in their source's order, with their dimensions innermost.
    inner = {dim % source.ndim for dim in dims[:-1]}
    order = sorted(range(source.ndim), key=lambda dim: (dim in inner, -source.stride(dim)))
    stride, step = [0] * source.ndim, 1
    for dim in reversed(order):
        stride[dim] = step
        step *= source.shape[dim]
    again = _copy_bytes(source.shape, stride, dims[-1:], size)
    after = (Scratch("alloc", "second copy", again),) if again else ()
    return Script(before=tuple(first), after=after)


RULES: dict[str, Rule] = {
    "aten._fft_c2c.default": transform,
    "aten._fft_r2c.default": transform,
    "aten._fft_c2r.default": to_real,
}
"""Op name → rule."""
