"""Hypothesis strategies for request streams."""

from hypothesis import strategies as st

from memplan.replay.records import Request

KIB, MIB = 1 << 10, 1 << 20
sizes = st.one_of(
    st.integers(1, 4 * KIB),
    st.integers(1, 2 * MIB),
    st.sampled_from(
        [512, MIB - 512, MIB, MIB + 1, 2 * MIB, 9 * MIB, 10 * MIB - 1, 10 * MIB, 19 * MIB, 20 * MIB, 21 * MIB, 25 * MIB]
    ),
    st.integers(MIB, 48 * MIB),
)


@st.composite
def requests(draw, max_events=60, streams=2, allocation_sizes=sizes, first_key=0):
    """Allocations and frees in any order that a program could produce."""
    alive, found, key = [], [], first_key
    for _ in range(draw(st.integers(0, max_events))):
        if alive and draw(st.booleans()):
            victim = alive.pop(draw(st.integers(0, len(alive) - 1)))
            found.append(Request("free", victim, 0, 0))
        else:
            found.append(Request("alloc", key, draw(allocation_sizes), draw(st.integers(0, streams - 1))))
            alive.append(key)
            key += 1
    return found
