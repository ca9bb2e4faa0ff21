"""Host memory of a trace's steps."""

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from memplan.replay.host import host_peak
from memplan.tracing.records import Event, StepRange, Storage, Trace
from memplan.units import Bytes, OpIndex, StorageId


def trace(*lives: tuple[str, int, int, int], first: int = 0) -> Trace:
    """A trace of (place, bytes, born, dead), each moment one event; its only step begins with event ``first``."""
    storages = tuple(
        Storage(id=StorageId(key), nbytes=Bytes(nbytes), place=place, role="intermediate", birth=OpIndex(0), name="")
        for key, (place, nbytes, _, _) in enumerate(lives)
    )
    moments = [(born, Event("alloc", StorageId(key), OpIndex(0))) for key, (_, _, born, _) in enumerate(lives)]
    moments += [(dead, Event("free", StorageId(key), OpIndex(0))) for key, (_, _, _, dead) in enumerate(lives)]
    events = tuple(event for _, event in sorted(moments, key=lambda each: each[0]))
    step = StepRange(first_op=0, end_op=1, first_event=first, end_event=len(events))
    parts = {"storages": storages, "events": events, "steps": (step,)}
    return Trace(**{field.name: parts.get(field.name) for field in dataclasses.fields(Trace)})


@given(st.lists(st.tuples(st.integers(0, 5_000), st.booleans()), max_size=30))
def test_without_frees_pageable_memory_counts_to_the_byte_and_pinned_by_powers_of_two(sizes):
    lives = [("pinned" if pinned else "host", nbytes, when, 1_000) for when, (nbytes, pinned) in enumerate(sizes)]
    expected = 0
    for nbytes, pinned in sizes:
        power = 1
        while power < nbytes:
            power *= 2
        expected += (power if nbytes else 0) if pinned else nbytes
    assert host_peak(trace(*lives)) == expected


def test_what_dies_makes_room_for_pageable_memory_but_stays_pinned():
    assert host_peak(trace(("host", 100, 0, 1), ("host", 70, 2, 3))) == 100
    assert host_peak(trace(("pinned", 128, 0, 1), ("pinned", 64, 2, 3))) == 128 + 64
    assert host_peak(trace(("pinned", 128, 0, 1), ("pinned", 100, 2, 3))) == 128


def test_neither_the_device_nor_meta_tensors_are_the_hosts():
    assert host_peak(trace(("device", 100, 0, 1), ("meta", 70, 2, 3))) == 0


def test_set_up_counts_only_in_what_it_leaves():
    # Events: 0 alloc of 500, 1 alloc of 40, 2 free of 500; the step begins with event 3.
    lives = (("host", 500, 0, 2), ("host", 40, 1, 9), ("host", 7, 4, 5))
    assert host_peak(trace(*lives, first=3)) == 47
