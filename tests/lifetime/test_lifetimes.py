"""Lifespans, categories and live bytes: against a program counted by hand, and against brute force."""

import dataclasses

import torch
from hypothesis import given
from hypothesis import strategies as st

from memplan.lifetime.build import build_lifetimes
from memplan.lifetime.owners import by_category, by_owner
from memplan.lifetime.records import Category, Lifetimes
from memplan.lifetime.sweep import alive_after, live_curve
from memplan.tracing.records import DeviceTraits, Event, ModelFacts, Op, StepRange, Storage, Trace
from memplan.units import Bytes, OpIndex, StorageId
from tests.tracing.jobs import source, trace

FLOAT = 4


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(256, 1024, bias=False)
        self.down = torch.nn.Linear(1024, 256, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.up(x).tanh())


def block() -> Lifetimes:
    given = source(
        Block,
        lambda size: torch.randn(size, 256),
        loss=lambda output, batch: output.sum(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, foreach=False),
    )
    return build_lifetimes(trace(given, batch_size=64))


def test_the_parts_of_a_small_step_are_what_arithmetic_says() -> None:
    lifetimes = block()
    step = lifetimes.trace.steps[-1]
    first = lifetimes.trace.ops[step.first_op : step.end_op]
    momentum_update = next(op.index for op in reversed(first) if op.name.startswith("aten.add_"))
    alive = [key for key, buffer in lifetimes.buffers.items() if buffer.start <= momentum_update < buffer.end]
    totals = by_category(lifetimes, alive)
    weights = 2 * 256 * 1024 * FLOAT
    assert totals[Category.PARAMETER] == totals[Category.GRADIENT] == totals[Category.OPTIMIZER_STATE] == weights
    assert totals[Category.INPUT] == 64 * 256 * FLOAT


def test_activations_are_what_backward_needs() -> None:
    lifetimes = block()
    trace_ = lifetimes.trace
    begins = next(op.index for op in trace_.ops[trace_.steps[-1].first_op :] if op.phase == "backward")
    alive = [key for key, buffer in lifetimes.buffers.items() if buffer.start < begins < buffer.end]
    # tanh's result is saved twice by reference, once in memory; the linear output and the loss are locals of the loop.
    # The other scalar is the gradient that backward() starts from.
    saved = (64 * 1024 + 64 * 256 + 2) * FLOAT
    assert by_category(lifetimes, alive)[Category.ACTIVATION] == saved


def test_owners_are_modules_and_lines() -> None:
    lifetimes = block()
    curve = list(live_curve(lifetimes.trace, lifetimes.buffers))
    alive = alive_after(lifetimes.trace, lifetimes.buffers, curve.index(max(curve)))
    owners = {(module, category) for (module, _, category), _ in by_owner(lifetimes, alive)}
    assert ("up", Category.PARAMETER) in owners
    assert ("up", Category.OPTIMIZER_STATE) in owners
    assert ("batch", Category.INPUT) in owners


def test_host_tensors_are_no_device_memory() -> None:
    given = source(
        lambda: torch.nn.Linear(8, 8),
        lambda size: torch.randn(size, 8),
        loss=lambda output, batch: output.sum(),
        optimizer=torch.optim.AdamW,
    )
    lifetimes = build_lifetimes(trace(given, DeviceTraits(kind="cuda"), batch_size=2))
    state = [buffer.nbytes for buffer in lifetimes.buffers.values() if buffer.category is Category.OPTIMIZER_STATE]
    # Two moments for weight and bias; their ``step`` counters lie on the host.
    assert sorted(state) == [8 * FLOAT, 8 * FLOAT, 64 * FLOAT, 64 * FLOAT]


@st.composite
def streams(draw: st.DrawFn) -> Trace:
    """Traces with random events in a random order: what is born may die, once."""
    sizes = draw(st.lists(st.integers(1, 1000), min_size=1, max_size=12))
    order = draw(st.permutations(sorted([*range(len(sizes)), *range(len(sizes))])))
    born: set[int] = set()
    events = []
    for position, key in enumerate(order):
        events.append(Event("free" if key in born else "alloc", StorageId(key), OpIndex(position)))
        born.add(key)
    events = events[: draw(st.integers(1, len(events)))]
    births = {event.storage: event.op for event in events if event.action == "alloc"}
    ops = tuple(
        Op(
            index=OpIndex(index),
            name="aten.empty.default",
            phase="forward",
            module="",
            source="",
            flops=0,
            bytes_moved=Bytes(0),
            reads=(),
            writes=(),
        )
        for index in range(len(events))
    )
    storages = tuple(
        Storage(
            id=StorageId(key),
            nbytes=Bytes(size),
            place="device",
            role="intermediate",
            birth=births.get(StorageId(key), OpIndex(0)),
            name="",
        )
        for key, size in enumerate(sizes)
    )
    step = StepRange(first_op=0, end_op=len(ops), first_event=0, end_event=len(events))
    return Trace(
        device=DeviceTraits(kind="cpu"),
        model=ModelFacts(parameters=0, trainable_parameters=0),
        ops=ops,
        storages=storages,
        events=tuple(events),
        steps=(step,),
        repeats=False,
        seq_len=None,
        provenance={},
        assumptions=(),
        not_modelled=(),
        trace_seconds=0.0,
        graph=None,
        constants={},
    )


@given(streams())
def test_live_bytes_are_counted_as_brute_force_counts_them(given_trace: Trace) -> None:
    lifetimes = build_lifetimes(given_trace)
    # By prefix sums from scratch at every event, the slow way.
    curve = []
    for end in range(1, len(given_trace.events) + 1):
        born = {event.storage for event in given_trace.events[:end] if event.action == "alloc"}
        dead = {event.storage for event in given_trace.events[:end] if event.action == "free"}
        curve.append(sum(given_trace.storages[key].nbytes for key in born - dead))
    trace, buffers = given_trace, lifetimes.buffers
    assert list(live_curve(trace, buffers)) == curve
    alive = [sum(buffers[key].nbytes for key in alive_after(trace, buffers, event)) for event in range(len(curve))]
    assert alive == curve


@given(streams())
def test_lifespans_hold_exactly_the_ops_at_which_a_storage_lives(given_trace: Trace) -> None:
    lifetimes = build_lifetimes(given_trace)
    for position, event in enumerate(given_trace.events):
        buffer = lifetimes.buffers[event.storage]
        assert buffer.start < buffer.end <= len(given_trace.ops)
        assert buffer.start == position if event.action == "alloc" else buffer.end == position + 1


@given(streams(), st.data())
def test_moving_a_storage_to_the_host_takes_it_off_the_peak(given_trace: Trace, data: st.DataObject) -> None:
    moved = data.draw(st.sampled_from([storage.id for storage in given_trace.storages]))
    storages = tuple(
        dataclasses.replace(storage, place="host") if storage.id == moved else storage
        for storage in given_trace.storages
    )
    on_host = dataclasses.replace(given_trace, storages=storages)
    before, after = (max(live_curve(each, build_lifetimes(each).buffers)) for each in (given_trace, on_host))
    assert before - given_trace.storages[moved].nbytes <= after <= before
