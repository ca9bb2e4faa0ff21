"""Lists of CPUs and nodes as Linux writes them: ``0-15,128-143`` (Documentation/admin-guide/cputopology.rst)."""

from collections.abc import Iterable
from itertools import groupby

MAX_CPU = 8191
"""The most that a kernel is built for (x86: NR_CPUS_RANGE_END)."""


def parse_list(text: str) -> tuple[int, ...]:
    """Numbers of a list, ascending; an empty text is an empty list.

    Raises:
        ValueError: It is not a list, or names more than a kernel can have.
    """
    found: set[int] = set()
    for part in text.strip().split(",") if text.strip() else ():
        first, dash, last = part.strip().partition("-")
        if not (first.isascii() and first.isdigit() and (not dash or (last.isascii() and last.isdigit()))):
            raise ValueError(f"'{part}' is neither a number nor a range")
        start, end = int(first[:9]), int((last or first)[:9])
        if not start <= end <= MAX_CPU:
            raise ValueError(f"'{part}' is no range of numbers up to {MAX_CPU}")
        found.update(range(start, end + 1))
    return tuple(sorted(found))


def format_list(numbers: Iterable[int]) -> str:
    """The shortest list of these numbers."""
    runs = groupby(enumerate(sorted(set(numbers))), key=lambda pair: pair[1] - pair[0])
    spans = [[number for _, number in run] for _, run in runs]
    return ",".join(f"{span[0]}-{span[-1]}" if len(span) > 1 else str(span[0]) for span in spans)


def mask(numbers: Iterable[int]) -> int:
    """One bit for each number."""
    return sum(1 << number for number in set(numbers))
