"""Reads ``roundup_power2_divisions``, a table by size (``parseRoundUpPower2Divisions``, torch 2.13).

An example, with starts of intervals in MiB:

    [256:1,1024:4,>:8]     up to 512 MiB: 1, from there 0, from 1 GiB 4, from 2 GiB 8

The first entry also holds for everything below it, ``>`` for everything above the entry before it; the rest is 0.
"""

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
