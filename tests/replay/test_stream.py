"""From traces to request streams: who takes whose place in the next step."""

import dataclasses
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memplan.job.load import load_source
from memplan.job.spec import FileTarget, JobSpec
from memplan.replay.cpu import NoCaching
from memplan.replay.policy import AllocatorPolicy
from memplan.replay.records import Request
from memplan.replay.replay import replay, replay_steps
from memplan.replay.stream import device_requests, request_stream
from memplan.tracing.records import DeviceTraits, Event, Op, StepRange, Storage, Trace
from memplan.tracing.run import trace_job
from tests.replay.replay_streams import sizes


def op(index, name):
    return Op(
        index=index, name=name, phase="forward", module="", source="", flops=0, bytes_moved=0, reads=(), writes=()
    )


def trace_of(steps):
    """Steps of ("alloc", label, op name, nbytes, place) and ("free", label); labels are unique over all steps."""
    ops, storages, events, ranges, ids = [], [], [], [], {}
    for step in steps:
        first_op, first_event = len(ops), len(events)
        for action, label, *rest in step:
            if action == "alloc":
                ids[label] = len(storages)
                name, nbytes, place = rest
                storages.append(
                    Storage(
                        id=ids[label],
                        nbytes=nbytes,
                        place=place,
                        role="intermediate",
                        birth=len(ops),
                        name="",
                        stream=1,
                    )
                )
                ops.append(op(len(ops), name))
            events.append(Event(action, ids[label], max(len(ops) - 1, 0)))
        ranges.append(StepRange(first_op=first_op, end_op=len(ops), first_event=first_event, end_event=len(events)))
    # What a stream is not made of (the graph, counts, notes) stays None.
    parts = {"ops": tuple(ops), "storages": tuple(storages), "events": tuple(events), "steps": tuple(ranges)}
    return Trace(**{field.name: parts.get(field.name) for field in dataclasses.fields(Trace)}), ids


@st.composite
def repeating_steps(draw):
    """Three equal steps of a program whose values live for up to two steps; labels are (step, name)."""
    template = []
    for name in range(draw(st.integers(1, 6))):
        birth = (
            "alloc",
            name,
            draw(st.sampled_from(["mm", "add"])),
            draw(sizes),
            draw(st.sampled_from(["device", "host"])),
        )
        template.insert(draw(st.integers(0, len(template))), birth)
        age = draw(st.sampled_from([0, 1, 2, None]))
        if age is not None:
            earliest = template.index(birth) + 1 if age == 0 else 0
            template.insert(draw(st.integers(earliest, len(template))), ("free", name, age))
    steps = []
    for number in range(3):
        step = []
        for action, name, *rest in template:
            if action == "alloc":
                step.append(("alloc", (number, name), *rest))
            elif number >= rest[0]:
                step.append(("free", (number - rest[0], name)))
        steps.append(step)
    return template, steps


@settings(deadline=None)
@given(repeating_steps())
def test_heirs_are_the_same_values_one_step_later(made):
    template, steps = made
    trace, ids = trace_of(steps)
    stream = request_stream(trace)
    births = {entry[1]: entry for entry in template if entry[0] == "alloc"}
    expected = {
        ids[2 - back, name]: ids[3 - back, name]
        for action, name, *rest in template
        if action == "free" and births[name][4] == "device"
        for back in range(1, rest[0] + 1)
    }
    assert stream.closes
    assert stream.rename == expected
    assert stream.prefix + stream.step == device_requests(trace)
    assert all(trace.storages[request.key].place == "device" for request in stream.prefix + stream.step)
    # The stream is what a replay takes as it is.
    replay_steps(stream.prefix, stream.step, stream.rename, policy=AllocatorPolicy(), max_steps=2)


def test_the_first_step_may_allocate_more():
    """Optimizer state appears once; the gradient that crosses the step's end is matched nevertheless."""

    def step(number, extra, old):
        return [*extra, ("free", old), ("alloc", f"gradient {number}", "mm", 4096, "device")]

    first = [("alloc", "state", "zeros", 4096, "device"), ("alloc", "gradient 0", "mm", 4096, "device")]
    trace, ids = trace_of([first, step(1, [], "gradient 0")])
    stream = request_stream(trace)
    assert stream.rename == {ids["gradient 0"]: ids["gradient 1"]}
    assert stream.step == (Request("free", 1, 4096, 1), Request("alloc", 2, 4096, 1))


def test_a_step_that_does_not_close_stays_whole():
    """What the last step frees has no heir: nothing can be repeated, everything is prefix."""
    trace, _ = trace_of([[("alloc", "a", "mm", 512, "device")], [("free", "a"), ("alloc", "b", "add", 512, "device")]])
    stream = request_stream(trace)
    assert (stream.closes, stream.step, dict(stream.rename)) == (False, (), {})
    assert stream.prefix == device_requests(trace)


def test_an_heir_that_dies_in_its_own_step_is_none():
    steps = [
        [("alloc", "a", "mm", 512, "device")],
        [("free", "a"), ("alloc", "b", "mm", 512, "device"), ("free", "b")],
    ]
    assert not request_stream(trace_of(steps)[0]).closes


def test_a_trace_without_steps_is_all_prefix():
    trace, _ = trace_of([[("alloc", "a", "mm", 512, "device")]])
    stream = request_stream(dataclasses.replace(trace, steps=()))
    assert (stream.closes, stream.prefix, stream.step) == (False, (Request("alloc", 0, 512, 1),), ())


def test_frees_after_the_last_step_are_left_out():
    """The loop's own variables go when the program ends; within the step they live on into the next one."""
    trace, ids = trace_of([[("alloc", "a", "mm", 512, "device")], [("free", "a"), ("alloc", "b", "mm", 512, "device")]])
    ended = dataclasses.replace(trace, events=(*trace.events, Event("free", ids["b"], 1)))
    assert request_stream(ended) == request_stream(trace)
    assert request_stream(ended).rename == {ids["a"]: ids["b"]}


@pytest.mark.parametrize("placed", [{"name": "batch.0"}, {"role": "input"}])
def test_what_was_placed_is_matched_whatever_op_follows(placed):
    trace, ids = trace_of(
        [
            [("alloc", "batch 0", "zeros", 512, "device")],
            [("free", "batch 0"), ("alloc", "batch 1", "add", 512, "device")],
        ]
    )
    named = tuple(dataclasses.replace(storage, **placed) for storage in trace.storages)
    assert not request_stream(trace).closes
    assert request_stream(dataclasses.replace(trace, storages=named)).rename == {ids["batch 0"]: ids["batch 1"]}


USER_CODE = """
import torch

def model():
    return torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 10))

def batch(batch_size, seq_len=None):
    return (torch.randn(batch_size, 256),)

def loss(output, batch):
    return output.float().mean()
"""


@pytest.mark.parametrize("options", [{}, {"grad_accum": 3}, {"mode": "inference"}, {"precision": "bf16"}])
def test_real_traces_close_and_settle(tmp_path, options):
    (tmp_path / "user_model.py").write_text(USER_CODE)
    spec = JobSpec(target=FileTarget(path=tmp_path / "user_model.py"), batch_size=64, **options)
    trace = trace_job(partial(load_source, spec), spec, DeviceTraits(kind="cuda"))
    stream = request_stream(trace)
    assert trace.repeats
    assert stream.closes
    for old, new in stream.rename.items():
        assert trace.storages[old].nbytes == trace.storages[new].nbytes
    profile = replay_steps(stream.prefix, stream.step, stream.rename, policy=AllocatorPolicy())
    assert profile.settled
    assert profile.peak_requested == replay(stream.prefix + stream.step, policy=NoCaching()).peak_requested
