"""Predicted scratch against what an H100 and an H200 allocated with torch 2.11.0+cu130, on 2026-11-23 and -27."""

import pytest
import torch

from memplan.tracing.cuda.release import VARIABLE
from tests.tracing.scratch.calls import H100, allocated, meta, played, script

BF16, LONG = torch.bfloat16, torch.int64


@pytest.fixture(autouse=True)
def torch_of_the_run(monkeypatch):
    monkeypatch.setenv(VARIABLE, "2.11.0+cu130")


def product(name, *args, **kwargs):
    return script(name, *args, device=H100, **kwargs)


def test_the_first_product_with_a_bias_keeps_a_mebibyte_for_lt_beside_the_work_space_of_cublas():
    found = product("aten.addmm.default", meta(4), meta(8, 8), meta(8, 4), out=meta(8, 4))
    assert [(line.action, line.nbytes) for line in found.after] == [("keep", 33_554_432), ("keep", 1_048_576)]
    again = product("aten.addmm.default", meta(4), meta(8, 8), meta(8, 4), out=meta(8, 4), in_backward=True)
    assert {line.key for line in found.after}.isdisjoint(line.key for line in again.after)


@pytest.mark.parametrize(
    "args",
    [
        (meta(8, 4), meta(8, 8), meta(8, 4)),
        (meta(4), meta(8, 1), meta(1, 4)),
        (meta(1), meta(8, 8), meta(8, 1)),
        (meta(4, dtype=torch.complex64), meta(8, 8, dtype=torch.complex64), meta(8, 4, dtype=torch.complex64)),
    ],
)
def test_what_lt_does_not_take_leaves_its_work_space_alone(args):
    found = product("aten.addmm.default", *args, out=meta(args[1].shape[0], args[2].shape[1]))
    assert [line.nbytes for line in found.after] == [33_554_432]


def test_lt_takes_a_single_row_and_integers_take_no_space_of_its():
    row = product("aten.addmm.default", meta(64), meta(1, 64), meta(64, 64), out=meta(1, 64))
    assert [line.nbytes for line in row.after] == [33_554_432, 1_048_576]
    eighths = meta(64, 64, dtype=torch.int8)
    whole = product("aten._int_mm.default", eighths, eighths, out=meta(64, 64, dtype=torch.int32))
    assert [line.nbytes for line in whole.after] == [33_554_432]


@pytest.mark.parametrize(
    ("release", "taken"),
    [
        ("2.6.0", [("keep", 33_554_432), ("alloc", 1_048_576), ("free", 0)]),
        ("2.9.1", [("keep", 33_554_432), ("keep", 1_048_576)]),
        ("2.13.0", [("keep", 33_554_432)]),
        ("2.15.0", [("alloc", 1_048_576), ("free", 0)]),
    ],
)
def test_each_release_has_its_own_work_spaces(release, taken, monkeypatch):
    monkeypatch.setenv(VARIABLE, release)
    found = product("aten.addmm.default", meta(4), meta(8, 8), meta(8, 4), out=meta(8, 4))
    assert [(line.action, line.nbytes) for line in found.after] == taken


@pytest.mark.parametrize(("variable", "value", "sizes"), [
    ("TORCH_CUBLASLT_UNIFIED_WORKSPACE", "1", [33_554_432]),
    ("CUBLASLT_WORKSPACE_SIZE", "2048", [33_554_432, 2_097_152]),
    ("DISABLE_ADDMM_CUDA_LT", "1", [33_554_432]),
    ("CUBLAS_WORKSPACE_CONFIG", ":4096:2:16:8", [8_519_680, 1_048_576]),
    ("CUBLAS_WORKSPACE_CONFIG", "plenty", [33_554_432, 1_048_576]),
])  # fmt: skip
def test_the_environment_sets_the_work_spaces(variable, value, sizes, monkeypatch):
    monkeypatch.setenv(variable, value)
    found = product("aten.addmm.default", meta(4), meta(8, 8), meta(8, 4), out=meta(8, 4))
    assert [line.nbytes for line in found.after] == sizes


@pytest.mark.parametrize(
    ("heads", "shared", "queries", "size", "batch", "seen"),
    [
        (16, 4, 512, 64, 8, 33_816_832),  # llama: grouped heads
        (12, 12, 512, 64, 16, 25_559_296),  # gpt2
        (6, 6, 290, 32, 128, 29_399_296),  # vit, whose sequence no tile divides
    ],
)
def test_the_backward_of_cudnn_attention(heads, shared, queries, size, batch, seen):
    query, key = meta(batch, heads, queries, size, dtype=BF16), meta(batch, shared, queries, size, dtype=BF16)
    name = "aten._scaled_dot_product_cudnn_attention_backward.default"
    assert allocated(product(name, query, query, key, key, out=(query, key, key))) == [seen]


@pytest.mark.parametrize(
    ("tokens", "rows", "seen", "scanned"),
    [
        (4096, 32_000, 83_455, 1279),
        (8192, 50_257, 150_015, 1279),
        (9216, 32, 166_399, 1279),
        (16_384, 100_000, 283_135, 1535),
    ],
)
def test_the_backward_of_an_embedding_sorts_all_bits(tokens, rows, seen, scanned):
    gradient, indices = meta(tokens, 64), meta(tokens, dtype=LONG)
    found = product("aten.embedding_dense_backward.default", gradient, indices, rows, -1, False, out=meta(rows, 64))
    sizes = allocated(found)
    assert sizes[3] == seen
    # Runs of equal indices, then a running sum over segments: as many as there are indices, or rows.
    assert [size for size in sizes if size in {1279, 1535}] == [1279, scanned]


def test_the_backward_of_embedding_bags_sorts_all_bits():
    gradient, indices = meta(8192, 64), meta(163_840, dtype=LONG)
    name = "aten._embedding_bag_dense_backward.default"
    found = product(name, gradient, indices, None, None, None, 20_000, False, 0, None, out=meta(20_000, 64))
    assert 2_675_199 in allocated(found)
    assert allocated(found).count(1791) == 1


def test_accumulation_sorts_the_bits_there_are():
    for count, width, seen in ((8192, 512, 137_727), (32_768, 128, 537_087)):
        weights, index = meta(count, width), meta(count, dtype=LONG)
        found = product("aten.index_put.default", weights, [index], meta(count, width), True, out=weights)
        assert seen in allocated(found)


def test_sorting_integers_and_small_running_sums():
    numbers, order = meta(8192, dtype=LONG), meta(8192, dtype=LONG)
    assert 150_015 in allocated(product("aten.sort.stable", numbers, stable=True, out=(numbers, order)))
    few = meta(8, dtype=torch.int32)
    assert allocated(product("aten.cumsum.default", few, 0, out=few)) == [1023]


@pytest.mark.parametrize(
    ("dtype", "sizes"),
    [
        (torch.float32, (1023, 1279, 2047, 5119, 17_663)),
        (LONG, (1279, 2303, 5887, 18_943, 72_703)),
        (torch.float16, (1279, 1279, 1535, 3327, 9471)),
    ],
)
def test_long_running_sums_keep_a_state_per_tile(dtype, sizes):
    for length, seen in zip((1, 65_536, 262_144, 1_000_000, 4_000_000), sizes, strict=True):
        numbers = meta(length, dtype=dtype)
        assert allocated(product("aten.cumsum.default", numbers, 0, out=numbers)) == [seen]


@pytest.mark.parametrize(
    ("dtype", "length", "seen"),
    [
        (torch.float16, 8192, 88_575),
        (torch.float16, 4_000_000, 40_732_671),
        (torch.bool, 8192, 5631),
        (torch.bool, 4_000_000, 1_188_351),
    ],
)
def test_sorting_small_keys(dtype, length, seen):
    keys, order = meta(length, dtype=dtype), meta(length, dtype=LONG)
    assert seen in allocated(product("aten.sort.stable", keys, stable=True, out=(keys, order)))


@pytest.mark.parametrize(("dtype", "runs", "starts"), [(torch.int32, 9983, 1023), (LONG, 15_359, 1279)])
def test_runs_of_four_million_indices(dtype, runs, starts):
    gradient, indices = meta(4_000_000, 8), meta(4_000_000, dtype=dtype)
    found = product("aten.embedding_dense_backward.default", gradient, indices, 1000, -1, False, out=meta(1000, 8))
    assert [size for size in allocated(found) if size in {runs, starts}] == [runs, starts]


def test_the_largest_of_a_million_are_counted_twice_by_key():
    scores, values = meta(1_000_000), meta(10)
    found = allocated(product("aten.topk.default", scores, 10, out=(values, meta(10, dtype=LONG))))
    assert found == [4, 8, 8, 400_384, 1024, 3128, 3128, 1279, 1279]


def test_positions_are_counted_by_a_full_grid_and_then_selected():
    mask = meta(2048, 8, dtype=torch.bool)
    found = product("aten.nonzero.default", mask, out=meta(1984, 2, dtype=LONG))
    assert allocated(found) == [4, 21_503, 1023]


@pytest.mark.parametrize(
    ("length", "counted", "selected"), [(4096, 1, 1023), (262_144, 21_503, 1279), (4_000_000, 21_503, 8447)]
)
def test_few_positions_are_counted_by_one_block_and_many_selected_by_large_tiles(length, counted, selected):
    numbers = meta(length, dtype=LONG)
    found = product("aten.nonzero.default", numbers, out=meta(length, 1, dtype=LONG))
    assert allocated(found) == [4, counted, selected]


def test_grouped_products_take_arguments_by_group_and_maps_by_multiprocessor():
    tokens, experts = meta(1024, 64, dtype=BF16), meta(8, 64, 128, dtype=BF16)
    offsets = meta(8, dtype=torch.int32)
    found = product("aten._grouped_mm.default", tokens, experts, offsets, out=meta(1024, 128, dtype=BF16))
    assert played(found) == [("alloc", 480), ("alloc", 67_584), ("free", 67_584), ("free", 480)]
