"""Sizes that a plan says will be alive at once. Torch-free."""

from collections import Counter
from pathlib import Path
from typing import Any

from memplan.errors import UsageError
from memplan.files.documents import read_json
from memplan.files.read import UnreadableError


def planned_sizes(path: Path) -> Counter[int]:
    """Sizes of the buffers that are alive at the peak of a plan, from ``memplan reuse-plan TARGET --json``.

    Args:
        path: The file.

    Returns:
        Size → how many.

    Raises:
        UsageError: It cannot be read, or says no sizes (an estimate has totals only).
    """
    try:
        content = read_json(path)
    except UnreadableError as error:
        raise UsageError(f"the plan cannot be read: {error}", where=str(path)) from error
    buffers = content.get("buffers") if isinstance(content, dict) else None
    if not isinstance(buffers, list):
        raise UsageError(
            "the plan has no buffers", where=f"{path}: buffers", hint="memplan reuse-plan TARGET --json > plan.json"
        )
    return at_peak([_buffer(each, f"{path}: buffers[{index}]") for index, each in enumerate(buffers)])


def at_peak(buffers: list[tuple[int, int, int]]) -> Counter[int]:
    """Sizes of what is alive at the first moment of most bytes.

    Args:
        buffers: (start, end, bytes), half-open.
    """
    changes = sorted([(end, -size) for _, end, size in buffers] + [(start, size) for start, _, size in buffers])
    alive = most = moment = 0
    for when, change in changes:
        alive += change
        if alive > most:
            most, moment = alive, when
    return Counter(size for start, end, size in buffers if start <= moment < end and size)


def _buffer(content: Any, place: str) -> tuple[int, int, int]:
    try:
        found = tuple(content[key] for key in ("start", "end", "size_bytes"))
    except (TypeError, KeyError) as error:
        raise UsageError("a buffer needs start, end and size_bytes", where=place) from error
    if not all(type(value) is int and value >= 0 for value in found):
        raise UsageError(f"start, end and size_bytes are whole numbers, not {found}", where=place)
    return found
