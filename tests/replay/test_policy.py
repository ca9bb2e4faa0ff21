"""The options, against PyTorch's own parser where there is one to ask."""

import math

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memplan.errors import UsageError
from memplan.replay.conf import not_modelled, parse_conf
from memplan.replay.policy import AllocatorPolicy, PinnedPolicy
from memplan.units import GIB, KIB, MIB
from tests.replay.replay_oracle import power_of_two_steps

set_real = getattr(torch._C, "_accelerator_setAllocatorSettings", None)
asks_pytorch = pytest.mark.skipif(
    set_real is None or tuple(map(int, torch.__version__.split("+")[0].split(".")[:2])) < (2, 12),
    reason="this torch has no public parser of allocator options, or an older one",
)


DEFAULTS = "large_segment_size_mb:20,max_non_split_rounding_mb:20,expandable_segments:False"


@pytest.fixture
def real_parser():
    """PyTorch's parser from its defaults, and put back to them afterwards: it keeps what it was told."""
    set_real(DEFAULTS)
    yield set_real
    set_real(DEFAULTS)


@asks_pytorch
@pytest.mark.parametrize(
    "text",
    [
        "",
        "max_split_size_mb:19",
        "max_split_size_mb:20",
        "max_split_size_mb:512",
        "max_split_size_mb:0",
        "max_split_size_mb:many",
        "max_non_split_rounding_mb:19",
        "max_non_split_rounding_mb:20",
        "garbage_collection_threshold:0.8",
        "garbage_collection_threshold:0",
        "garbage_collection_threshold:1.0",
        "expandable_segments:True",
        "expandable_segments:true",
        "expandable_segments:1",
        "large_segment_size_mb:10",
        "large_segment_size_mb:11",
        "large_segment_size_mb:40,max_split_size_mb:30",
        "large_segment_size_mb:40,max_split_size_mb:40",
        "max_split_size_mb:30,large_segment_size_mb:40",
        "max_split_size_mb:12,large_segment_size_mb:12",
        "max_non_split_rounding_mb:12,max_split_size_mb:12,large_segment_size_mb:12",
        "max_split_size_mb:64,max_split_size_mb:32",
        "max_split_size_mb:64,",
        "max_split_size_mb:64,,",
        "garbage_collection_threshold:8e-1",
        "garbage_collection_threshold:nan",
        "pinned_max_round_threshold_mb:0",
        "pinned_max_cached_size_mb:16",
        "pinned_use_background_threads:yes",
        "roundup_power2_divisions:[]",
        "roundup_power2_divisions:[256:2,]",
        "roundup_power2_divisions:[65536:2]",
        "roundup_power2_divisions:[0:2]",
        "roundup_power2_divisions:[256:2:3]",
        "roundup_power2_divisions:8",
        "roundup_power2_divisions:1",
        "roundup_power2_divisions:0",
        "roundup_power2_divisions:3",
        "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]",
        "roundup_power2_divisions:[256:0,512:2]",
        "roundup_power2_divisions:[256:3]",
        "roundup_power2_divisions:[300:2]",
        "roundup_power2_divisions:[>:4]",
        "roundup_power2_divisions:[256:1 512:2]",
        "roundup_power2_divisions:[256:1,512:2",
        " expandable_segments : True , max_split_size_mb : 64 ",
        "max_split_size_mb:",
        "max_split_size_mb",
        "max_split_size_mb=20",
        "pinned_use_background_threads:True",
    ],
)
def test_accepts_exactly_what_pytorch_accepts(text, real_parser):
    try:
        real_parser(text)
    except (ValueError, RuntimeError):
        with pytest.raises(UsageError) as caught:
            parse_conf(text)
        assert caught.value.where.split("'")[1] in text
    else:
        assert isinstance(parse_conf(text), AllocatorPolicy)


def test_every_option_arrives():
    policy = parse_conf(
        "backend:native,large_segment_size_mb:32,max_split_size_mb:64,max_non_split_rounding_mb:48,"
        "garbage_collection_threshold:0.6,per_process_memory_fraction:0.9,expandable_segments:True,"
        "throw_on_cudamalloc_oom:True,roundup_power2_divisions:[2:1,8:4,>:16],pinned_num_register_threads:8,"
        "pinned_max_round_threshold_mb:3,pinned_max_cached_size_mb:4,pinned_reserve_segment_size_mb:5"
    )
    assert policy == AllocatorPolicy(
        large_segment_size=32 * MIB,
        max_split_size=64 * MIB,
        max_non_split_rounding=48 * MIB,
        garbage_collection_threshold=0.6,
        per_process_memory_fraction=0.9,
        expandable_segments=True,
        throw_on_cudamalloc_oom=True,
        # 2 MiB also speaks for below; 4 MiB is not mentioned and stays off; from 16 MiB on the rest.
        roundup_power2_divisions=(1, 1, 0, 4) + (16,) * 12,
        pinned=PinnedPolicy(max_round_threshold=3 * MIB, max_cached_size=4 * MIB, reserve_segment_size=5 * MIB),
    )


# Keys: c10/cuda/CUDAAllocatorConfig.h and the parsers of c10/core/AllocatorConfig.h, torch 2.13.0.
MODELLED = [
    "expandable_segments:True",
    "garbage_collection_threshold:0.5",
    "large_segment_size_mb:21",
    "max_non_split_rounding_mb:21",
    "max_split_size_mb:20",
    "per_process_memory_fraction:0.5",
    "pinned_max_cached_size_mb:1",
    "pinned_max_round_threshold_mb:1",
    "pinned_reserve_segment_size_mb:8",
    "roundup_power2_divisions:2",
    "throw_on_cudamalloc_oom:True",
]
NAMED = ["graph_capture_record_stream_reuse:True", "pinned_use_background_threads:True"]
WITHOUT_INFLUENCE = [
    "backend:native",
    "pinned_free_catch_all:True",
    "pinned_num_register_threads:8",
    "pinned_use_cuda_host_register:True",
    "pinned_use_hip_host_register:True",
    "release_lock_on_cudamalloc:True",
    "release_lock_on_hipmalloc:True",
]


@pytest.mark.parametrize("text", [*MODELLED, *NAMED, *WITHOUT_INFLUENCE])
def test_every_option_is_modelled_or_named_or_without_influence(text):
    assert (parse_conf(text) != AllocatorPolicy()) == (text in MODELLED)
    assert [line.partition(":")[0] for line in not_modelled(text)] == (
        [text.partition(":")[0]] if text in NAMED else []
    )


def test_options_that_are_off_are_not_named():
    assert not_modelled("graph_capture_record_stream_reuse:False,expandable_segments:True") == ()
    assert not_modelled("graph_capture_record_stream_reuse:True")[0].startswith("graph_capture_record_stream_reuse")


def test_all_problems_are_told_at_once():
    with pytest.raises(UsageError) as caught:
        parse_conf("max_split:3,backend:cudaMallocAsync,max_split_size_mb:30,large_segment_size_mb:40,nonsense:1")
    assert caught.value.where == "allocator options 'max_split', 'backend', 'nonsense', 'max_split_size_mb'"
    for part in ("'max_split' is not", "backend must be native", "'nonsense'", "at least large_segment_size_mb, 40"):
        assert part in caught.value.what


mebibytes = st.integers(20, 5000).map(lambda mib: mib * MIB)
divisions = st.one_of(
    st.tuples(*[st.sampled_from([0, 1, 2, 8])] * 16),
    # Stretches of equal entries, as people write them.
    st.lists(st.tuples(st.sampled_from([0, 1, 4]), st.integers(1, 16)), min_size=16, max_size=16).map(
        lambda runs: tuple(value for value, length in runs for _ in range(length))[:16]
    ),
)
expressible = st.builds(
    AllocatorPolicy,
    roundup_power2_divisions=divisions,
    max_split_size=st.none() | mebibytes,
    max_non_split_rounding=mebibytes,
    garbage_collection_threshold=st.just(0.0) | st.floats(0, 1, exclude_min=True, exclude_max=True),
    expandable_segments=st.booleans(),
    large_segment_size=st.sampled_from([11 * MIB, 20 * MIB]),
    per_process_memory_fraction=st.floats(0, 1),
    throw_on_cudamalloc_oom=st.booleans(),
    pinned=st.builds(
        PinnedPolicy,
        max_round_threshold=st.none() | mebibytes,
        max_cached_size=st.none() | st.just(0),
        reserve_segment_size=st.just(0) | mebibytes,
    ),
)


def options_of(policy: AllocatorPolicy) -> str:
    """Every option, one by one, as somebody would type it who knows no default."""
    pinned = policy.pinned
    entries = (f"{1 << index}:{parts}" for index, parts in enumerate(policy.roundup_power2_divisions))
    values = {
        "roundup_power2_divisions": f"[{','.join(entries)}]",
        "max_split_size_mb": policy.max_split_size and policy.max_split_size // MIB,
        "max_non_split_rounding_mb": policy.max_non_split_rounding // MIB,
        "garbage_collection_threshold": policy.garbage_collection_threshold or None,
        "expandable_segments": policy.expandable_segments,
        "large_segment_size_mb": policy.large_segment_size // MIB,
        "per_process_memory_fraction": policy.per_process_memory_fraction,
        "throw_on_cudamalloc_oom": policy.throw_on_cudamalloc_oom,
        "pinned_max_round_threshold_mb": pinned.max_round_threshold and pinned.max_round_threshold // MIB,
        "pinned_max_cached_size_mb": pinned.max_cached_size,
        "pinned_reserve_segment_size_mb": pinned.reserve_segment_size // MIB or None,
    }
    return ",".join(f"{key}:{value}" for key, value in values.items() if value is not None)


@settings(deadline=None)
@given(expressible)
def test_options_are_read_as_the_policy_that_they_say(policy):
    assert parse_conf(options_of(policy)) == policy


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ((4,) * 16, "4"),
        ((0,) + (4,) * 15, "[>:4]"),
        ((0, 0) + (4,) * 14, "[2:0,>:4]"),
        ((2,) * 9 + (0,) * 7, "[256:2]"),
        ((1,) * 9 + (2, 4) + (8,) * 5, "[256:1,512:2,1024:4,>:8]"),
        ((0,) * 15 + (8,), "[16384:0,>:8]"),
        ((1, 0, 2) + (0,) * 13, "[1:1,4:2]"),
    ],
)
def test_divisions_may_be_written_briefly(table, text):
    assert parse_conf(f"roundup_power2_divisions:{text}") == AllocatorPolicy(roundup_power2_divisions=table)


def test_no_options_are_the_defaults():
    assert parse_conf("") == AllocatorPolicy()


key_values = st.one_of(
    st.tuples(
        st.sampled_from(["max_split_size_mb", "max_non_split_rounding_mb", "large_segment_size_mb"]),
        st.sampled_from(["9", "10", "11", "20", "21", "40", "", "x"]),
    ),
    st.tuples(st.just("garbage_collection_threshold"), st.sampled_from(["0", "0.1", ".9", "1", "1.0", "2", "0.5e0"])),
    st.tuples(
        st.sampled_from(["expandable_segments", "pinned_use_background_threads"]), st.sampled_from(["True", "1"])
    ),
    st.tuples(
        st.just("roundup_power2_divisions"),
        st.lists(
            st.tuples(st.sampled_from(["1", "256", "512", "70000", "300", ">"]), st.sampled_from(["0", "1", "4", "6"]))
        ).map(lambda pairs: f"[{','.join(':'.join(pair) for pair in pairs)}]"),
    ),
)


@asks_pytorch
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(key_values, max_size=4))
def test_any_options_are_accepted_exactly_where_pytorch_accepts_them(real_parser, items):
    real_parser(DEFAULTS)
    text = ",".join(":".join(item) for item in items)
    try:
        real_parser(text)
    except (ValueError, RuntimeError):
        with pytest.raises(UsageError):
            parse_conf(text)
    else:
        parse_conf(text)


def test_the_rest_of_the_divisions_spares_the_first_interval():
    """``parseRoundUpPower2Divisions`` fills from the entry after the last one named, and counts from the first."""
    assert parse_conf("roundup_power2_divisions:[>:4]").roundup_power2_divisions == (0,) + (4,) * 15


@pytest.mark.parametrize(
    ("text", "key", "hint"),
    [
        ("max_split_size:20", "max_split_size", "did you mean max_split_size_mb?"),
        ("nonsense:1", "nonsense", "options with an effect here"),
        ("backend:cudaMallocAsync", "backend", None),
        ("per_process_memory_fraction:1.5", "per_process_memory_fraction", None),
        ("pinned_num_register_threads", "pinned_num_register_threads", None),
    ],
)
def test_errors_name_the_key(text, key, hint):
    with pytest.raises(UsageError) as caught:
        parse_conf(text)
    assert caught.value.where == f"allocator option '{key}'"
    assert (hint or "") in (caught.value.hint or "")


@settings(deadline=None)
@given(st.integers(1, 64 * GIB), st.sampled_from([0, 1, 2, 4, 8, 16]))
def test_rounding_is_the_next_allowed_size(nbytes, divisions):
    size = AllocatorPolicy(roundup_power2_divisions=(divisions,) * 16).round_size(nbytes)
    if divisions > 1 and nbytes > 512 * divisions:
        assert size == power_of_two_steps(nbytes, divisions)
    else:
        assert size == 512 * math.ceil(nbytes / 512)


@pytest.mark.parametrize(
    ("nbytes", "interval"),
    [(700 * KIB, 0), (MIB + 1, 0), (2 * MIB + 1, 1), (3 * MIB, 1), (5 * GIB, 12), (33 * GIB, 15), (900 * GIB, 15)],
)
def test_divisions_go_by_the_power_of_two_below(nbytes, interval):
    table = [0] * 16
    table[interval] = 2
    assert AllocatorPolicy(roundup_power2_divisions=tuple(table)).round_size(nbytes) == power_of_two_steps(nbytes, 2)
    table[interval] = 0
    assert AllocatorPolicy(roundup_power2_divisions=tuple(table)).round_size(nbytes) == 512 * math.ceil(nbytes / 512)


@pytest.mark.parametrize(
    ("size", "segment"),
    [
        (512, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 512, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (10 * MIB + 512, 12 * MIB),
        (33 * MIB, 34 * MIB),
    ],
)
def test_segment_sizes(size, segment):
    assert AllocatorPolicy().segment_size(size) == segment
