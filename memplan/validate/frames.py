"""Names a call stack that asked for memory: the operator, the autograd node and the user's line."""

import re
from collections.abc import Iterator, Sequence

from memplan.job.usercode import display
from memplan.snapshot.records import Frame
from memplan.validate.records import Cause

_OPERATOR = re.compile(r"\bat::_ops::(\w+)::")
_NODE = re.compile(r"\b(\w+Backward\d*|AccumulateGrad|CopySlices)::(?:apply|operator\(\))")
_KERNEL = re.compile(r"\bat::(?:native|cuda|cudnn)::[\w:]+")
_LENGTH = re.compile(r"\d+")
_LONGEST = 60
_MAKERS = frozenset({
    "empty_memory_format", "empty_strided", "empty_like", "empty", "new_empty", "new_empty_strided", "resize_",
    "_to_copy", "to_dtype", "to_device", "to_dtype_layout",
})  # fmt: skip
"""Operators that allocate on behalf of the one that called them."""
_WORKSPACE = ("Workspace", "getCurrentCUDABlasHandle")
"""Parts of the names of functions that take library workspaces (ATen/cuda/CublasHandlePool.cpp)."""
_LIBRARY = re.compile(
    r"[\\/](?:site|dist)-packages[\\/](?:torch|triton)[\\/]|[\\/]memplan[\\/](?:trace|validate|job)[\\/]"
)
"""Files that are neither the user's nor a library built on torch."""


def cause_of(frames: Sequence[Frame]) -> Cause:
    """What a stack says.

    Args:
        frames: Innermost first; C++ frames, Python frames or both.

    Returns:
        The innermost operator that computes something (else the innermost kernel, else the Python function), the
        autograd node it runs for, and the innermost Python line outside torch and memplan.
    """
    operators = [name for name in _found(_OPERATOR, frames) if not name.startswith("empty")]
    computing = next((name for name in operators if name not in _MAKERS), next(iter(operators), ""))
    what = f"aten.{computing}" if computing else _inner_function(frames)
    if any(part in frame.function for frame in frames[:12] for part in _WORKSPACE):
        what += " (workspace)"
    return Cause(what, next(_found(_NODE, frames), ""), _source(frames))


def _found(pattern: re.Pattern[str], frames: Sequence[Frame]) -> Iterator[str]:
    for frame in frames:
        found = pattern.search(_readable(frame.function))
        if found:
            yield found[1] if found.re.groups else found[0]


def _readable(symbol: str) -> str:
    """A mangled C++ name (``_ZN2at4_ops2mm4callE…``) as its parts joined by colons; any other as it is."""
    if not symbol.startswith("_ZN"):
        return symbol
    parts, rest = [], symbol.removeprefix("_ZN").lstrip("KVr")
    while match := _LENGTH.match(rest):
        end = match.end() + int(match[0])
        parts.append(rest[match.end() : end])
        rest = rest[end:]
    return "::".join(parts) + "("


def _inner_function(frames: Sequence[Frame]) -> str:
    kernel = next(_found(_KERNEL, frames), "")
    python = next((f"{frame.function}()" for frame in frames if frame.file.endswith(".py")), "")
    return (kernel or python)[:_LONGEST]


def _source(frames: Sequence[Frame]) -> str:
    for frame in frames:
        if frame.file.endswith(".py") and not _LIBRARY.search(frame.file):
            return f"{display(frame.file)}:{frame.line}"
    return ""
