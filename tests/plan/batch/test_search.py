"""The search for the largest batch, against brute force on steps whose sizes are known."""

from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan.errors import EstimateError, UsageError
from memplan.lifetime.family import TraceFamily, differing, families
from memplan.measure.records import Verdict
from memplan.plan.batch.search import JudgedStep, ValueSearch
from memplan.tracing.records import DeviceTraits, Event, ModelFacts, Op, StepRange, Storage, Trace
from memplan.units import Bytes, OpIndex, StorageId


def _trace(*sizes: int, name: str = "aten.mm.default", flops: int = 0) -> Trace:
    """One op that makes storages of these sizes."""
    op = Op(
        index=OpIndex(0),
        name=name,
        phase="forward",
        module="",
        source="",
        flops=flops,
        bytes_moved=Bytes(sum(sizes)),
        reads=(),
        writes=tuple(StorageId(index) for index in range(len(sizes))),
    )
    storages = tuple(
        Storage(
            id=StorageId(index),
            nbytes=Bytes(size),
            place="device",
            role="intermediate",
            birth=OpIndex(0),
            name="",
        )
        for index, size in enumerate(sizes)
    )
    return Trace(
        device=DeviceTraits(kind="cuda"),
        model=ModelFacts(parameters=0, trainable_parameters=0),
        ops=(op,),
        storages=storages,
        events=tuple(Event("alloc", storage.id, OpIndex(0)) for storage in storages),
        steps=(StepRange(first_op=0, end_op=1, first_event=0, end_event=len(storages)),),
        repeats=True,
        seq_len=None,
        provenance={},
        assumptions=(),
        not_modelled=(),
        trace_seconds=0.0,
        graph=None,
        constants={},
    )


def _peak(trace: Trace) -> int:
    return sum(storage.nbytes for storage in trace.storages)


def _search(trace, limit: int) -> ValueSearch:
    return ValueSearch(
        trace, lambda _, traced: JudgedStep(device_bytes=_peak(traced), fits=_peak(traced) <= limit), limit
    )


@given(
    fixed=st.integers(0, 5_000),
    per_sample=st.integers(1, 300),
    square=st.integers(0, 3),
    padding=st.sampled_from((1, 8, 64)),
    limit=st.integers(0, 60_000),
    first=st.integers(1, 70),
)
def test_the_answer_is_that_of_brute_force(
    fixed: int, per_sample: int, square: int, padding: int, limit: int, first: int
) -> None:
    def sizes(batch: int) -> tuple[int, ...]:
        return fixed, per_sample * batch + square * batch * batch, -(-batch // padding) * padding * 4

    found = _search(lambda batch: _trace(*sizes(batch)), limit).run(first)
    best = 0
    while sum(sizes(best + 1)) <= limit:
        best += 1
    if found.ended == "limit":
        assert found.value <= best
    else:
        assert found.value == best
    assert found.ended != "none" or not best
    # Where not even one sample fits, that is said, and nothing was traced without any.
    assert best or found.ended in ("none", "limit")


@given(
    per_sample=st.integers(1, 300),
    square=st.integers(0, 3),
    padding=st.sampled_from((1, 8, 64)),
    limit=st.integers(500, 60_000),
    share=st.floats(1.01, 1.4),
)
def test_the_turns_beyond_the_answer_are_those_of_brute_force(
    per_sample: int, square: int, padding: int, limit: int, share: float
) -> None:
    def sizes(batch: int) -> tuple[int, ...]:
        return per_sample * batch + square * batch * batch, -(-batch // padding) * padding * 4

    usable = int(limit * share)

    def judge(_: int, traced: Trace) -> JudgedStep:
        peak = _peak(traced)
        verdict = Verdict.FITS if peak <= limit else Verdict.TIGHT if peak <= usable else Verdict.OOM
        return JudgedStep(device_bytes=peak, fits=peak <= limit, verdict=verdict)

    search = ValueSearch(lambda batch: _trace(*sizes(batch)), judge, limit)
    found = search.run(2)
    if found.ended not in ("exact", "confirmed"):
        return
    for room, verdicts in ((limit, (Verdict.TIGHT, Verdict.OOM)), (usable, (Verdict.OOM,))):
        first = next(value for value in count(found.value + 1) if sum(sizes(value)) > room)
        turn = search.first_beyond(found.value, usable, verdicts)
        # Sizes that are padded are no polynomials: what was not traced is foretold by those that they come near to.
        if padding == 1 or turn == found.value + 1:
            assert turn == first


@given(limit=st.integers(3_000, 100_000))
def test_sizes_that_are_polynomials_take_four_traces(limit: int) -> None:
    found = _search(lambda batch: _trace(1_000, 700 * batch), limit).run(2)
    assert found.ended in ("exact", "none", "confirmed")
    # The answer itself may be one of the first two, whose sizes nothing foretold.
    assert len(found.traces) <= 4


def test_where_the_ops_change_the_truth_beyond_counts() -> None:
    def trace(batch: int) -> Trace:
        return _trace(100 * batch) if batch < 10 else _trace(50 * batch, 50 * batch, name="other")

    found = _search(trace, 2_345).run(2)
    assert found.value == 23


def test_a_step_that_does_not_grow_is_refused() -> None:
    with pytest.raises(UsageError, match="grows"):
        _search(lambda _: _trace(10), 100).run(1)


def test_nothing_fits() -> None:
    found = _search(lambda batch: _trace(100 * batch), 50).run(8)
    assert (found.value, found.ended) == (0, "none")
    # Steps of other ops at every size: no two traces foretell a third.
    found = _search(lambda batch: _trace(*[40] * (batch + 1)), 50).run(4)
    assert (found.value, found.ended) == (0, "none")
    assert min(found.traces) == 1


@given(st.lists(st.integers(0, 50), min_size=1, max_size=3), st.integers(1, 100))
def test_a_family_foretells_sizes_and_flops(slopes: list[int], value: int) -> None:
    def at(batch: int) -> Trace:
        return _trace(*(slope * batch + 7 for slope in slopes), flops=3 * batch)

    (family,) = families({batch: at(batch) for batch in (2, 5)})
    promised = family.at(value)
    assert not differing(promised, at(value))
    assert [op.flops for op in promised.ops] == [3 * value]


def test_other_ops_are_another_family_and_differ_wholly() -> None:
    traces = {2: _trace(1, 2), 3: _trace(1, 2, name="other")}
    assert [tuple(family.traces) for family in families(traces)] == [(2,), (3,)]
    assert differing(TraceFamily(traces={2: traces[2]}).at(2), traces[3]) == 2


def test_the_most_that_a_library_may_take_follows_too() -> None:
    def at(batch: int) -> Trace:
        trace = _trace(batch)
        return replace(trace, storages=(replace(trace.storages[0], most_bytes=Bytes(9 * batch)),))

    (family,) = families({2: at(2), 4: at(4)})
    assert family.at(10).storages[0].most_bytes == 90


@given(limit=st.integers(1, 5_000), most=st.integers(1, 3_000), first=st.sampled_from((1, 2, 7, 256)))
def test_what_the_program_refuses_bounds_the_search(limit: int, most: int, first: int) -> None:
    tried: list[int] = []

    def trace(value: int) -> Trace:
        tried.append(value)
        if value > most:
            raise EstimateError(f"IndexError: {value}")
        return _trace(value)

    found = _search(trace, limit).run(first)
    assert found.value == min(limit, most)
    assert found.refused == (f"IndexError: {most + 1}" if most <= limit else "")
    assert (found.ended == "refused") == (most <= limit)
    assert len(tried) == len(set(tried)) <= 30


def test_a_limit_of_a_power_of_two_is_found_in_few_traces() -> None:
    tried: list[int] = []

    def trace(value: int) -> Trace:
        tried.append(value)
        if value > 1024:
            raise UsageError("positions")
        return _trace(value)

    found = _search(trace, 6_826).run(256)
    assert (found.value, found.ended, found.beyond) == (1024, "refused", None)
    assert len(tried) <= 7


def test_a_program_that_refuses_everything_says_why() -> None:
    def trace(value: int) -> Trace:
        raise EstimateError(f"no {value}")

    with pytest.raises(EstimateError, match="no 4"):
        _search(trace, 100).run(4)
