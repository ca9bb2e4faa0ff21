"""Assign options to blocks trace by trace, so that few traces show every option."""

from collections import defaultdict
from collections.abc import Sequence


def assignments(kinds: Sequence[int], counts: Sequence[int]) -> list[tuple[int, ...]]:
    """Options of all blocks in each probing trace; every option but 0, which the unplanned step shows, comes somewhere.

    Blocks of one kind have different options in one trace: a kind of many blocks is done in one.

    Args:
        kinds: The kind of each block.
        counts: How many options each kind has.
    """
    members: dict[int, list[int]] = defaultdict(list)
    for block, kind in enumerate(kinds):
        # Inner blocks first: they are what the others are taken to be like.
        members[kind].append(block)
    order = {kind: [*found[1:-1], found[0], *found[1:][-1:]] for kind, found in members.items()}
    needed = max((-(-(counts[kind] - 1) // len(found)) for kind, found in order.items()), default=0)
    traces: list[tuple[int, ...]] = []
    for trace in range(needed):
        options = [0] * len(kinds)
        for kind, found in order.items():
            for place, block in enumerate(found):
                options[block] = 1 + (trace * len(found) + place) % (counts[kind] - 1)
        traces.append(tuple(options))
    return traces
