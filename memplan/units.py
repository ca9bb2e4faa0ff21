"""Sizes and positions, and the one way they are read and written.

Bytes are integers everywhere inside memplan. Text shows binary units (KiB, MiB, GiB) and nothing else; a user may also
type decimal ones (``80GB`` is 80 * 10**9 bytes).
"""

import re
from collections.abc import Sequence
from typing import NewType

Bytes = NewType("Bytes", int)
"""A size in bytes."""
OpIndex = NewType("OpIndex", int)
"""Position of an op in a trace, counted from 0 over all traced steps."""
StorageId = NewType("StorageId", int)
"""Identity of one allocation; views of it share the id."""

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30

_FACTORS = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "k": KIB,
    "kib": KIB,
    "m": MIB,
    "mib": MIB,
    "g": GIB,
    "gib": GIB,
    "t": 1 << 40,
    "tib": 1 << 40,
}
_SECONDS = {"": 1.0, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_SIZE = re.compile(r"\s*(?P<number>\d+(?:\.\d*)?|\.\d+)\s*(?P<unit>[a-zA-Z]*)\s*")


_ADDRESS_SPACE = 2.0**63
"""Bytes that a signed number of 64 bits counts, as PyTorch and operating systems do."""


def parse_size(text: str) -> Bytes:
    """Read a size such as ``40GiB``, ``1.5 gb`` or ``4096`` (bytes), rounded down.

    Raises:
        ValueError: The text is not a size.
    """
    match = _SIZE.fullmatch(text)
    if match is None or match["unit"].lower() not in _FACTORS:
        raise ValueError(f"'{text}' is not a size; write for example 40GiB, 512MiB or 80GB")
    size = float(match["number"]) * _FACTORS[match["unit"].lower()]
    if size >= _ADDRESS_SPACE:
        raise ValueError(f"'{text[:40]}' is more than any address space has")
    return Bytes(int(size))


def parse_seconds(text: str) -> float:
    """Read a duration such as ``30``, ``30s``, ``500ms``, ``1.5m`` or ``2h`` in seconds.

    Raises:
        ValueError: The text is not a duration.
    """
    match = _SIZE.fullmatch(text)
    if match is None or match["unit"].lower() not in _SECONDS:
        raise ValueError(f"'{text}' is not a duration; write for example 30s, 500ms or 2m")
    return float(match["number"]) * _SECONDS[match["unit"].lower()]


def format_apart(sizes: Sequence[int]) -> list[str]:
    """Write sizes in units so small that different ones look different: ``1,381.56 MiB`` beside ``1,383.56 MiB``."""
    told = [format_bytes(size) for size in sizes]
    for unit, factor in (("MiB", MIB), ("KiB", KIB)):
        if len(set(told)) == len(set(sizes)):
            return told
        told = [f"{size / factor:,.2f} {unit}" for size in sizes]
    return told if len(set(told)) == len(set(sizes)) else [f"{size:,} B" for size in sizes]


def format_bytes(size: int) -> str:
    """Write a size in binary units with three or four significant digits: ``79.18 GiB``, ``512 B``."""
    sign, magnitude = ("-" if size < 0 else ""), abs(size)
    for unit, factor in (("TiB", 1 << 40), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        # 0.9995 of a unit would print as 1023.5 of the smaller one: step up as soon as rounding would.
        if magnitude >= factor * 0.99995:
            return f"{sign}{magnitude / factor:.2f} {unit}"
    return f"{sign}{magnitude} B"
