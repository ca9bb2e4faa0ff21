"""Workloads without a trace: small programs whose sizes depend on the length, and what they come to when unrolled."""

from hypothesis import strategies as st

from memplan.replay.records import Request
from memplan.simulate.family import TracedLength, put_together
from memplan.simulate.records import Workload
from memplan.units import KIB, MIB

TRACED = (97, 355, 611, 1001, 1543)
"""Lengths that tell every form of size apart."""


@st.composite
def programs(draw):
    """Set-up sizes, and a step of ("alloc", name, slope, constant) and ("free", name, age); age 1 is from before."""
    setup = draw(st.lists(st.integers(1, 30 * MIB), max_size=4))
    events = []
    for name in range(draw(st.integers(1, 8))):
        slope, constant = draw(st.sampled_from([0, 4, 512, 20 * KIB])), draw(st.integers(1, 3 * MIB))
        events.insert(draw(st.integers(0, len(events))), ("alloc", name, slope, constant))
        birth = next(i for i, event in enumerate(events) if event[:2] == ("alloc", name))
        age = draw(st.sampled_from([0, 0, 1]))
        earliest = birth + 1 if age == 0 else 0
        events.insert(draw(st.integers(earliest, len(events))), ("free", name, age))
    return setup, events


def size_at(slope, constant, length):
    return slope * length + constant


def traced(program, length):
    """The streams of a program at a length: a first step that frees nothing of before, then the one that repeats."""
    setup, events = program
    allocs = [event for event in events if event[0] == "alloc"]
    first = {name: len(setup) + index for index, (_, name, *_) in enumerate(allocs)}
    second = {name: key + len(allocs) for name, key in first.items()}
    aged = [name for action, name, age, *_ in events if action == "free" and age == 1]

    def step(born, before):
        for event in events:
            if event[0] == "alloc":
                yield Request("alloc", born[event[1]], size_at(event[2], event[3], length), 0)
            elif event[2] == 0:
                yield Request("free", born[event[1]], 0, 0)
            elif before:
                yield Request("free", before[event[1]], 0, 0)

    return TracedLength(
        length=length,
        set_up=tuple(Request("alloc", key, size, 0) for key, size in enumerate(setup)),
        warm_up=(tuple(step(first, {})),),
        step=tuple(step(second, first)),
        carried=tuple((name, first[name], second[name]) for name in aged),
    )


def unrolled(program, lengths):
    """The same steps as one flat stream, written down without families, slots or renaming."""
    setup, events = program
    stream = [Request("alloc", key, size, 0) for key, size in enumerate(setup)]
    key, alive = len(setup), {}
    for number, length in enumerate(lengths):
        for event in events:
            if event[0] == "alloc":
                alive[event[1], number] = key
                stream.append(Request("alloc", key, size_at(event[2], event[3], length), 0))
                key += 1
            elif number >= event[2]:
                stream.append(Request("free", alive[event[1], number - event[2]], 0, 0))
    return stream


def workload(program, lengths, traced_lengths=TRACED):
    families = put_together({length: traced(program, length) for length in traced_lengths})
    return workload_of(families, lengths)


def workload_of(families, lengths):
    return Workload(
        target="made up",
        families=families,
        lengths=tuple(lengths),
        assumptions=(),
        not_modelled=(),
        options={},
        traced_lengths=TRACED,
        seconds=0.0,
    )
