"""Simple orderings, each with the lowest and the tightest gap: none wins on all graphs, and together they are quick.

After Pisarchyk & Lee 2020 (arXiv:2001.03288), XLA's ``GlobalDecreasingSizeBestFitHeap`` and idealloc's baselines.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memplan.plan.reuse.bound import lower_bound
from memplan.plan.reuse.fit import place_in_order
from memplan.plan.reuse.records import ArenaPlacement, Problem, Result
from memplan.plan.reuse.result import ended
from memplan.plan.reuse.table import BufferTable, Whole, table_of

if TYPE_CHECKING:
    import numpy as np

    Keys = tuple[np.ndarray[Any, Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GreedyPlacement:
    """A placement on the rows of a table."""

    ordering: str
    """Who found it."""
    lows: Whole
    """Offsets per row."""
    height: int
    """End of the highest."""


ALL = 1_000
"""Up to so many buffers every ordering is tried, however little time there is: it takes milliseconds."""


def solve(problem: Problem, *, time_limit: float) -> Result:
    """The best of all orderings within the time; one is always tried to its end, and all of them on few buffers."""
    deadline = time.monotonic() + time_limit
    bound = lower_bound(problem)
    best: tuple[ArenaPlacement, str] | None = None
    table = table_of(problem)
    for found in placements(table):
        if best is None or found.height < best[0].height:
            best = table.placement(found.lows), found.ordering
        over = time.monotonic() > deadline and len(table.sizes) > ALL
        if found.height <= max(bound.bytes, problem.capacity or 0) or over:
            break
    assert best is not None  # noqa: S101 - there is always an ordering.
    return ended(problem, best[0], bound, method=f"greedy: {best[1]}")


def placements(table: BufferTable) -> Iterator[GreedyPlacement]:
    """Yield the placement of each ordering, one after the other."""
    import numpy as np

    # The last of the keys counts most; rows that are equal in all stay in the order of the table.
    orders = {name: np.lexsort(keys(table)[::-1]) for name, keys in ORDERINGS.items()} if len(table.sizes) else {}
    for tightest, gap in ((False, "lowest"), (True, "tightest")):
        for name in ORDERINGS:
            lows = place_in_order(table, orders.get(name, np.zeros(0, dtype=np.int64)), tightest=tightest)
            yield GreedyPlacement(ordering=f"{name}, {gap} gap", lows=lows, height=height_of(table, lows))


def height_of(table: BufferTable, lows: Whole) -> int:
    """End of the highest buffer."""
    return int((lows + table.sizes).max(initial=0))


def duration(table: BufferTable) -> Whole:
    """Moments per row."""
    return table.times.ends - table.times.starts


def area(table: BufferTable) -> "np.ndarray[Any, np.dtype[np.float64]]":
    """Size times moments per row, in floating point: the product may need more than 64 bits."""
    import numpy as np

    return table.sizes.astype(np.float64) * duration(table)


def breadth(table: BufferTable) -> Whole:
    """Most bytes alive at any moment of each row's lifespan."""
    import numpy as np

    # Of stretches of 2ᵏ moments, any lifespan is the union of two.
    tables, reach = [table.loads], 1
    while 2 * reach <= len(table.loads):
        tables.append(np.maximum(tables[-1][:-reach], tables[-1][reach:]))
        reach *= 2
    powers = np.array([int(moments).bit_length() - 1 for moments in duration(table)], dtype=np.int64)
    found = np.zeros_like(table.sizes)
    for power, most in enumerate(tables):
        rows = np.flatnonzero(powers == power)
        found[rows] = np.maximum(most[table.times.starts[rows]], most[table.times.ends[rows] - (1 << power)])
    return found


def _peak_first(table: BufferTable) -> "Keys":
    # Who is alive at the peak is stacked without a hole, the longest lowest; all others go around.
    peak = int(table.loads.argmax())
    away = (table.times.starts > peak) | (table.times.ends <= peak)
    return away, -duration(table) * ~away, -table.sizes


ORDERINGS: "dict[str, Callable[[BufferTable], Keys]]" = {
    "peak": _peak_first,
    "breadth": lambda table: (-breadth(table), -table.sizes),
    "death": lambda table: (-table.times.ends, -table.sizes),
    "size": lambda table: (-table.sizes, table.times.starts),
    "area": lambda table: (-area(table), table.times.starts),
    "duration": lambda table: (-duration(table), -table.sizes),
    "birth": lambda table: (table.times.starts, -table.sizes),
}
"""Name → keys by which rows are placed, the first counting most. Those that are best on training steps come first: of
large problems there is time for a few."""
