"""Allocation streams small enough to commit: sizes as zigzag varints, deflated, in base64."""

import base64
import zlib
from array import array
from typing import Any

from memplan.validate.records import AllocationStream

MOST_EVENTS = 120_000
"""Longer streams are cut after the last step that ends within; set-up and one step always stay."""


def pack(stream: AllocationStream, *, most_events: int = MOST_EVENTS) -> dict[str, Any]:
    """A stream as JSON data: what happened and how much, without causes.

    Args:
        stream: Any.
        most_events: Where it is cut.
    """
    ends = [*stream.marks[1:], len(stream)]
    kept = sum(end <= most_events for end in ends) or 1
    end = ends[min(kept, len(ends)) - 1]
    data = zlib.compress(bytes(_varints(stream.sizes[:end])), level=9)
    return {"events": end, "marks": list(stream.marks[:kept]), "sizes": base64.b64encode(data).decode("ascii")}


def unpack(packed: dict[str, Any]) -> AllocationStream:
    """The stream again; its causes are unknown."""
    from memplan.validate.records import Cause

    sizes = array("q", _numbers(zlib.decompress(base64.b64decode(packed["sizes"]))))
    return AllocationStream(
        sizes=sizes,
        causes=array("l", [0] * len(sizes)),
        known=(Cause("", "", ""),),
        marks=tuple(packed["marks"]),
    )


def _varints(numbers: "array[int]") -> bytearray:
    written = bytearray()
    for number in numbers:
        # Zigzag: the sign is the lowest bit, so that small negative numbers stay short.
        rest = number * 2 if number >= 0 else -number * 2 - 1
        while rest > 0x7F:
            written.append(rest & 0x7F | 0x80)
            rest >>= 7
        written.append(rest)
    return written


def _numbers(data: bytes) -> list[int]:
    numbers, rest, shift = [], 0, 0
    for byte in data:
        rest |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            numbers.append(rest // 2 if rest % 2 == 0 else -(rest + 1) // 2)
            rest = shift = 0
    return numbers
