"""The options, against PyTorch's own parser where there is one to ask."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_oracle import power_of_two_steps

from memplan.errors import UsageError
from memplan.replay.conf import parse_conf
from memplan.replay.policy import AllocatorPolicy
from memplan.units import GIB, KIB, MIB

set_real = getattr(torch._C, "_accelerator_setAllocatorSettings", None)
asks_pytorch = pytest.mark.skipif(
    set_real is None or tuple(map(int, torch.__version__.split("+")[0].split(".")[:2])) < (2, 12),
    reason="this torch has no public parser of allocator options, or an older one",
)


@pytest.fixture
def real_parser():
    """PyTorch's parser from its defaults, and put back to them afterwards: it keeps what it was told."""
    defaults = "large_segment_size_mb:20,max_non_split_rounding_mb:20,expandable_segments:False"
    set_real(defaults)
    yield set_real
    set_real(defaults)


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
        "throw_on_cudamalloc_oom:True,roundup_power2_divisions:[2:1,8:4,>:16],pinned_num_register_threads:8"
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
    )


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
