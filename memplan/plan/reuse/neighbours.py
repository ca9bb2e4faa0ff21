"""Find the buffers that meet another in time, in the order in which they lie: the innermost loop of every placement."""

from memplan.plan.reuse.compiled import compiled
from memplan.plan.reuse.table import Times, Whole


@compiled
def neighbours(buffer: int, times: Times, placed: Whole, near: Whole) -> int:
    """Write the placed buffers that meet one in time to ``near``, and return how many they are.

    ``placed`` is 1 where a row has a place; ``near`` has room for all rows.
    """
    start, end, count = times.starts[buffer], times.ends[buffer], 0
    block = start // times.stride
    for at in range(times.alive_first[block], times.alive_first[block + 1]):
        other = times.alive[at]
        if placed[other] and times.ends[other] > start and meet(buffer, other, times):
            near[count] = other
            count += 1
    for other in range(times.begun[block * times.stride], times.begun[end]):
        if placed[other] and times.ends[other] > start and meet(buffer, other, times):
            near[count] = other
            count += 1
    return count


@compiled
def meet(one: int, other: int, times: Times) -> bool:
    """Do two buffers whose hulls meet, meet outside their gaps?"""
    i, j = times.first[one], times.first[other]
    if times.first[one + 1] - i == 1 and times.first[other + 1] - j == 1:
        return True
    while i < times.first[one + 1] and j < times.first[other + 1]:
        if times.stretch_starts[i] < times.stretch_ends[j] and times.stretch_starts[j] < times.stretch_ends[i]:
            return True
        if times.stretch_ends[i] < times.stretch_ends[j]:
            i += 1
        else:
            j += 1
    return False


@compiled
def sort_by(keys: Whole, rows: Whole, count: int) -> None:
    """Sort the first ``count`` rows by their key, in place (Shell's sort: short, and quick if nearly sorted)."""
    gap = count
    while gap > 1:
        gap = max(1, gap * 4 // 9)
        for at in range(gap, count):
            row = rows[at]
            key = keys[row]
            to = at
            while to >= gap and keys[rows[to - gap]] > key:
                rows[to] = rows[to - gap]
                to -= gap
            rows[to] = row
