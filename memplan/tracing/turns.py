"""Turns of a ring of which a few were traced: how one is told to be like the next, and what all of them do.

turn 0 │ … │ turn 3 │ turn 4 │ … 506 more … │ turn 511        traced: 0 to 4 and the last
former   Turn     further: 506
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from memplan.job.spec import JobSpec
from memplan.tracing.records import Event, Op, Trace, Turn
from memplan.units import OpIndex, StorageId

LEADING: Final = 5
"""Turns that run before the last, at least. The first is another one (causal, nothing to merge with); what a turn sends
away is received in the next and freed in the one after that, so that the fourth is the first that meets nothing of the
first; the fifth shows that the next is like it."""


def leading_turns(ranks: int) -> int:
    """How many turns run before the last, the others being left out; all where that leaves nothing out.

    Those left out are an even number: turns write by turns to two places, and whoever plays what was traced as it
    stands ends in the places of the whole.
    """
    return min(ranks - 1, LEADING + (ranks - LEADING - 1) % 2)


def every_turn(spec: JobSpec) -> JobSpec:
    """Return a job of which every turn is traced, for what looks at single storages or ops."""
    ranks = spec.parallel.context
    return replace(spec, no_fold=True) if leading_turns(ranks) < ranks - 1 else spec


def performed(trace: Trace, first_op: int, end_op: int) -> Iterator[Op]:
    """Yield ops of a trace in the order in which they run, those of a turn as often as it comes.

    Args:
        trace: The trace.
        first_op: The first of them.
        end_op: The one after the last.
    """
    done = first_op
    for turn in trace.turns:
        if first_op <= turn.first_op and turn.end_op <= end_op:
            yield from trace.ops[done : turn.end_op]
            for _ in range(turn.further):
                yield from trace.ops[turn.first_op : turn.end_op]
            done = turn.end_op
    yield from trace.ops[done:end_op]


def turns_repeat(trace: Trace) -> bool:
    """Does every turn what the one before it did, and outlives nothing of a turn the one after the next?"""
    if not trace.turns:
        return True
    freed_at = {event.storage: at for at, event in enumerate(trace.events) if event.action == "free"}
    return all(_repeats(trace, turn, freed_at) for turn in trace.turns)


def _repeats(trace: Trace, turn: Turn, freed_at: Mapping[StorageId, int]) -> bool:
    former, events = (
        trace.events[start:end]
        for start, end in ((turn.former_event, turn.first_event), (turn.first_event, turn.end_event))
    )
    born, born_before = ([event.storage for event in row if event.action == "alloc"] for row in (events, former))
    later = _Later(
        trace=trace,
        ops=turn.first_op - turn.former_op,
        storages=len(born),
        outside=born_before[0] if born_before else len(trace.storages),
    )
    two_before = range(later.outside - later.storages, later.outside)
    return (
        len(born) == len(born_before)
        and all(freed_at.get(StorageId(each), len(trace.events)) < turn.end_event for each in two_before)
        and 2 * len(born) == len(events) == len(former)
        and turn.end_op - turn.first_op == later.ops
        and all(map(later.is_event, former, events))
        and all(map(later.is_op, trace.ops[turn.former_op : turn.first_op], trace.ops[turn.first_op : turn.end_op]))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Later:
    """Tells whether a record is another one, a turn later."""

    trace: Trace
    ops: int
    """Ops of a turn."""
    storages: int
    """Storages that a turn allocates."""
    outside: int
    """All storages before this one are older than both turns."""

    def is_event(self, event: Event, other: Event) -> bool:
        """Is the other event this one in the next turn?"""
        later = event._replace(storage=StorageId(event.storage + self.storages), op=OpIndex(event.op + self.ops))
        return other == later and (event.action == "free" or self._is_born(event.storage, other.storage))

    def is_op(self, op: Op, other: Op) -> bool:
        """Is the other op this one in the next turn? What is older than both they share."""
        alike = replace(other, index=op.index, reads=op.reads, writes=op.writes) == op
        pairs = ((op.reads, other.reads), (op.writes, other.writes))
        return alike and all(len(one) == len(two) and all(map(self._is_meant, one, two)) for one, two in pairs)

    def _is_born(self, storage: StorageId, other: StorageId) -> bool:
        one, two = self.trace.storages[storage], self.trace.storages[other]
        return replace(two, id=one.id, birth=OpIndex(two.birth - self.ops)) == one

    def _is_meant(self, storage: StorageId, other: StorageId) -> bool:
        return other == storage + self.storages or (other == storage and storage < self.outside)
