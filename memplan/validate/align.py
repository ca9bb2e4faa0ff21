"""Aligns two long sequences that mostly agree: in time about linear in their length, whatever their differences.

Myers' greedy algorithm ("An O(ND) Difference Algorithm", 1986) finds a longest common subsequence in O(N·D) for D
differences. A bound on D keeps it cheap. Where it is exceeded, the path that has come furthest is taken, and the
search goes on at the nearest place where both sequences share a run of ``ANCHOR`` events: the result is still a common
subsequence, only perhaps not a longest one.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

MOST_DIFFERENCES = 256
"""Differences between two anchors up to which the alignment is a longest one; the cost grows with their square."""
ANCHOR = 16
"""Events that must agree in a row to count as the same place; shorter runs recur by chance in repeated layers."""


class MatchingBlock(NamedTuple):
    """``left[i : i + length]`` equals ``right[j : j + length]``."""

    i: int
    j: int
    length: int


def align(
    left: Sequence[int], right: Sequence[int], *, most_differences: int = MOST_DIFFERENCES
) -> tuple[MatchingBlock, ...]:
    """Match two sequences of comparable codes: blocks in order, no two of them touching on both sides.

    Up to ``most_differences`` insertions and deletions between two anchors the result is a longest common subsequence.
    """
    blocks: list[MatchingBlock] = []
    i = j = 0
    anchors: dict[tuple[int, ...], list[int]] | None = None
    while i < len(left) and j < len(right):
        found, end, is_done = _greedy(left, right, i, j, most_differences)
        blocks += found
        if is_done:
            break
        anchors = anchors or _anchors(right)
        # Where nothing agrees for long enough any more, small steps must do.
        following = _nearest(left, anchors, *end) or end
        if following == (i, j):
            break
        i, j = following
    return tuple(_joined(blocks))


def _greedy(
    left: Sequence[int], right: Sequence[int], start_i: int, start_j: int, bound: int
) -> tuple[list[MatchingBlock], tuple[int, int], bool]:
    """Myers from one place: blocks, where they end, and whether that is the end of both sequences."""
    height, width = len(left) - start_i, len(right) - start_j
    furthest = {1: 0}
    history: list[dict[int, int]] = []
    for differences in range(bound + 1):
        history.append(furthest)
        following: dict[int, int] = {}
        for k in range(-differences, differences + 1, 2):
            down, across = furthest.get(k + 1, -1), furthest.get(k - 1, -2) + 1
            x = max(down, across)
            y = x - k
            if x < 0 or x > height or y < 0 or y > width:
                continue
            while x < height and y < width and left[start_i + x] == right[start_j + y]:
                x += 1
                y += 1
            following[k] = x
            if x == height and y == width:
                return _trail(history, start_i, start_j, x, y), (start_i + x, start_j + y), True
        furthest = following
    x, y = max(((x, x - k) for k, x in furthest.items()), key=sum, default=(0, 0))
    return _trail(history, start_i, start_j, x, y), (start_i + x, start_j + y), False


def _trail(history: list[dict[int, int]], start_i: int, start_j: int, x: int, y: int) -> list[MatchingBlock]:
    """Walk back from ``(x, y)``, collecting the diagonal runs."""
    blocks = []
    for furthest in reversed(history):
        k = x - y
        down, across = furthest.get(k + 1, -1), furthest.get(k - 1, -2) + 1
        before = max(down, across)
        if x > before:
            blocks.append(MatchingBlock(start_i + before, start_j + before - k, x - before))
        # The run began after one step down from diagonal k + 1, or one step across from k - 1.
        x, y = (before, before - k - 1) if down >= across else (before - 1, before - k)
    blocks.reverse()
    return blocks


def _anchors(right: Sequence[int]) -> dict[tuple[int, ...], list[int]]:
    places: dict[tuple[int, ...], list[int]] = {}
    for j in range(len(right) - ANCHOR + 1):
        places.setdefault(tuple(right[j : j + ANCHOR]), []).append(j)
    return places


def _nearest(left: Sequence[int], anchors: dict[tuple[int, ...], list[int]], i: int, j: int) -> tuple[int, int] | None:
    """The place at or after ``(i, j)`` where both go on alike, with the fewest events skipped on the way."""
    best: tuple[int, int] | None = None
    skipped = len(left) + (max((places[-1] for places in anchors.values()), default=0)) + 1
    for x in range(i, len(left) - ANCHOR + 1):
        if x - i >= skipped:
            break
        places = anchors.get(tuple(left[x : x + ANCHOR]), [])
        index = bisect_left(places, j)
        if index < len(places) and (x - i) + (places[index] - j) < skipped:
            best, skipped = (x, places[index]), (x - i) + (places[index] - j)
    return best


def _joined(blocks: list[MatchingBlock]) -> list[MatchingBlock]:
    """Blocks that touch on both sides made one."""
    joined: list[MatchingBlock] = []
    for block in blocks:
        if joined and (joined[-1].i + joined[-1].length, joined[-1].j + joined[-1].length) == block[:2]:
            last = joined.pop()
            joined.append(MatchingBlock(last.i, last.j, last.length + block.length))
        else:
            joined.append(block)
    return joined
