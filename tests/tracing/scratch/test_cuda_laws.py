"""Laws of the CUDA rules: what must hold for any shape."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from memplan.tracing.scratch.cuda_cub import radix_sort_pairs_bytes
from memplan.tracing.scratch.cuda_flash_attention import split_count
from memplan.tracing.scratch.cuda_gemm import batch_is_addressable, matrix_is_addressable
from memplan.tracing.scratch.cuda_iterator import fits_32_bit, iteration, split_32_bit
from memplan.tracing.scratch.cuda_reduction import INDEXED_EXTREMUM, SUM, reduction_scratch
from memplan.tracing.scratch.cuda_shapes import Layout
from memplan.tracing.scratch.cuda_table import CUDA_RULES, NOT_COVERED, not_covered
from tests.tracing.scratch.calls import A100, played, script

sizes = st.sampled_from([1, 2, 3, 8, 40, 128, 500, 1024, 4096])


@st.composite
def reductions(draw, largest=2**31 - 1):
    """A dense tensor in any order of dimensions, and which of them are reduced."""
    shape = draw(st.lists(sizes, min_size=1, max_size=4).filter(lambda s: math.prod(s) * 4 <= largest))
    strides, step = [0] * len(shape), 1
    for dim in draw(st.permutations(range(len(shape)))):
        strides[dim], step = step, step * shape[dim]
    dims = draw(st.sets(st.sampled_from(range(len(shape))), min_size=1))
    return Layout(tuple(shape), tuple(strides), torch.float32), dims


def bytes_of(layout, dims, device=A100, reducer=SUM, out=torch.float32):
    return [step.nbytes for step in reduction_scratch(device, layout, dims, out, reducer) if step.action == "alloc"]


@given(reductions())
def test_iteration_keeps_every_element_on_its_side(case):
    layout, dims = case
    axes = iteration(layout.shape, layout.strides, dims, in_bytes=4, out_bytes=4)
    reduced = math.prod(size for dim, size in enumerate(layout.shape) if dim in dims)
    assert math.prod(axis.size for axis in axes if axis.reduced) == reduced
    assert math.prod(axis.size for axis in axes) == layout.numel


@given(reductions())
def test_iteration_reaches_the_last_element(case):
    layout, dims = case
    axes = iteration(layout.shape, layout.strides, dims, in_bytes=4, out_bytes=4)
    assert sum((axis.size - 1) * axis.in_stride for axis in axes) == (layout.numel - 1) * 4


@given(reductions(), st.data())
def test_order_of_reduced_dimensions_does_not_matter(case, data):
    layout, dims = case
    order = list(range(len(layout.shape)))
    for source, target in zip(sorted(dims), data.draw(st.permutations(sorted(dims))), strict=True):
        order[source] = target
    shuffled = Layout(tuple(layout.shape[d] for d in order), tuple(layout.strides[d] for d in order), layout.dtype)
    assert bytes_of(shuffled, dims) == bytes_of(layout, dims)


@given(reductions())
def test_a_split_reduction_has_a_buffer_and_semaphores_for_its_outputs(case):
    layout, dims = case
    outputs = math.prod(size for dim, size in enumerate(layout.shape) if dim not in dims)
    found = bytes_of(layout, dims)
    if found:
        buffer, semaphores = found
        # At least two blocks meet per output, each with a four-byte partial sum.
        assert buffer >= 2 * 4 * outputs
        assert buffer % (4 * outputs) == 0
        assert semaphores % 4 == 0
        assert semaphores <= 4 * outputs


@given(reductions())
def test_short_reductions_are_never_split(case):
    layout, dims = case
    if math.prod(layout.shape[dim] for dim in dims) < 256:
        assert bytes_of(layout, dims) == []


@given(reductions())
def test_wider_accumulators_take_more_in_proportion(case):
    layout, dims = case
    narrow, wide = bytes_of(layout, dims), bytes_of(layout, dims, reducer=INDEXED_EXTREMUM)
    assert [size * 4 for size in narrow[:1]] == wide[:1]
    assert narrow[1:] == wide[1:]


@given(st.lists(st.sampled_from([3, 100, 4096]), min_size=3, max_size=3), st.data())
def test_large_reductions_are_cut_into_pieces_that_fit(shape, data):
    strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    dims = data.draw(st.sets(st.sampled_from(range(len(shape))), min_size=1))
    axes = iteration(shape, strides, dims, in_bytes=4, out_bytes=4)
    pieces = list(split_32_bit(axes))
    assert all(fits_32_bit(piece) for piece in pieces)
    assert sum(math.prod(axis.size for axis in piece) for piece in pieces) == math.prod(shape)


def test_a_sum_of_more_than_two_gib_in_bfloat16_accumulates_in_float():
    # 2**31 elements along a reduced dimension: pieces share a float buffer for the 4096 outputs.
    layout = Layout((2**19, 4096), (4096, 1), torch.bfloat16)
    script_of = reduction_scratch(A100, layout, {0}, torch.bfloat16, SUM)
    assert script_of[0][:3] == ("alloc", "partial", 4096 * 4)
    assert script_of[-1][:2] == ("free", "partial")


def test_sums_of_booleans_are_copied_to_integers_first():
    layout = Layout((4, 128), (128, 1), torch.bool)
    assert [(s.action, s.nbytes) for s in reduction_scratch(A100, layout, {0, 1}, torch.int64, SUM)] == [
        ("alloc", 4 * 128 * 8),
        ("free", 0),
    ]


@given(st.integers(1, 4096), st.integers(1, 264), st.integers(1, 512))
def test_split_counts_are_possible(blocks, processors, key_blocks):
    splits = split_count(blocks, processors, key_blocks)
    assert 1 <= splits <= min(128, processors, key_blocks)
    if blocks >= processors:
        assert splits == 1


def test_split_count_of_the_kernels_own_example():
    # flash_api.cpp: "batch * n_heads = 48 and we have 108 SMs, having 2 splits (efficiency = 0.89) is better than 3".
    assert split_count(48, 108, 64) == 2


@settings(deadline=None)  # The first call imports parts of torch.
@given(st.integers(2, 64), st.integers(2, 64), st.integers(0, 8))
def test_slices_and_transposes_of_matrices_are_addressable(rows, columns, padding):
    padded = torch.empty((rows, columns + padding), device="meta")[:, :columns]
    assert matrix_is_addressable(padded)
    assert matrix_is_addressable(padded.t())
    assert not matrix_is_addressable(torch.empty((rows, 1), device="meta").expand(rows, columns))
    assert not matrix_is_addressable(torch.empty((rows, 2 * columns + 1), device="meta")[:, : 2 * columns : 2])


@settings(deadline=None)  # The first call imports parts of torch.
@given(st.integers(1, 8), st.integers(2, 64), st.integers(2, 64))
def test_batches_are_addressable_unless_expanded_within(batch, rows, columns):
    matrices = torch.empty((batch, rows, columns), device="meta")
    assert batch_is_addressable(matrices)
    assert batch_is_addressable(matrices.transpose(1, 2))
    assert batch_is_addressable(torch.empty((1, rows, columns), device="meta").expand(batch, -1, -1))
    assert not batch_is_addressable(torch.empty((batch, 1, 1), device="meta").expand(-1, rows, columns))


@given(st.integers(1, 2**20), st.integers(1, 40))
def test_sort_temporaries_hold_a_second_copy_of_keys_and_values_when_they_take_several_passes(items, bits):
    size = radix_sort_pairs_bytes(items, bits)
    if items > 2304 and bits > 8:
        assert size > 16 * items
    else:
        assert size < 16 * items + 2**13


LATER = {
    *("_fused_rms_norm.default", "_fused_rms_norm_backward.default", "_foreach_powsum.Scalar", "_scaled_mm_v2.default"),
    "_scaled_mm_v2.out",
    *("mm.dtype", "addmm.dtype", "bmm.dtype", "baddbmm.dtype"),
    *("_grouped_mm", "_scaled_grouped_mm", "_scaled_grouped_mm_v2", "_cudnn_attention_forward"),
    *("_cudnn_attention_backward", "_flash_attention_forward_no_dropout_inplace", "_flash_attention_forward.quantized"),
    *("_scaled_dot_product_flash_attention.quantized", "miopen_ctc_loss", "_grouped_mm.default"),
}
"""Ops that torch 2.6, the oldest release supported, does not have yet."""
RETIRED = {"cholesky"}
"""Ops that torch 2.15 does not have any more."""


def exists(name: str) -> bool:
    packet, _, overload = name.partition(".")
    found = getattr(torch.ops.aten, packet, None)
    return found is not None and (not overload or overload in found.overloads())


def test_every_rule_and_every_gap_names_an_op_of_torch():
    named = [name.removeprefix("aten.") for name in (*CUDA_RULES, *NOT_COVERED)]
    assert {name for name in named if not exists(name)} <= LATER | RETIRED


def test_no_op_is_both_ruled_and_a_gap():
    assert not_covered(CUDA_RULES) == ()
    assert not_covered(["aten.mm.default", "aten.linalg_qr.default", "aten.linalg_qr.default"]) == ("aten.linalg_qr",)


def test_an_overload_can_be_a_gap_of_its_own():
    name = "aten._scaled_dot_product_flash_attention"
    assert not_covered([f"{name}.default"]) == ()
    assert not_covered([f"{name}.quantized"]) == (f"{name}.quantized",)


@pytest.mark.parametrize("name", ["aten.sum.dim_IntList", "aten.mm.default", "aten._softmax_backward_data.default"])
def test_host_tensors_take_nothing_of_the_device(name):
    tensor = torch.empty((4096, 4096), device="meta")
    args = (tensor, [0]) if "sum" in name else (tensor, tensor)
    on_device = script(name, *args, out=torch.empty(4096, device="meta"))
    assert on_device is None or played(on_device)
    assert script(name, *args, out=torch.empty(4096, device="meta"), host=(tensor,)) is None
