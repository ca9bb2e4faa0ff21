"""What a snapshot says: curves, owners, state, failures, other policies; hand-made cases, and laws for all."""

import itertools
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memplan.errors import UsageError
from memplan.replay.caching import CachingAllocator
from memplan.replay.conf import parse_conf
from memplan.replay.policy import AllocatorPolicy
from memplan.replay.records import Request
from memplan.replay.replay import replay
from memplan.report.places import name_of, source_of
from memplan.report.snapshot import digest as shapes
from memplan.report.snapshot import html as snapshot_page
from memplan.report.snapshot.digest import digest
from memplan.report.snapshot.text import headline
from memplan.snapshot.analysis import analyse
from memplan.snapshot.frames import BEFORE_RECORDING, CodePlace, PlaceKind, inner_place, place_of
from memplan.snapshot.history import replay_history
from memplan.snapshot.policy import recorded_policy
from memplan.snapshot.read import load_snapshot
from memplan.snapshot.records import Frame
from memplan.snapshot.state import OutOfMemoryCause, state_now
from memplan.snapshot.timeline import holdings, owners, stacks, timeline
from memplan.snapshot.what_if import what_if
from memplan.units import MIB, format_bytes
from tests.replay.replay_streams import requests
from tests.report.html.reader import Reader
from tests.snapshot.snapshot_files import (
    Recorder,
    event,
    expandable_snapshot_of,
    frame,
    needs_data,
    real_files,
    small_program,
    snapshot_of,
    write,
    written,
)

DEFAULT = AllocatorPolicy()
quick = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def loaded(folder, content):
    return load_snapshot(write(folder, content)).devices


def analysed(folder, content, *confs):
    found = load_snapshot(write(folder, content))
    return [analyse(device, recorded_policy(found.settings), confs) for device in found.devices]


def test_the_curves_of_a_small_program(tmp_path):
    (found,) = analysed(tmp_path, small_program())
    in_mib = [round(value / MIB) for value in found.curves.allocated]
    # 2 MiB from before; 6; then 6 MiB less 100 bytes, rounded; the failure changes nothing; 6 freed; 4 allocated.
    assert in_mib == [2, 2, 8, 14, 14, 14, 8, 12]
    assert [round(value / MIB) for value in found.curves.reserved] == [2, 22, 22, 22, 22, 22, 22, 22]
    assert (found.peak.event, found.peak.allocated, found.peak.requested) == (3, 14 * MIB, 14 * MIB - 100 - 512)
    assert (found.peak.seconds, found.seconds) == (0.0005, 0.5001)
    assert found.slack == pytest.approx(1 - 14 / 22)


def test_the_owners_of_a_small_program(tmp_path):
    (found,) = analysed(tmp_path, small_program())
    assert [(owner.place, owner.size, owner.count) for owner in found.owners] == [
        (CodePlace(PlaceKind.USER, "/home/me/project/net.py", 12, "forward"), 12 * MIB, 2),
        (CodePlace(PlaceKind.BEFORE, "", 0, ""), 2 * MIB, 1),
    ]
    assert [(owner.place.name, owner.size) for owner in found.alive] == [
        ("forward", 6 * MIB), ("MmBackward0", 4 * MIB), ("", 2 * MIB),
    ]  # fmt: skip
    assert found.stacks[0].stack[-1] == ("/home/me/train.py", 40, "main")


@pytest.mark.parametrize(
    ("device_free", "cause"),
    [
        (3, OutOfMemoryCause.FULL),
        (22, OutOfMemoryCause.FRAGMENTATION),  # 22 + the 8 that are cached are 30
        (21, OutOfMemoryCause.FULL),
        (30, OutOfMemoryCause.LIMIT),
    ],
)
def test_why_a_request_failed(tmp_path, device_free, cause):
    content = small_program()
    content["device_traces"][0][3]["device_free"] = device_free * MIB
    (found,) = analysed(tmp_path, content)
    (failure,) = found.failures
    assert (failure.cause, failure.asked, failure.reserved, failure.allocated) == (cause, 30 * MIB, 22 * MIB, 14 * MIB)
    assert failure.place.name == "forward"


def test_another_policy_may_serve_what_failed(tmp_path):
    """2 MiB sit in a segment of 100 MiB, so that it serves no 100 MiB; an expandable one would only grow by a unit."""
    stream = [Request("alloc", 0, 100 * MIB, 0), Request("free", 0, 0, 0), Request("alloc", 1, 2 * MIB, 0)]
    content = snapshot_of(stream, recorded_from=0)
    content["device_traces"][0].append({"action": "oom", "device_free": 50 * MIB, "size": 100 * MIB, "stream": 0})
    (found,) = analysed(tmp_path, content)
    assert found.failures[0].cause is OutOfMemoryCause.FRAGMENTATION
    assert found.baseline.survives is False
    assert {tried.conf: tried.survives for tried in found.what_ifs}["expandable_segments:True"] is True


@quick
@given(requests(max_events=50))
def test_curves_are_the_allocators_own_totals(tmp_path, stream):
    watched = []
    content = snapshot_of(stream, watch=lambda a: watched.append((a.allocated, a.requested, a.reserved)))
    for device in loaded(tmp_path, content):
        curves = timeline(device, DEFAULT, replay_history(device))
        # An allocation and a free are several events, of which only the last changes what is allocated.
        last = [0] + [i for i, e in enumerate(device.events, 1) if e.action in {"alloc", "free_completed"}]
        found = [(curves.allocated[i], curves.requested[i], curves.reserved[i]) for i in last]
        assert found == watched


@quick
@given(requests(max_events=40), st.sets(st.integers(0, 40), max_size=3))
def test_every_curve_ends_in_the_snapshots_state(tmp_path, stream, flushes):
    for content in (snapshot_of(stream), expandable_snapshot_of(stream, flushes)):
        for found in analysed(tmp_path, content):
            now = found.now
            end = (found.curves.allocated[-1], found.curves.requested[-1], found.curves.reserved[-1])
            assert end == (now.allocated, now.requested, now.reserved)
            assert now.reserved == now.allocated + now.releasable + now.stuck


@quick
@given(requests(max_events=40), st.integers(0, 80))
def test_owners_hold_all_that_is_allocated_at_any_moment(tmp_path, stream, index):
    for device in loaded(tmp_path, snapshot_of(stream)):
        curves = timeline(device, DEFAULT)
        index = min(index, len(device.events))
        held = holdings(device, DEFAULT, None, index)
        for grouped in (owners(held), stacks(held)):
            assert sum(owner.size for owner in grouped) == curves.allocated[index]
            assert sum(owner.count for owner in grouped) == len(held)
            assert all(left.size >= right.size for left, right in itertools.pairwise(grouped))


@quick
@given(requests(max_events=40))
def test_what_is_releasable_is_what_emptying_the_cache_gives_back(tmp_path, stream):
    for device in loaded(tmp_path, snapshot_of(stream)):
        allocator = CachingAllocator(DEFAULT)
        for segment in device.layout.segments:
            allocator.adopt(segment)
        allocator.empty_cache()
        assert device.layout.reserved - allocator.reserved == state_now(device, DEFAULT).releasable


@quick
@given(requests(max_events=40))
def test_what_is_releasable_of_expandable_segments(tmp_path, stream):
    allocator, live = Recorder(AllocatorPolicy(expandable_segments=True)), {}
    for request in stream:
        if request.action == "alloc":
            live[request.key] = allocator.allocate(request.nbytes, request.stream)
        else:
            allocator.free(live.pop(request.key))
    segments = [{**written(segment), "is_expandable": True} for segment in allocator.layout().segments]
    for device in loaded(tmp_path, {"segments": segments, "device_traces": []}):
        before = allocator.reserved
        allocator.empty_cache()
        assert before - allocator.reserved == state_now(device, DEFAULT).releasable


@quick
@given(requests(max_events=40), st.sampled_from(["", "expandable_segments:True", "roundup_power2_divisions:4"]))
def test_a_whole_history_under_another_policy_is_the_stream_replayed(tmp_path, stream, conf):
    policy = parse_conf(conf)
    for device in loaded(tmp_path, snapshot_of(stream, recorded_from=0)):
        assert what_if(device, policy, conf).profile == replay(stream, policy=policy)


@quick
@given(requests(max_events=40))
def test_private_pools_stay_apart_in_a_what_if(tmp_path, stream):
    own = lambda key: int(key % 3 == 1)  # noqa: E731 - as short as it is said
    opened = {
        "alloc": lambda r: [Request("pool_begin", 1, 0, 0), r, Request("pool_end", 1, 0, 0)] if own(r.key) else [r]
    }
    wanted = [line for r in stream for line in opened.get(r.action, lambda r: [r])(r)]
    for device in loaded(tmp_path, snapshot_of(stream, recorded_from=0, pools=own)):
        assert what_if(device, DEFAULT, "").profile.peak_reserved == replay(wanted, policy=DEFAULT).peak_reserved


@quick
@given(requests(max_events=40), st.sampled_from(["", "expandable_segments:True", "max_split_size_mb:25"]))
def test_what_is_asked_for_depends_on_no_policy(tmp_path, stream, conf):
    for device in loaded(tmp_path, snapshot_of(stream)):
        profile = what_if(device, parse_conf(conf), conf).profile
        assert profile.peak_requested == max(timeline(device, DEFAULT).requested)
        assert profile.peak_reserved >= profile.peak_allocated >= profile.peak_requested


def test_streams_stay_apart_in_a_what_if(tmp_path):
    """A block of stream 1 from before the history is no use to stream 0."""
    stream = [Request("alloc", 0, 15 * MIB, 1), Request("free", 0, 0, 0), Request("alloc", 1, 15 * MIB, 0)]
    (device,) = loaded(tmp_path, snapshot_of(stream, recorded_from=1))
    assert what_if(device, DEFAULT, "").profile.peak_reserved == 32 * MIB


@needs_data
@pytest.mark.parametrize("path", real_files, ids=lambda path: path.stem)
def test_real_files_are_analysed_to_the_byte(path):
    found = load_snapshot(path)
    for device in found.devices:
        analysis = analyse(device, recorded_policy(found.settings))
        layout = device.layout
        end = (analysis.curves.allocated[-1], analysis.curves.requested[-1], analysis.curves.reserved[-1])
        assert end == (layout.allocated, layout.requested, layout.reserved)
        assert analysis.peak.allocated == analysis.replay.peak_allocated
        assert analysis.reserved_peak.reserved == analysis.replay.recorded_peak_reserved
        assert sum(owner.size for owner in analysis.owners) == analysis.peak.allocated
        assert not analysis.not_compared


NATIVE = Frame("??", 0, "c10::cuda::CUDACachingAllocator::malloc()")
PACKAGE = Frame("C:\\env\\Lib\\site-packages\\peft\\tuners\\lora\\layer.py", 9, "forward")
TORCH = Frame("/opt/pytorch/torch/nn/functional.py", 7, "linear")
MINE = Frame("/home/me/net.py", 3, "forward")
CELL = Frame("/tmp/ipykernel_114/3105878423.py", 21, "<module>")
STANDARD = Frame("/usr/lib/python3.12/threading.py", 5, "run")
BACKWARD = Frame("", 0, "torch::autograd::generated::MmBackward0::apply(std::vector<at::Tensor>&&)")
OP = Frame("??", 0, "at::_ops::sum_dim_IntList::call(at::Tensor const&)")
GRAPH_PHASE = Frame("phase", 0, "backward")
GRADIENT = Frame("??", 0, "torch::autograd::AccumulateGrad::apply(std::vector<at::Tensor>&&)")


@pytest.mark.parametrize(
    ("stack", "place"),
    [
        ([NATIVE, TORCH, MINE, CELL], (PlaceKind.USER, *MINE)),
        ([NATIVE, PACKAGE, CELL, STANDARD], (PlaceKind.USER, *CELL)),
        ([NATIVE, OP, TORCH, PACKAGE, STANDARD], (PlaceKind.LIBRARY, *TORCH)),
        ([NATIVE, OP, BACKWARD], (PlaceKind.BACKWARD, "", 0, "MmBackward0")),
        ([NATIVE, OP, GRADIENT], (PlaceKind.BACKWARD, "", 0, "AccumulateGrad")),
        ([NATIVE, OP], (PlaceKind.OP, "", 0, "sum_dim_IntList")),
        ([Frame("op", 0, "aten.mm.default"), GRAPH_PHASE], (PlaceKind.TRACED, "", 0, "aten.mm.default")),
        ([NATIVE], (PlaceKind.UNKNOWN, "", 0, "")),
        ([], (PlaceKind.UNKNOWN, "", 0, "")),
        (BEFORE_RECORDING, (PlaceKind.BEFORE, "", 0, "")),
    ],
)
def test_the_place_that_a_user_would_name(stack, place):
    assert place_of(tuple(stack)) == place


def test_the_library_line_between_a_user_and_the_memory():
    assert inner_place((NATIVE, TORCH, PACKAGE, CELL)) == (PlaceKind.LIBRARY, *PACKAGE)
    assert inner_place((NATIVE, TORCH, MINE)) is None
    assert inner_place((NATIVE, TORCH, PACKAGE)) is None


def test_options_come_from_the_file():
    written_settings = {
        "PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:128,large_segment_size_mb:32,garbage_collection_threshold:0.8",
        "max_split_size": 128 * MIB,
        "garbage_collection_threshold": 0.8,
        "expandable_segments": True,
        "roundup_power2_divisions": {str(1 << power): 8 if power > 3 else 0 for power in range(16)},
    }
    found = recorded_policy(written_settings)
    assert (found.source, found.problem) == ("snapshot", "")
    assert found.policy.large_segment_size == 32 * MIB
    assert (found.policy.max_split_size, found.policy.expandable_segments) == (128 * MIB, True)
    assert found.policy.roundup_power2_divisions == (0,) * 4 + (8,) * 12
    assert recorded_policy(written_settings, "expandable_segments:False").policy == AllocatorPolicy()


@pytest.mark.parametrize(
    "content",
    [
        {"max_split_size": -1, "roundup_power2_divisions": {"1": 3}},
        {"max_split_size": "x", "garbage_collection_threshold": float("nan"), "expandable_segments": 7},
        {"PYTORCH_CUDA_ALLOC_CONF": 5, "roundup_power2_divisions": []},
        {},
    ],
)
def test_settings_that_say_nothing_are_the_defaults(content):
    assert recorded_policy(content).policy == AllocatorPolicy()


def test_an_option_that_only_another_torch_knows_is_told():
    found = recorded_policy({"PYTORCH_CUDA_ALLOC_CONF": "roundup_bypass_threshold_mb:64", "max_split_size": 64 * MIB})
    assert ("roundup_bypass_threshold_mb" in found.problem, found.policy.max_split_size) == (True, 64 * MIB)


@pytest.mark.parametrize(
    ("conf", "split"),
    [
        ("", 0),
        ("", 20 * MIB - 1),
        ("", 20 * MIB + 512),
        ("large_segment_size_mb:40,max_split_size_mb:50", 39 * MIB),
        ("roundup_bypass_threshold_mb:64", 19 * MIB),
    ],
)
def test_a_split_size_that_pytorch_refuses_is_told_and_not_used(conf, split):
    found = recorded_policy({"PYTORCH_CUDA_ALLOC_CONF": conf, "max_split_size": split})
    assert f"max_split_size is {split} bytes" in found.problem
    assert ("roundup_bypass" in conf) == ("roundup_bypass" in found.problem)
    assert found.policy.max_split_size == (50 * MIB if "50" in conf else None)


def test_the_smallest_split_size_is_used():
    found = recorded_policy({"PYTORCH_CUDA_ALLOC_CONF": "large_segment_size_mb:12", "max_split_size": 12 * MIB})
    assert (found.policy.max_split_size, found.problem) == (12 * MIB, "")


def test_a_split_size_below_a_segment_is_no_crash_but_a_note(tmp_path):
    """Below 20 MiB the rest of a shared segment would count as a segment of its own, which a full device releases."""
    content = small_program()
    content["allocator_settings"]["max_split_size"] = 0xFFFFFF
    found = load_snapshot(write(tmp_path, content))
    analysis = analyse(found.devices[0], recorded_policy(found.settings))
    assert any("max_split_size is 16777215 bytes" in note for note in analysis.notes)
    sound = analyse(found.devices[0], recorded_policy({**found.settings, "max_split_size": -1}))
    assert (analysis.what_ifs, analysis.baseline) == (sound.what_ifs, sound.baseline)
    assert analysis.what_ifs
    assert analysis.baseline.survives is not None


def test_a_wrong_conf_is_a_usage_error():
    with pytest.raises(UsageError, match="not an option"):
        recorded_policy({}, "no_such_option:1")


def test_frames_of_a_library_in_between_are_parts(tmp_path):
    library = frame("/env/lib/python3.12/site-packages/transformers/llama.py", 216, "forward")
    other = frame("/env/lib/python3.12/site-packages/peft/lora.py", 9, "forward")
    mine = frame("/home/me/train.py", 4, "main")
    content = small_program()
    for index, inner in ((1, library), (2, other)):
        content["device_traces"][0][index]["frames"] = [inner, mine]
    (found,) = analysed(tmp_path, content)
    (owner, _) = found.owners
    assert (owner.place.file, owner.size) == ("/home/me/train.py", 12 * MIB)
    assert [(part.place.line, part.size) for part in owner.parts] == [(216, 6 * MIB), (9, 6 * MIB)]


def test_a_file_that_contradicts_itself_is_analysed_and_says_so(tmp_path):
    content = small_program()
    content["segments"][0]["active_size"] += 512
    content["device_traces"][0].append(event("free_completed", 512, 512))
    (found,) = analysed(tmp_path, content)
    assert found.notes[0] == f"the file contradicts itself: allocated is {12 * MIB + 512}, its parts sum to {12 * MIB}"
    assert found.replay.first_mismatch.startswith("event 7: free of 512")


@quick
@given(requests(max_events=40), st.data())
def test_a_history_with_a_lost_line_is_analysed_all_the_same(tmp_path, stream, data):
    content = snapshot_of(stream)
    trace = content["device_traces"][0]
    if trace:
        del trace[data.draw(st.integers(0, len(trace) - 1))]
    for found in analysed(tmp_path, content, "expandable_segments:True"):
        assert found.replay is not None or "contradicts" in found.not_compared
        assert found.curves.reserved[-1] == found.now.reserved


def test_a_process_without_the_expandable_segments_that_it_asked_for(tmp_path):
    """As on Windows: the segments that there are say how the recorded policy is replayed."""
    content = snapshot_of([Request("alloc", 0, 100 * MIB, 0), Request("alloc", 1, 3 * MIB, 0)], recorded_from=0)
    content["allocator_settings"] = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "expandable_segments": True}
    (found,) = analysed(tmp_path, content, "expandable_segments:True")
    assert "expandable segments were asked for, but there are none in this snapshot" in found.notes
    assert found.replay.exact
    assert (found.baseline.profile.peak_reserved, found.what_ifs[0].profile.peak_reserved) == (120 * MIB, 120 * MIB)
    assert found.baseline.profile.segments == 2


def test_an_old_file_with_expandable_segments_but_without_settings(tmp_path):
    stream = [Request("alloc", 0, 100 * MIB, 0), Request("free", 0, 0, 0), Request("alloc", 1, 2 * MIB, 0)]
    (found,) = analysed(tmp_path, expandable_snapshot_of(stream), "")
    assert (found.replay.exact, found.notes[0][:13]) == (True, "no call stack")
    assert (found.policy.policy.expandable_segments, found.policy.source) == (True, "default")


def shown_by_place(folder, content):
    pairs = zip(loaded(folder, content), analysed(folder, content), strict=True)
    return [(analysis, digest(device, analysis)) for device, analysis in pairs]


@quick
@given(requests(), st.integers(1, 30))
def test_places_hold_all_that_is_allocated_and_the_map_all_that_is_reserved(tmp_path, stream, samples):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shapes, "SAMPLES", samples)
        shown = shown_by_place(tmp_path, snapshot_of(stream))
    for analysis, found in shown:
        curve, segments = found.history.curve, found.history.segments
        assert [sum(held) for held in zip(*curve.categories.values(), strict=True)] == list(curve.allocated)
        assert max(curve.allocated) == analysis.peak.allocated
        assert max(curve.reserved) == analysis.reserved_peak.reserved
        assert sum(segment.nbytes for segment in segments) == analysis.now.reserved
        live = sum(block.nbytes for segment in segments for block in segment.blocks if block.holder >= 0)
        assert live == analysis.now.allocated


def test_places_are_called_by_their_lines(tmp_path):
    ((analysis, found),) = shown_by_place(tmp_path, small_program())
    owners = {f"{source_of(owner.place)} {name_of(owner.place)}".strip() for owner in analysis.owners}
    assert owners <= set(found.labels.values())
    index = found.history.curve.events.index(analysis.peak.event)
    at_peak = {found.labels[name]: held[index] for name, held in found.history.curve.categories.items() if held[index]}
    assert sorted(at_peak.values()) == sorted(owner.size for owner in analysis.owners)


def test_the_page_tells_what_the_text_tells(tmp_path):
    (device,) = loaded(tmp_path, small_program())
    (analysis,) = analysed(tmp_path, small_program())
    page = Reader(snapshot_page.render("x.pickle", device, [analysis], analysis, top=8))
    document = json.loads(page.report)
    assert document["peak"]["allocated_bytes"] == analysis.peak.allocated
    assert headline(analysis).plain in page.words
    for owner in analysis.owners:
        assert format_bytes(owner.size) in page.words


@needs_data
@pytest.mark.parametrize("path", real_files, ids=lambda path: path.stem)
def test_pages_of_real_snapshots(path):
    found = load_snapshot(path)
    for device in found.devices:
        analysis = analyse(device, recorded_policy(found.settings), ())
        page = snapshot_page.render(path.name, device, [analysis], analysis, top=8)
        assert Reader(page).words.count("memplan snapshot") == 1
        assert len(page) < 400_000
