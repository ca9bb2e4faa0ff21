"""Bars that add up: the parts' bars together are exactly as long as the whole's."""

from collections.abc import Sequence

EIGHTHS = " ▏▎▍▌▋▊▉"
FULL = "█"


def apportion(sizes: Sequence[int], cells: int) -> list[int]:
    """Share cells out in proportion to non-negative sizes, by largest remainder; none where every size is 0."""
    total = sum(sizes)
    if total <= 0:
        return [0] * len(sizes)
    shares = [size * cells // total for size in sizes]
    by_remainder = sorted(range(len(sizes)), key=lambda index: -(sizes[index] * cells % total))
    for index in by_remainder[: cells - sum(shares)]:
        shares[index] += 1
    return shares


def bar(eighths: int) -> str:
    """A bar of so many eighths of a cell."""
    return FULL * (eighths // 8) + (EIGHTHS[eighths % 8] if eighths % 8 else "")
