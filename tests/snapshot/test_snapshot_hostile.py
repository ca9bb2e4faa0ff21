"""Damaged and hostile snapshots: an error that says why, at once, and nothing runs."""

import io
import json
import os
import pickle
import time
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memplan.errors import UsageError
from memplan.replay.conf import parse_conf
from memplan.report.snapshot.json import render as render_json
from memplan.report.snapshot.text import render
from memplan.snapshot.analysis import analyse
from memplan.snapshot.pickle_scan import objection
from memplan.snapshot.policy import recorded_policy
from memplan.snapshot.read import load_snapshot
from memplan.snapshot.state import out_of_memory_events
from memplan.snapshot.timeline import timeline
from memplan.snapshot.what_if import what_if
from memplan.units import MIB
from tests.contract.goldens import derived
from tests.snapshot.snapshot_files import event, needs_data, real_files, small_program, write, written_example


class Attack:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return (os.mkdir, (str(self.marker),))


def persistent():
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer)
    pickler.persistent_id = lambda value: "elsewhere" if value == 1 else None
    pickler.dump([1])
    return buffer.getvalue()


def test_a_hostile_file_runs_nothing(tmp_path):
    marker = tmp_path / "ran"
    content = {"segments": [], "device_traces": [], "allocator_settings": Attack(marker)}
    with pytest.raises(UsageError, match=r"STACK_GLOBAL, which names code to run"):
        load_snapshot(write(tmp_path, content))
    assert not marker.exists()


def test_a_list_repeated_to_exhaust_memory_is_refused_at_once(tmp_path):
    """4,000 segments that share one list of 4,000 blocks would be 16 million records."""
    block = {"size": 512, "requested_size": 5, "state": "inactive"}
    segment = {**written_example(), "blocks": [block] * 4000}
    content = {"segments": [segment] * 4000, "device_traces": []}
    with pytest.raises(UsageError, match="more entries than bytes"):
        load_snapshot(write(tmp_path, content))


BROKEN = {
    "empty": b"",
    "text": b"this is no pickle at all\n",
    "other protocol": b"\x80\xff.",
    "no value": b"\x80\x04.",
    "persistent": persistent(),
    "a list of numbers": [1],
    "no segments": {"device_traces": []},
    "segments are text": {"segments": "abc", "device_traces": []},
    "a segment is a number": {"segments": [1], "device_traces": []},
    "a segment without blocks": {"segments": [{"device": 0}], "device_traces": []},
    "address is text": {"segments": [{**written_example(), "address": "0x10"}], "device_traces": []},
    "address is true": {"segments": [{**written_example(), "address": True}], "device_traces": []},
    "size is negative": {"segments": [{**written_example(), "total_size": -1}], "device_traces": []},
    "size is beyond all memory": {"segments": [{**written_example(), "total_size": 1 << 70}], "device_traces": []},
    "unknown state": {"segments": [{**written_example(), "blocks": [{"state": "gone"}]}], "device_traces": []},
    "a trace is a dict": {"segments": [], "device_traces": [{}]},
    "an event without address": {"segments": [], "device_traces": [[{"action": "alloc", "size": 1, "stream": 0}]]},
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_refused_with_a_reason(name, tmp_path):
    path = write(tmp_path, BROKEN[name])
    with pytest.raises(UsageError, match=r"not a CUDA memory snapshot: .") as caught:
        load_snapshot(path)
    assert caught.value.where == str(path)


def little(value, nbytes):
    return value.to_bytes(nbytes, "little")


def hashed_for_ever():
    """A dict whose key is a tuple of tuples, each twice in the next: hashing it takes 2**60 steps."""
    opcodes = pickle.PROTO + b"\x04" + pickle.EMPTY_DICT + pickle.EMPTY_TUPLE + pickle.MEMOIZE
    for level in range(60):
        get = pickle.BINGET + bytes([level])
        opcodes += get + get + pickle.TUPLE2 + pickle.MEMOIZE
    return opcodes + pickle.NONE + pickle.SETITEM + pickle.STOP


def shown_for_ever():
    """An address that is a list of lists, each twice in the next: writing it out takes 2**60 characters."""
    nested = []
    for _ in range(60):
        nested = [nested, nested]
    return {"segments": [{**written_example(), "address": nested}], "device_traces": []}


def deep():
    """200,000 lists inside one another, and enough of nothing for the file not to be all lists."""
    nested = b"(" + pickle.NONE * 500_000 + pickle.EMPTY_LIST * 200_000 + pickle.APPEND * 199_999
    return pickle.PROTO + b"\x04" + nested + pickle.LIST + pickle.STOP


def itself():
    segments = []
    segments.append(segments)
    return {"segments": segments, "device_traces": []}


def frames_shared():
    """2,000 stacks of 2,000 levels that are all one list."""
    level = {"filename": "a.py", "line": 1, "name": "f"}
    shared = [level] * 2000
    trace = [{**event("alloc", 512, 5), "frames": shared} for _ in range(2000)]
    return {"segments": [written_example()], "device_traces": [trace]}


def one_hash(count):
    """Tuples that all have one hash: the second number undoes what the first did (CPython, tupleobject.c)."""
    prime_1, prime_2, seed, bits = 11400714785074694791, 14029467366897019727, 2870177450012600261, (1 << 64) - 1
    undone, pairs, first = pow(prime_2, -1, 1 << 64), [], 0
    while len(pairs) < count:
        first += 1
        lane = (seed + first * prime_2) & bits
        middle = (lane << 31 | lane >> 33) * prime_1 & bits
        second = (12345 - middle) * undone & bits
        if second < (1 << 61) - 1:  # Below its modulus, a number is its own hash.
            pairs.append((first, second))
    assert len({hash(pair) for pair in pairs}) == 1
    return pairs


def colliding(count):
    """A dict with these keys, written without one: making it here would take just as long."""
    head = pickle.PROTO + b"\x04" + pickle.EMPTY_DICT + pickle.MARK
    items = [b"".join(map(number, pair)) + pickle.TUPLE2 + pickle.NONE for pair in one_hash(count)]
    return head + b"".join(items) + pickle.SETITEMS + pickle.STOP


def number(value):
    return pickle.LONG1 + b"\x08" + little(value, 8)


GIB = 1 << 30
HOSTILE = {
    "8 EiB of text": b"\x80\x04\x8d" + little((1 << 63) - 1, 8) + b"x.",
    "4 GiB of text": b"\x80\x04X" + little((1 << 32) - 1, 4) + b"x.",
    "60 GiB of bytes": b"\x80\x04\x8e" + little(60 * GIB, 8) + b"x.",
    "60 GiB of a bytearray": b"\x80\x05\x96" + little(60 * GIB, 8) + b"x.",
    "a frame of 60 GiB": b"\x80\x04\x95" + little(60 * GIB, 8) + b"N.",
    "memo entry 4 billion": b"\x80\x02]r" + little((1 << 32) - 1, 4) + b".",
    "memo entry 9 billion in digits": b"]p9999999999\n.",
    "a number of 2 GiB": b"\x80\x02\x8b" + little((1 << 31) - 1, 4) + b"x.",
    "a number of 200,000 digits": b"L" + b"9" * 200_000 + b"L\n.",
    "a set": {"segments": {1, 2}, "device_traces": []},
    "hashed for ever": hashed_for_ever(),
    "shown for ever": shown_for_ever(),
    "deep": deep(),
    "10 million lists": b"\x80\x04" + pickle.EMPTY_LIST * 10_000_000 + pickle.STOP,
    "itself": itself(),
    "tuples with one hash": colliding(60_000),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused_at_once_and_take_no_memory(name, tmp_path):
    path = write(tmp_path, HOSTILE[name])
    tracemalloc.start()
    try:
        started = time.process_time()
        with pytest.raises(UsageError, match=r"not a CUDA memory snapshot: ."):
            load_snapshot(path)
        assert time.process_time() - started < 20  # What is quadratic takes minutes.
        assert tracemalloc.get_traced_memory()[1] < 50_000_000 + 30 * path.stat().st_size
    finally:
        tracemalloc.stop()


def test_stacks_that_share_everything_cost_nothing(tmp_path):
    (_, device) = load_snapshot(write(tmp_path, frames_shared())).devices[::-1]
    assert (len(device.events), len({id(e.frames) for e in device.events})) == (2000, 1)


def test_a_pipe_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="not a file"):
        load_snapshot(tmp_path / "pipe")


@pytest.mark.parametrize("conf", ["", "expandable_segments:True"])
def test_a_history_that_flushes_with_every_request_is_replayed_at_once(conf, tmp_path):
    """6,000 tiny blocks, every other one free, and then two streams that have room for one at a time."""
    tiny = [event("alloc", 512 * index, 512) for index in range(6000)]
    holes = [event("free_completed", 512 * index, 512) for index in range(0, 6000, 2)]
    names = ("alloc", "free_completed")
    turns = [event(name, 1 << 40, 62 * MIB, stream=index % 2) for index in range(300) for name in names]
    failed = {"action": "oom", "device_free": 90 * MIB, "size": 62 * MIB, "stream": 0}
    content = {"segments": [], "device_traces": [[*tiny, *holes, *turns, failed]]}
    (device,) = load_snapshot(write(tmp_path, content)).devices
    policy = parse_conf(conf)
    failures = out_of_memory_events(device, policy, timeline(device, policy))
    started = time.process_time()
    found = what_if(device, policy, conf, failures=failures)
    assert time.process_time() - started < 12
    # Without a limit both streams keep their segments; with 90 MiB they cannot, so every turn emptied the cache.
    assert (found.survives, found.profile.end_reserved > 120 * MIB) == (True, True)


def observed(content):
    """What a plain reader, without any of memplan's, finds in a snapshot that memplan has accepted."""
    names = {
        "alloc",
        "free_requested",
        "free_completed",
        "segment_alloc",
        "segment_free",
        "segment_map",
        "segment_unmap",
    }
    segments = content if isinstance(content, list) else content["segments"]
    traces = [] if isinstance(content, list) else content.get("device_traces", [])
    events = [
        (e["action"], e["addr"], e["size"], e["stream"]) for t in traces for e in t if str(e.get("action")) in names
    ]
    blocks = [(b["size"], b["state"]) for segment in segments for b in segment["blocks"]]
    return events, sorted(blocks), sum(segment["total_size"] for segment in segments)


STATES = {"allocated": "active_allocated", "pending": "active_pending_free", "free": "inactive"}


def understood(snapshot):
    """The same as memplan tells it."""
    events = [event[:4] for device in snapshot.devices for event in device.events if event.action != "oom"]
    segments = [segment for device in snapshot.devices for segment in device.layout.segments]
    blocks = [(block.size, STATES[block.state]) for segment in segments for block in segment.blocks]
    return events, sorted(blocks), sum(segment.size for segment in segments)


def survives(folder, data):
    """Reads damaged bytes: refused with a reason, or understood as a plain reader does, and analysed to the end."""
    path = write(folder, data)
    try:
        found = load_snapshot(path)
    except UsageError as error:
        assert error.where == str(path)  # noqa: PT017 - either outcome is right, a crash is not
        return
    if b"awaiting" not in data and b"history" not in data:
        assert understood(found) == observed(pickle.loads(data))
    analyses = [analyse(device, recorded_policy(found.settings)) for device in found.devices]
    for shown in analyses:
        assert render("file", analyses, shown, width=80, top=3, quiet=False)
        derived("snapshot").validate(json.loads(render_json("file", analyses, shown, top=3)))


@st.composite
def damaged(draw, whole):
    """Bytes overwritten, cut out, put in or swapped, in a few places."""
    data = bytearray(whole)
    for _ in range(draw(st.sampled_from([1, 1, 1, 2, 4]))):
        position = draw(st.integers(0, len(data)))
        match draw(st.sampled_from([*["overwrite"] * 6, "insert", "delete", "cut", "copy"])):
            case "overwrite":
                # One byte, mostly: anything longer is seldom a snapshot still.
                patch = draw(st.binary(min_size=1, max_size=1) | st.binary(min_size=1, max_size=4))
                data[position : position + len(patch)] = patch
            case "insert":
                data[position:position] = draw(st.binary(min_size=1, max_size=4))
            case "delete":
                del data[position : position + draw(st.integers(1, 40))]
            case "cut":
                del data[position:]
            case "copy":
                other = draw(st.integers(0, len(data)))
                data[position:position] = data[other : other + draw(st.integers(1, 40))]
    return bytes(data)


small = {protocol: pickle.dumps(small_program(), protocol=protocol) for protocol in (0, 2, 4)}


@settings(suppress_health_check=list(HealthCheck))
@given(st.sampled_from(sorted(small)).flatmap(lambda protocol: damaged(small[protocol])))
def test_damaged_files_never_crash_and_never_lie(tmp_path, data):
    survives(tmp_path, data)


def dicts_in(value):
    """Every dict inside a content, itself included."""
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from dicts_in(inner)


anything = st.sampled_from(
    [None, True, -1, 0, 1, 512, MIB, 1 << 40, (1 << 56) - 1, 1 << 56, 0.5, "", "alloc", "inactive", [], {}, (0, 1)]
)


@settings(suppress_health_check=list(HealthCheck))
@given(st.data())
def test_fields_that_are_wrong_or_missing_never_crash_and_never_lie(tmp_path, data):
    content = small_program()
    for _ in range(data.draw(st.integers(1, 3))):
        fields = data.draw(st.sampled_from([found for found in dicts_in(content) if found]))
        name = data.draw(st.sampled_from(sorted(fields, key=str)))
        if data.draw(st.booleans()):
            del fields[name]
        else:
            fields[name] = data.draw(anything)
    survives(tmp_path, pickle.dumps(content, protocol=4))


@needs_data
@settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_damaged_real_files_never_crash_and_never_lie(tmp_path, data):
    path = data.draw(st.sampled_from([path for path in real_files if path.stat().st_size < 2_000_000]))
    survives(tmp_path, data.draw(damaged(path.read_bytes())))


atoms = st.none() | st.booleans() | st.integers(-(1 << 62), 1 << 62) | st.floats() | st.text()
plain = st.recursive(atoms, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=30)


@given(plain, st.integers(0, 5))
def test_plain_data_raises_no_objection(content, protocol):
    assert objection(pickle.dumps(content, protocol=protocol)) == ""


@pytest.mark.parametrize("value", [(1, (2,)), b"bytes", {1, 2}, frozenset(), 1 << 70, complex(1), range(3), len])
@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_what_no_snapshot_holds_is_objected_to(value, protocol):
    assert "byte" in objection(pickle.dumps({"a": value}, protocol=protocol))


def test_a_missing_file_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="there is no file"):
        load_snapshot(tmp_path / "none.pickle")


@pytest.mark.parametrize("padding", range(0, 40, 3))
def test_tuples_across_the_frames_of_a_pickle_raise_no_objection(padding):
    # The pickler begins a frame every 64 KiB, wherever that is; the padding moves the place through a tuple.
    content = ["x" * padding, *([{"segment_pool_id": (0, index)} for index in range(40_000)])]
    assert not objection(pickle.dumps(content, protocol=4))
