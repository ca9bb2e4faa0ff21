"""Turns of which a few were traced: how one is told to be like the next, and what all of them do.

Keys and values go around a ring of ranks; a step accumulates the gradients of its micro-batches.

turn 0 │ … │ turn 3 │ turn 4 │ … 506 more … │ turn 511        traced: 0 to 4 and the last
former   Turn     further: 506
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from memplan.job.parallel import ALONE
from memplan.job.spec import JobSpec
from memplan.tracing.records import Event, Op, Trace, Turn
from memplan.units import OpIndex, StorageId

LEADING: Final = 5
"""Turns that run before the last, at least. The first is another one (causal, nothing to merge with); what a turn sends
away is received in the next and freed in the one after that, so that the fourth is the first that meets nothing of the
first; the fifth shows that the next is like it."""


MICRO_BATCHES: Final = 3
"""Micro-batches that run, at least. The first makes the gradients, the second is the first that adds to them, and the
third shows that the next is like it."""


def leading_turns(ranks: int) -> int:
    """How many turns run before the last, the others being left out; all where that leaves nothing out.

    Those left out are an even number: turns write by turns to two places, and whoever plays what was traced as it
    stands ends in the places of the whole.
    """
    return min(ranks - 1, LEADING + (ranks - LEADING - 1) % 2)


def micro_batches_that_run(spec: JobSpec) -> tuple[int, int]:
    """Return how many micro-batches of a step run first, and how many last; those between are left out.

    The last reduces the gradients of the ranks, where they do not do it in each.
    """
    return (MICRO_BATCHES, int(spec.parallel != ALONE)) if spec.few_micro_batches else (spec.grad_accum, 0)


def few_micro_batches(spec: JobSpec) -> JobSpec:
    """Return a job of which a few micro-batches run, but where turns of a ring that are left out are more."""
    ring = spec.parallel.context
    of_ring = (ring - 1 - leading_turns(ring)) * spec.grad_accum
    of_step = (spec.grad_accum - MICRO_BATCHES) * ring
    is_eager = spec.compile == "eager" and not spec.no_fold
    return replace(spec, few_micro_batches=True) if is_eager and of_step > max(0, of_ring) else spec


def every_turn(spec: JobSpec) -> JobSpec:
    """Return a job of which every turn is traced, for what looks at single storages or ops."""
    ranks = spec.parallel.context
    spec = replace(spec, few_micro_batches=False)
    return replace(spec, no_fold=True) if leading_turns(ranks) < ranks - 1 else spec


def stretches(trace: Trace, first_op: int, end_op: int) -> Iterator[tuple[Sequence[Op], int]]:
    """Yield ops of a trace in the order in which they run, and how often each stretch of them comes in a row.

    Args:
        trace: The trace.
        first_op: The first of them.
        end_op: The one after the last.
    """
    done = first_op
    for turn in trace.turns:
        if first_op <= turn.first_op and turn.end_op <= end_op:
            yield trace.ops[done : turn.first_op], 1
            yield trace.ops[turn.first_op : turn.end_op], 1 + turn.further
            done = turn.end_op
    yield trace.ops[done:end_op], 1


def performed(trace: Trace, first_op: int, end_op: int) -> Iterator[Op]:
    """Yield the same, each op as often as it comes."""
    for ops, times in stretches(trace, first_op, end_op):
        for _ in range(times):
            yield from ops


def turns_repeat(trace: Trace) -> bool:
    """Does every turn what the one before it did, and leaves what it found?"""
    if not trace.turns:
        return True
    freed_at = {event.storage: at for at, event in enumerate(trace.events) if event.action == "free"}
    return all(_repeats(trace, turn) and _leaves_what_it_found(trace, turn, freed_at) for turn in trace.turns)


def _repeats(trace: Trace, turn: Turn) -> bool:
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
    return (
        len(born) == len(born_before)
        and len(events) == len(former)
        and turn.end_op - turn.first_op == later.ops
        and all(map(later.is_event, former, events))
        and all(map(later.is_op, trace.ops[turn.former_op : turn.first_op], trace.ops[turn.first_op : turn.end_op]))
    )


def _leaves_what_it_found(trace: Trace, turn: Turn, freed_at: Mapping[StorageId, int]) -> bool:
    """Is the same alive after a turn as before it, by the names of a turn earlier, as whoever plays it calls it?"""
    events = trace.events[turn.first_event : turn.end_event]
    born = [event.storage for event in events if event.action == "alloc"]
    first, count = born[0] if born else len(trace.storages), len(born)

    def alive(moment: int, start: int, end: int) -> set[int]:
        return {each for each in range(start, end) if freed_at.get(StorageId(each), moment) >= moment}

    older = {event.storage for event in events if event.action == "free" and event.storage < first - count}
    found = alive(turn.first_event, first - count, first) | older
    return found == {each - count for each in alive(turn.end_event, first - count, first + count)}


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
        if other.action != event.action or other.op != event.op + self.ops:
            return False
        if other.storage == event.storage + self.storages:
            return event.action == "free" or self._is_born(event.storage, other.storage)
        # What the turn before both left may have come among others.
        is_older = event.action == "free" and event.storage < self.outside <= other.storage
        return is_older and self._is_like(event.storage, other.storage)

    def is_op(self, op: Op, other: Op) -> bool:
        """Is the other op this one in the next turn? What is older than both they share, but for their inputs."""
        alike = replace(other, index=op.index, reads=op.reads, writes=op.writes) == op
        pairs = ((op.reads, other.reads), (op.writes, other.writes))
        return alike and all(len(one) == len(two) and all(map(self._is_meant, one, two)) for one, two in pairs)

    def _is_like(self, storage: StorageId, other: StorageId) -> bool:
        one, two = self.trace.storages[storage], self.trace.storages[other]
        return replace(two, id=one.id, birth=one.birth) == one

    def _is_born(self, storage: StorageId, other: StorageId) -> bool:
        one, two = self.trace.storages[storage], self.trace.storages[other]
        return replace(two, id=one.id, birth=OpIndex(two.birth - self.ops)) == one

    def _is_meant(self, storage: StorageId, other: StorageId) -> bool:
        if other == storage + self.storages:
            return True
        return storage < self.outside and (other == storage or self._are_inputs(storage, other))

    def _are_inputs(self, storage: StorageId, other: StorageId) -> bool:
        """Are they batches that were fetched before the first turn?"""
        is_input = self.trace.storages[storage].role == "input"
        return is_input and other < self.outside and self._is_like(storage, other)
