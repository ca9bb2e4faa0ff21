"""Scratch of sorting, selecting and running sums, by hand from SortStable.cu, TensorTopK.cu, ScanUtils.cuh."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from memplan.tracing.cuda.release import VARIABLE
from memplan.tracing.scratch.cuda_cub import radix_sort_pairs_bytes, segmented_sort_pairs_bytes
from memplan.tracing.scratch.cuda_shapes import Layout
from memplan.tracing.scratch.cuda_sort import shares_rows, sort_scratch
from tests.tracing.scratch.calls import A100, allocated, meta, played, script

LONG, HALF = torch.int64, torch.float16


def test_one_long_row_is_sorted_with_a_range():
    x = meta(1, 8192)
    found = allocated(script("aten.sort.default", x, -1, out=(x, meta(1, 8192, dtype=LONG))))
    # Indices, and CUB's second copies of float keys and int64 values: four passes over three tiles of 3072.
    assert found[0] == 8192 * 8
    assert found[1] == 255 + 4 * 2048 + 3 * 1024 + 256 + 8192 * 4 + 8192 * 8


def test_some_long_rows_are_sorted_as_one():
    x = meta(100, 5000, dtype=HALF)
    count = 100 * 5000
    found = allocated(script("aten.sort.stable", x, stable=True, dim=1, out=(x, x)))
    assert found[:3] == [count * 8, count * 8, count * 2]
    assert found[3] == radix_sort_pairs_bytes(count, 16, key_bytes=2, value_bytes=8)
    # Seven bits of the row's number take one pass, which needs no second copy.
    assert found[4] < 1 << 20


def test_many_long_rows_are_sorted_by_segment():
    x = meta(256, 5000)
    found = allocated(script("aten.sort.default", x, -1, out=(x, x)))
    count = 256 * 5000
    assert found == [count * 8, segmented_sort_pairs_bytes(count, key_bytes=4, value_bytes=8)]


def test_sorting_along_an_outer_dimension_copies_the_tensor_and_both_results():
    x = meta(5000, 300)
    found = allocated(script("aten.sort.default", x, 0, out=(x, x)))
    count = 5000 * 300
    assert found[:3] == [count * 4, count * 4, count * 8]


@given(st.integers(1, 300), st.sampled_from([1, 100, 4096, 4097, 20_000]), st.sampled_from([HALF, torch.float32, LONG]))
def test_what_sorting_takes_it_gives_back(rows, length, dtype):
    lines = sort_scratch(Layout.dense((rows, length), dtype), 1, (9, 0), dense=True)
    held = set()
    for line in lines:
        assert (line.key in held) == (line.action == "free")
        held ^= {line.key}
    assert not held


@given(st.integers(1, 2**20), st.integers(1, 64))
def test_keys_alone_take_less_than_pairs(items, bits):
    keys = radix_sort_pairs_bytes(items, bits, value_bytes=0)
    assert keys <= radix_sort_pairs_bytes(items, bits)


def test_topk_over_a_vocabulary_counts_digits_in_blocks():
    # Four rows of 128,000 on 108 multiprocessors: 512,000 items over 108 x 6 x 256 threads are four each, so that 125
    # blocks share a row.
    scores, values = meta(4, 128_000), meta(4, 50)
    found = allocated(script("aten.topk.default", scores, 50, out=(values, meta(4, 50, dtype=LONG))))
    blocks = 4 * 125
    # Two sums by key over the 500 blocks: states of one tile and 32 more, and its keys, each aligned to 256 bytes.
    assert found == [16, 32, 32, blocks * 512, 4 * 1024, blocks * 4, blocks * 4, *2 * [255 + 768 + 256]]
    assert script("aten.topk.default", meta(32, 64), 2, out=(meta(32, 2), meta(32, 2, dtype=LONG))) is None


def test_topk_of_many_is_sorted_apart():
    values = meta(2, 6000)
    found = allocated(script("aten.topk.default", meta(2, 10_000), 6000, out=(values, values)))
    assert found[:2] == [2 * 6000 * 8, 2 * 6000 * 4]
    assert found[-1] == 2 * 6000 * 8
    assert allocated(script("aten.topk.default", meta(2, 10_000), 6000, -1, True, False, out=(values, values))) == []


@pytest.mark.parametrize(
    ("rows", "length", "shared"),
    [(20, 20_000, True), (21, 19_999, True), (20, 19_999, False), (200, 2_999, False), (4001, 400, True)],
)
def test_blocks_share_rows_as_topk_says(rows, length, shared):
    assert shares_rows(rows, length) is shared


def test_the_median_of_everything_sorts_a_copy():
    x = meta(100, 100)
    found = allocated(script("aten.median.default", x, out=meta()))
    assert found[:2] == [40_000, 80_000]
    assert found[2:] == allocated(script("aten.sort.default", meta(10_000), -1, out=(x, x)))


def test_running_sums_of_booleans_are_cast_first():
    mask, out = meta(8, 512, dtype=torch.bool), meta(8, 512, dtype=LONG)
    assert played(script("aten.cumsum.default", mask, -1, out=out)) == [("alloc", 8 * 512 * 8), ("free", 8 * 512 * 8)]
    assert script("aten.cumsum.default", out, -1, out=out) is None


@pytest.mark.parametrize(("release", "nested"), [("2.10.0+cu128", 0), ("2.11.0", 256), ("2.10.0+cu130", 256)])
def test_a_running_sum_over_one_row_takes_a_state_per_tile(release, nested, monkeypatch):
    monkeypatch.setenv(VARIABLE, release)
    found = script("aten.cumsum.default", meta(1_000_000), 0, out=meta(1_000_000))
    (states,) = found.after
    # 8 bytes for each of 521 tiles of 1920 and 32 more; CUB 3 aligns them twice.
    assert states.nbytes == 255 + 4608 + nested


def test_images_scattered_into_tokens_take_eight_bytes_per_element():
    # 4 x 1024 tokens of 4096: a mask of tokens is spread over the features, then summed up.
    tokens, mask = meta(4, 1024, 4096, dtype=HALF), meta(4, 1024, 1, dtype=torch.bool).expand(4, 1024, 4096)
    found = script("aten.masked_scatter.default", tokens, mask, meta(64, 4096, dtype=HALF), out=tokens)
    elements = 4 * 1024 * 4096
    assert allocated(found)[:2] == [elements * 8, elements]


def test_a_mask_as_index_is_turned_into_positions():
    table, mask = meta(64, 32, 16), meta(64, 32, dtype=torch.bool)
    found = script("aten.index.Tensor", table, [mask], out=meta(100, 16))
    keys = {line.key: line.nbytes for line in found.before if line.action == "alloc"}
    assert keys["positions"] == 100 * 2 * 8
    assert set(keys) == {"count", "sums", "selection", "positions"}
    picked = script("aten.masked_select.default", meta(64, 32), meta(32, dtype=torch.bool), out=meta(100))
    sizes = {line.key: line.nbytes for line in picked.before if line.action == "alloc"}
    assert sizes["dense mask"] == 64 * 32
    assert sizes["positions"] == 100 * 2 * 8


def test_values_put_by_a_mask_go_to_its_positions_and_one_value_fills():
    table, mask = meta(64, 32, 16), meta(64, 32, dtype=torch.bool)
    found = script("aten.index_put_.default", table, [mask], meta(100, 16), out=table)
    assert {line.key: line.nbytes for line in found.before}["positions"] == 100 * 2 * 8
    assert script("aten.index_put_.default", table, [mask], meta(), out=table) is None


def test_the_gradient_of_scattered_images_is_found_by_their_positions():
    tokens, mask = meta(4, 16, 32), meta(4, 16, 1, dtype=torch.bool).expand(4, 16, 32)
    found = script("aten.masked_scatter_backward.default", tokens, mask, [8, 32], out=meta(8, 32))
    sizes = {line.key: line.nbytes for line in found.before if line.action == "alloc"}
    assert sizes["positions"] == 8 * 32 * 3 * 8
    assert sizes["dense mask"] == 4 * 16 * 32


def test_draws_race_in_a_copy_of_the_probabilities():
    weights = meta(4, 32_000)
    one = allocated(script("aten.multinomial.default", weights, 1, out=meta(4, 1, dtype=LONG)))
    winner = allocated(script("aten.argmax.default", weights, -1, out=meta(4, dtype=LONG)))
    assert one == [4 * 32_000 * 4, *winner]
    many = allocated(script("aten.multinomial.default", weights, 2, True, out=meta(4, 2, dtype=LONG)))
    assert many == [4 * 32_000 * 4] * 3


def test_repeats_are_summed_up_before_the_result_is_known():
    found = script("aten.repeat_interleave.Tensor", meta(10, dtype=LONG), out=meta(50, dtype=LONG))
    assert found.before[0].nbytes == 80
    assert not found.after


def test_counting_and_comparing_make_masks():
    x = meta(64, 1000)
    counted = allocated(script("aten.count_nonzero.dim_IntList", x, [1], out=meta(64, dtype=LONG)))
    # A byte per element, and the sum's copy as integers.
    assert counted[:2] == [64_000, 64_000 * 8]
    assert allocated(script("aten.equal.default", x, x, out=True))[:2] == [64_000, 1]
    assert A100.sm_count == 108
