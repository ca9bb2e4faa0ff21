"""Reads and writes ``roundup_power2_divisions``, a table by size (``parseRoundUpPower2Divisions``, torch 2.13).

An example, with starts of intervals in MiB:

    [256:1,1024:4,>:8]     up to 512 MiB: 1, from there 0, from 1 GiB 4, from 2 GiB 8

The first entry also holds for everything below it, ``>`` for everything above the entry before it; the rest is 0.
"""

from collections.abc import Iterator

from memplan.replay.conf_values import RefusedValueError, power_of_two
from memplan.replay.policy import ROUNDUP_INTERVALS


def parse_divisions(value: str) -> tuple[int, ...]:
    """One number for all sizes, or a list by starts of intervals in MiB.

    Raises:
        RefusedValueError: PyTorch would not accept it.
    """
    if not value.startswith("["):
        return (power_of_two(value),) * ROUNDUP_INTERVALS
    if not value.endswith("]"):
        raise RefusedValueError("closed by ]")
    table, last = [0] * ROUNDUP_INTERVALS, -1
    for entry in value[1:-1].removesuffix(",").split(",") if len(value) > 2 else ():
        start, _, count = entry.partition(":")
        divisions = power_of_two(count, or_zero=True)
        if start == ">":
            # Without an entry before it, PyTorch leaves the first interval alone.
            rest = max(last, 0) + 1
            table[rest:] = [divisions] * (ROUNDUP_INTERVALS - rest)
            continue
        index = min(power_of_two(start).bit_length() - 1, ROUNDUP_INTERVALS - 1)
        if last < 0:
            table[:index] = [divisions] * index
        table[index], last = divisions, index
    return tuple(table)


def format_divisions(table: tuple[int, ...]) -> str:
    """The shortest value that ``parse_divisions`` reads as this table."""
    if len(set(table)) == 1 and table[0]:
        return str(table[0])
    return min(_lists(table), key=len)


def _lists(table: tuple[int, ...]) -> Iterator[str]:
    """All ways to write a table: named one by one below some interval, and ``>`` from there on."""
    for cut in range(ROUNDUP_INTERVALS, 0, -1):
        rest = set(table[cut:])
        if len(rest) > 1:
            return
        last = f">:{table[cut]}" if rest - {0} else ""
        yield f"[{','.join([*_named(table, cut, closed=bool(last)), *([last] if last else [])])}]"


def _named(table: tuple[int, ...], cut: int, *, closed: bool) -> Iterator[str]:
    """Entries for the intervals below ``cut``; ``closed`` where the last of them must be named, for ``>`` to follow."""
    if closed and cut == 1 and not table[0]:
        return
    first = next((index for index in range(1, cut) if table[index] != table[0]), cut) - 1
    for index in range(first, cut):
        if index == first or table[index] or (closed and index == cut - 1):
            yield f"{1 << index}:{table[index]}"
