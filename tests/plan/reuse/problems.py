"""Problems drawn at random, and oracles that look at every byte of them."""

from dataclasses import replace
from itertools import permutations

from hypothesis import strategies as st

from memplan.plan.reuse.records import ArenaBuffer, Problem


@st.composite
def spans(draw, last=12):
    """A lifespan and gaps in it: sorted, apart, perhaps at its ends, perhaps all of it."""
    marks = sorted(draw(st.sets(st.integers(0, last), min_size=2, max_size=6)))
    start, end = marks[0], marks[-1]
    inner = marks[1:-1]
    gaps = tuple(zip(inner[::2], inner[1::2], strict=False)) if draw(st.booleans()) else ()
    if draw(st.integers(0, 15)) == 0:
        gaps = ((start, draw(st.integers(start + 1, end))),)
    return start, end, gaps


@st.composite
def problems(draw, most=8, size=9, aligned=True, gaps=True, fixed=True):
    """Buffers; those of fixed offset never share a byte, so that there is a placement."""
    found: list[ArenaBuffer] = []
    for index in range(draw(st.integers(0, most))):
        start, end, holes = draw(spans())
        found.append(
            ArenaBuffer(
                name=f"b{index}",
                start=start,
                end=end,
                size=draw(st.integers(0, size)),
                alignment=draw(st.sampled_from((1, 1, 2, 3, 4))) if aligned else 1,
                gaps=holes if gaps else (),
            )
        )
    if fixed and found and draw(st.integers(0, 3)) == 0:
        for at in sorted(draw(st.sets(st.integers(0, len(found) - 1), max_size=2))):
            offset = draw(st.integers(0, 4)) * found[at].alignment
            trial = replace(found[at], offset=offset)
            if not any(o.offset is not None and share(trial, offset, o, o.offset) for o in found):
                found[at] = trial
    return Problem(buffers=tuple(found))


def moments(buffer):
    """Every moment at which its bytes are its own."""
    return {t for t in range(buffer.start, buffer.end) if not any(a <= t < b for a, b in buffer.gaps)}


def share(one, offset, other, other_offset):
    """Do two buffers share a byte at a moment? Byte by byte, moment by moment."""
    return bool(
        moments(one) & moments(other)
        and set(range(offset, offset + one.size)) & set(range(other_offset, other_offset + other.size))
    )


def right(problem, offsets, capacity=None):
    """Is a placement right, looking at everything?"""
    pairs = list(zip(problem.buffers, offsets, strict=True))
    return (
        all(o >= 0 and o % b.alignment == 0 and b.offset in {None, o} for b, o in pairs)
        and not any(share(*one, *other) for i, one in enumerate(pairs) for other in pairs[:i])
        and (capacity is None or all(o + b.size <= capacity for b, o in pairs if b.size))
    )


def load(problem):
    """Most bytes alive at a moment."""
    return max((sum(b.size for b in problem.buffers if t in moments(b)) for t in range(16)), default=0)


def lowest_height(problem):
    """Height of the lowest placement: some order of the buffers in which each falls as low as it can leads there."""
    free = [b for b in problem.buffers if b.offset is None and b.size and moments(b)]
    fixed = [(b, b.offset) for b in problem.buffers if b.offset is not None and b.size and moments(b)]
    floor = max((b.offset + b.size for b in problem.buffers if b.offset is not None and b.size), default=0)
    beside = max((b.size for b in problem.buffers if b.size and not moments(b) and b.offset is None), default=0)
    best = None
    for order in permutations(free):
        down = list(fixed)
        for buffer in order:
            offset = 0
            while any(share(buffer, offset, other, at) for other, at in down):
                offset += buffer.alignment
            down.append((buffer, offset))
        height = max((o + b.size for b, o in down), default=0)
        best = height if best is None else min(best, height)
    return max(best or 0, floor, beside)
