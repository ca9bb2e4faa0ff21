"""Items as bytes and back, bit for bit: tensors of any plain type and shape, compressed where that saves bytes."""

from collections.abc import Mapping
from dataclasses import dataclass
from threading import local
from typing import Any, TypeAlias

import numpy as np
import torch

from memplan.errors import UsageError

Item: TypeAlias = torch.Tensor | Mapping[str, torch.Tensor]
"""One tensor, or several with names, as the parts of a transition."""
Found: TypeAlias = torch.Tensor | dict[str, torch.Tensor]
"""What is read: new tensors on the CPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorPart:
    """One tensor of an item."""

    name: str | None
    """Its name; None where it is the item."""
    dtype: torch.dtype
    """Its type."""
    shape: tuple[int, ...]
    """Its shape."""
    nbytes: int
    """Its bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemLayout:
    """What an item's bytes mean."""

    parts: tuple[TensorPart, ...]
    """In the order of the bytes."""
    is_compressed: bool
    """Are they compressed, all together?"""

    @property
    def nbytes(self) -> int:
        """Bytes of the tensors."""
        return sum(part.nbytes for part in self.parts)


class Codec:
    """Encodes and decodes. Thread-safe: each thread has its own compressor.

    ``level`` is that of zstandard; None: nothing is compressed.

    Raises:
        UsageError: zstandard is not installed, or has no such level.
    """

    def __init__(self, level: int | None) -> None:
        self._level, self._local = level, local()
        if level is not None:
            self._compressor()

    def encode(self, item: Item) -> tuple[ItemLayout, bytes]:
        """An item's bytes, apart from the tensors' own.

        Raises:
            UsageError: It is no tensor with plain memory, nor names and such tensors.
        """
        named = item.items() if isinstance(item, Mapping) else [(None, item)]
        parts, pieces = [], []
        for name, tensor in named:
            flat = _flat(tensor)
            parts.append(TensorPart(name=name, dtype=tensor.dtype, shape=tuple(tensor.shape), nbytes=flat.numel()))
            pieces.append(flat.numpy().tobytes())
        payload = b"".join(pieces)
        if self._level is None:
            return ItemLayout(parts=tuple(parts), is_compressed=False), payload
        small: bytes = self._compressor().compress(payload)
        is_smaller = len(small) < len(payload)
        return ItemLayout(parts=tuple(parts), is_compressed=is_smaller), small if is_smaller else payload

    def decode(self, layout: ItemLayout, payload: bytes | memoryview) -> Found:
        """The tensors, in memory of their own."""
        content = payload
        if layout.is_compressed:
            content = self._decompressor().decompress(payload, max_output_size=layout.nbytes)
        found, start = {}, 0
        for part in layout.parts:
            flat = torch.empty(part.nbytes, dtype=torch.uint8)
            flat.numpy()[:] = np.frombuffer(content, np.uint8)[start : start + part.nbytes] if part.nbytes else 0
            found[part.name] = flat.view(part.dtype).view(part.shape)
            start += part.nbytes
        return found[None] if None in found else {name or "": tensor for name, tensor in found.items()}

    def _compressor(self) -> Any:
        if not hasattr(self._local, "compressor"):
            self._local.compressor = _compressor(self._level)
        return self._local.compressor

    def _decompressor(self) -> Any:
        if not hasattr(self._local, "decompressor"):
            self._local.decompressor = _zstandard().ZstdDecompressor()
        return self._local.decompressor


def _flat(tensor: object) -> torch.Tensor:
    """A tensor's elements as bytes on the CPU."""
    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided or tensor.is_quantized:
        raise UsageError(f"a store keeps tensors with plain memory, not {_kind(tensor)}")
    if hasattr(type(tensor), "__tensor_flatten__") or tensor.device.type == "meta":
        raise UsageError(f"{_kind(tensor)} has no memory of its own to keep")
    # A copy to the CPU of a lazy conjugate is one, too.
    plain = tensor.detach().resolve_conj().resolve_neg().to("cpu").contiguous()
    return plain.reshape(-1).view(torch.uint8)


def _kind(thing: object) -> str:
    if isinstance(thing, torch.Tensor):
        return f"a {type(thing).__name__} of {thing.layout}, {thing.dtype}, on {thing.device}"
    return f"a {type(thing).__name__}"


def _compressor(level: int | None) -> Any:
    try:
        return _zstandard().ZstdCompressor(level=level)
    except ValueError as error:
        raise UsageError(f"compression={level}: zstandard has no such level: {error}") from error


def _zstandard() -> Any:
    try:
        import zstandard
    except ImportError as error:
        raise UsageError("compression needs zstandard", hint="pip install 'memplan[runtime]'") from error
    return zstandard
