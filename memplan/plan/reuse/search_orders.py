"""Orders of questions and answers: many short searches in different orders find what one long one misses.

How long a search takes to fit buffers has a heavy tail: an unlucky early answer costs for ever, and another rule or
order has none. So rules and orders take turns with few nodes each, which grow from round to round; from the second
round on, orders are shaken.
"""

from collections.abc import Iterator, Sequence
from itertools import count, product
from random import Random

from memplan.plan.reuse.search_records import SearchTask
from memplan.plan.reuse.search_shape import free_rows, whole
from memplan.plan.reuse.table import BufferTable

ORDERS = ("WAT", "TAW", "ZWA", "AWT")
"""Largest first, by: Width (duration), Area (duration x size), Total (highest load it is part of), siZe.
The first two are minimalloc's (ASPLOS 2023)."""
RULES = ((0, 0), (1, 0), (0, 1), (1, 1))
"""``SearchTask.anywhere`` and ``SearchTask.tightest``: no choice of the four is the best one everywhere."""
NODES_PER_BUFFER = 2
"""In the first round; a search without a wrong answer needs about one."""
GROWTH = 2
"""Of nodes, from one round to the next."""
SHAKES = (0.01, 0.02, 0.05, 0.1)
"""Standard deviation of what is added to a buffer's place in its order, as a share of all places; in turn."""


def turns(table: BufferTable, capacity: int, seed: int) -> Iterator[tuple[SearchTask, int]]:
    """Short searches without end, each with the nodes that it may take.

    Args:
        table: The problem.
        capacity: Height to be kept.
        seed: Of what shakes the orders.
    """
    random = Random(seed)  # noqa: S311 - no secret; the same seed must give the same turns.
    places = {keys: _places(_sorted(table, keys)) for keys in ORDERS}
    size = len(free_rows(table))
    for cycle, later in ((cycle, later) for cycle in count() for later in (0, 1)):
        nodes = int(NODES_PER_BUFFER * size * GROWTH**cycle) + 16
        shake = SHAKES[cycle % len(SHAKES)] * size if cycle else 0.0
        for keys, (anywhere, tightest) in product(ORDERS, RULES):
            values = [place + random.gauss(0, shake) for place in places[keys]]
            order = sorted(range(size), key=values.__getitem__)
            rank = whole(_places(order))
            yield SearchTask(capacity=capacity, rank=rank, anywhere=anywhere, tightest=tightest, later=later), nodes


def _sorted(table: BufferTable, keys: str) -> list[int]:
    rows = free_rows(table)
    times = table.times
    buffers = {row: table.problem.buffers[table.indices[row]] for row in rows}
    width = {row: buffer.end - buffer.start for row, buffer in buffers.items()}
    measures = {
        "W": lambda row: width[row],
        "A": lambda row: width[row] * int(table.sizes[row]),
        "T": lambda row: int(table.loads[times.starts[row] : times.ends[row]].max()),
        "Z": lambda row: int(table.sizes[row]),
    }
    return sorted(range(len(rows)), key=lambda k: tuple(-measures[key](rows[k]) for key in keys))


def _places(order: Sequence[int]) -> list[int]:
    places = [0] * len(order)
    for place, buffer in enumerate(order):
        places[buffer] = place
    return places
