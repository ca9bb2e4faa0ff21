"""A long ring of which a few turns are traced: the same program and the same memory as with all of them."""

from dataclasses import replace
from operator import attrgetter

import pytest

from memplan.hardware.catalog import load_profile
from memplan.job.source import ModelSource
from memplan.lifetime.build import build_lifetimes
from memplan.measure.packed_trace import pack, unpack
from memplan.measure.played import play_on_device
from memplan.replay.policy import AllocatorPolicy
from memplan.replay.records import MemoryProfile
from memplan.tracing.fold.traces import decode, encode
from memplan.tracing.fold.words import Vocabulary
from memplan.tracing.records import Trace
from memplan.tracing.turns import leading_turns, performed, turns_repeat
from tests.tracing.jobs import source
from tests.tracing.sharding.toy import Decoder, loss, needs_recent_torch, traced, words

pytestmark = needs_recent_torch

PEAKS = attrgetter(
    "peak_requested", "peak_allocated", "peak_reserved", "allocated_at_peak", "requested_at_peak", "end_reserved",
    "steps_replayed", "segments", "settled", "retries", "pending_at_peak", "peak_active",
)  # fmt: skip
WORK = attrgetter("name", "phase", "module", "source", "flops", "bytes_moved")


def _long(ranks: int) -> ModelSource:
    """A sequence that grows with the ranks, as it does where each has as much as it can hold."""
    tokens = 16 * ranks
    return source(Decoder, lambda size: words(size).repeat(1, ranks), loss=loss, default_seq_len=tokens)


def _both(words: str, ranks: int, **options: object) -> tuple[Trace, Trace]:
    few, every = (traced(words, given=_long(ranks), precision="bf16", no_fold=no, **options) for no in (False, True))
    return few, every


def _played(trace: Trace, *, expandable: bool) -> MemoryProfile:
    policy = AllocatorPolicy(expandable_segments=expandable)
    return play_on_device(build_lifetimes(trace), load_profile("h100-80g"), policy).memory


@pytest.mark.parametrize(
    ("words", "ranks"),
    [
        ("cp=8", 8),
        pytest.param("fsdp=2,cp=9", 9, marks=pytest.mark.slow),
        pytest.param("fsdp=4,cp=16", 16, marks=pytest.mark.slow),
        pytest.param("cp=23", 23, marks=pytest.mark.slow),
    ],
)
def test_a_few_turns_take_what_all_take(words, ranks):
    few, every = _both(words, ranks)
    assert not every.turns
    assert turns_repeat(few)
    assert {turn.further for turn in few.turns} == {ranks - 1 - leading_turns(ranks)}
    for step, whole in zip(few.steps, every.steps, strict=True):
        ops, all_ops = performed(few, step.first_op, step.end_op), every.ops[whole.first_op : whole.end_op]
        assert list(map(WORK, ops)) == list(map(WORK, all_ops))
    for expandable in (False, True):
        assert PEAKS(_played(few, expandable=expandable)) == PEAKS(_played(every, expandable=expandable))


@pytest.mark.slow
def test_recomputed_rings_take_what_all_take():
    few, every = _both("fsdp=2,cp=9", 9, checkpoint="full")
    assert turns_repeat(few)
    assert PEAKS(_played(few, expandable=False)) == PEAKS(_played(every, expandable=False))


@pytest.mark.parametrize(("ranks", "leading"), [(2, 1), (6, 5), (7, 6), (8, 5), (9, 6), (512, 5)])
def test_an_even_number_of_turns_is_left_out(ranks, leading):
    assert leading_turns(ranks) == leading
    assert (ranks - 1 - leading) % 2 == 0


def test_a_turn_that_differs_is_seen():
    trace = traced("cp=8", given=_long(8), precision="bf16")
    turn = trace.turns[3]
    assert turns_repeat(trace)
    dearer = tuple(replace(op, flops=op.flops + (op.index == turn.first_op)) for op in trace.ops)
    assert not turns_repeat(replace(trace, ops=dearer))
    born = next(event.storage for event in trace.events[turn.first_event :] if event.action == "alloc")
    larger = tuple(replace(each, nbytes=each.nbytes + (each.id == born)) for each in trace.storages)
    assert not turns_repeat(replace(trace, storages=larger))
    kept = trace.events[turn.first_event : turn.end_event]
    lost = next(at for at, event in enumerate(kept, turn.first_event) if event.action == "free")
    assert not turns_repeat(replace(trace, events=(*trace.events[:lost], *trace.events[lost + 1 :])))


def test_turns_are_kept_with_a_trace_and_in_what_is_folded():
    trace = replace(traced("cp=8", given=_long(8), precision="bf16"), graph=None, constants={})
    vocabulary = Vocabulary()
    assert trace.turns
    assert unpack(pack(trace), trace.device) == trace
    assert decode(encode(trace, vocabulary), vocabulary, trace) == trace
