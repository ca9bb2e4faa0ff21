"""Hypothesis: any recording that the records allow."""

from array import array

from hypothesis import strategies as st

from memplan.runtime.profile.recording import Recording
from memplan.runtime.profile.records import DEPTHS, Border, Events, Overhead, Region, Sample

COUNTS = st.integers(0, 2**62)
SIGNED = st.integers(-(2**62), 2**62)
TIMES = st.floats(0, 1e9)
REGIONS = st.builds(
    Region,
    path=st.lists(st.text(), min_size=1, max_size=3).map(tuple),
    calls=COUNTS,
    errors=COUNTS,
    delta_bytes=SIGNED,
    peak_bytes=COUNTS,
    growth_bytes=COUNTS,
    total_bytes=st.none() | COUNTS,
    allocations=st.none() | COUNTS,
    seconds=TIMES,
    self_seconds=TIMES,
)


@st.composite
def events(draw: st.DrawFn) -> Events:
    rows = draw(st.lists(st.tuples(COUNTS, COUNTS, SIGNED, st.integers(-1, 9)), max_size=5))
    columns = [array("q", (row[index] for row in rows)) for index in range(4)]
    return Events(
        nanoseconds=columns[0], addresses=columns[1], sizes=columns[2], threads=columns[3], dropped=draw(COUNTS)
    )


RECORDINGS = st.builds(
    Recording,
    name=st.text(),
    depth=st.sampled_from(DEPTHS),
    device=st.sampled_from(["cpu", "cuda:0"]),
    source=st.sampled_from(["cpu", "cuda", "resident"]),
    began=TIMES,
    seconds=TIMES,
    start_bytes=COUNTS,
    end_bytes=COUNTS,
    peak_bytes=COUNTS,
    regions=st.lists(REGIONS, max_size=3).map(tuple),
    steps=st.lists(COUNTS, max_size=3).map(tuple),
    samples=st.lists(st.builds(Sample, COUNTS, COUNTS, COUNTS), max_size=3).map(tuple),
    events=st.none() | events(),
    borders=st.lists(st.builds(Border, COUNTS, st.integers(-1, 9), st.integers(-1, 9)), max_size=3).map(tuple),
    overhead=st.builds(
        Overhead, borders=COUNTS, border_seconds=TIMES, samples=COUNTS, sampling_seconds=TIMES, interval_seconds=TIMES
    ),
    notes=st.lists(st.text(), max_size=2).map(tuple),
    versions=st.dictionaries(st.text(), st.text(), max_size=2),
)
