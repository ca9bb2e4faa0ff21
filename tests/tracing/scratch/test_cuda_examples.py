"""Scratch of kernels worked out by hand from their C++ source, and figures published or measured elsewhere."""

from functools import partial

import pytest
import torch

from memplan.tracing.scratch.cuda_cub import radix_sort_pairs_bytes
from memplan.tracing.scratch.cuda_efficient_attention import Tile, backward_block
from tests.tracing.scratch.calls import A100, allocated, meta, played, script, strided

BF16 = torch.bfloat16


pytestmark = pytest.mark.usefixtures("workspaces_stay")


@pytest.mark.parametrize(
    ("items", "bits", "size"), [(512, 14, 1), (2048, 14, 1), (4096, 14, 72_191), (8192, 14, 138_751)]
)
def test_sort_temporaries_seen_on_real_gpus(items, bits, size):
    assert radix_sort_pairs_bytes(items, bits) == size


def test_pow_of_a_number_takes_eight_bytes_as_seen():
    assert played(script("aten.pow.Scalar", 10_000.0, meta(64), out=meta(64))) == [("alloc", 8), ("free", 8)]
    assert script("aten.pow.Scalar", 1, meta(64), out=meta(64)) is None


def test_expanded_gradient_is_cloned_for_bmm_as_seen():
    # 40,960,000 bytes in a real trace: the gradient of a sum over (1, 1024, 10000) logits.
    expanded = meta(1).expand(1, 1024, 10_000)
    found = played(script("aten.bmm.default", expanded, meta(1, 10_000, 768), out=meta(1, 1024, 768)))
    assert found == [("alloc", 40_960_000), ("keep", A100.cublas_workspace_bytes), ("free", 40_960_000)]


def test_indices_that_are_no_row_are_copied_by_an_embedding_as_seen():
    # 32,768 bytes in a real trace of BERT: types of tokens, (1, 512) expanded to a batch of 8.
    types = meta(1, 512, dtype=torch.int64).expand(8, 512)
    found = script("aten.embedding.default", meta(2, 1024), types, out=meta(8, 512, 1024))
    assert played(found) == [("alloc", 32_768), ("free", 32_768)]
    lookup = partial(script, "aten.embedding.default", meta(100, 64))
    words = meta(4, 513, dtype=torch.int64)
    assert played(lookup(words[:, :-1], out=meta(4, 512, 64))) == [("alloc", 4 * 512 * 8), ("free", 4 * 512 * 8)]
    for view in (words, words[1:], words[:1, :-1], words[:, 0], words.expand(1, 4, 513), words.view(4, 27, 19)):
        assert lookup(view, out=meta(*view.shape, 64)) is None
        assert view.reshape(-1)._base is not None


def test_large_embedding_sums_segments():
    # 8192 tokens, width 4096: 819 + 8192 partial rows in float, 148 MB.
    grad, indices = meta(4, 2048, 4096), meta(4, 2048, dtype=torch.int64)
    found = script("aten.embedding_dense_backward.default", grad, indices, 32_000, -1, False, out=meta(32_000, 4096))
    assert found.after[-1].nbytes == (819 + 8192) * 4096 * 4
    keys = [step.key for step in found.before if step.action == "alloc"]
    assert keys == ["sorted", "original", "range", "sort"]


def test_small_embedding_needs_nothing():
    grad, indices = meta(2, 512, 64), meta(2, 512, dtype=torch.int64)
    assert script("aten.embedding_dense_backward.default", grad, indices, 100, -1, False, out=meta(100, 64)) is None


def test_a_bag_of_embeddings_is_summed_like_single_ones():
    # 8192 indices in 512 bags of a table with 1000 rows; maxima are added directly.
    grad, indices, bags = meta(512, 64), meta(8192, dtype=torch.int64), meta(512, dtype=torch.int64)
    arguments = (grad, indices, indices, bags, bags, 1000, False)
    found = script("aten._embedding_bag_dense_backward.default", *arguments, 0, None, out=meta(1000, 64))
    assert [line.nbytes for line in found.before[:3]] == [8192 * 8] * 3
    assert {line.key: line.nbytes for line in found.after}["sums"] == (819 + 1000) * 64 * 4
    assert script("aten._embedding_bag_dense_backward.default", *arguments, 2, None, out=meta(1000, 64)) is None
    grad, indices, *rest = arguments
    whole = ("aten._embedding_bag_backward.default", grad, indices, bags, *rest, 0, False, None)
    assert script(*whole, out=meta(1000, 64)) == found


def test_windows_of_a_video_are_rolled_one_dimension_after_the_other():
    video, turned = meta(2, 8, 14, 14, 96), meta(2, 96, 8, 14, 14).permute(0, 2, 3, 4, 1)
    found = played(script("aten.roll.default", video, [1, 2, 3], [1, 2, 3], out=video))
    assert found == [("alloc", 4 * 2 * 8 * 14 * 14 * 96)] * 2 + [("free", 4 * 2 * 8 * 14 * 14 * 96)] * 2
    assert not played(script("aten.roll.default", video, [1], [1], out=video))
    assert played(script("aten.roll.default", turned, [1], [1], out=video)) == [found[0], found[-1]]


def test_channels_last_batch_norm_meets_in_a_staging_buffer():
    # 32 images of 56 x 56: 100,352 pixels are 392 groups of 16 x 16, of which 128 blocks share 64 channels of 32 lanes.
    x, c = meta(32, 64, 56, 56, dtype=BF16).to(memory_format=torch.channels_last), meta(64)
    forward = script("aten.native_batch_norm.default", x, c, c, c, c, True, 0.1, 1e-5, out=(x, c, c))
    assert allocated(forward) == [4 * 64 * 128 * 4, 2 * 4]
    backward = script(
        "aten.native_batch_norm_backward.default", x, x, c, c, c, c, c, True, 1e-5, [True] * 3, out=(x, c, c)
    )
    assert allocated(backward) == [64 * 4, 64 * 4, 2 * 64 * 128 * 4, 2 * 4]
    rows = meta(32, 64, 56, 56, dtype=BF16)
    assert script("aten.native_batch_norm.default", rows, c, c, c, c, True, 0.1, 1e-5, out=(rows, c, c)) is None
    assert script("aten.native_batch_norm.default", x, c, c, c, c, False, 0.1, 1e-5, out=(x, c, c)) is None


def test_pooling_copies_a_gradient_in_another_format():
    image, expanded = meta(2, 64, 8, 8).to(memory_format=torch.channels_last), meta(1).expand(2, 64, 4, 4)
    name = "aten.max_pool2d_with_indices_backward.default"
    options = ([2, 2], [2, 2], [0, 0], [1, 1], False, meta(2, 64, 4, 4, dtype=torch.int64))
    assert allocated(script(name, expanded, image, *options, out=image)) == [2 * 64 * 16 * 4]
    assert script(name, meta(2, 64, 4, 4).to(memory_format=torch.channels_last), image, *options, out=image) is None


def test_distances_hold_every_pair_in_backward():
    x, y = meta(2, 100, 16), meta(2, 300, 16)
    grad = meta(2, 100, 300)
    found = allocated(script("aten._cdist_backward.default", grad, x, y, 1.0, grad, out=x))
    assert found[0] == 2 * 300 * 100 * 16 * 4


def test_euclidean_distances_are_one_product_of_widened_sides():
    x, y = meta(100, 16), meta(300, 16)
    found = allocated(script("aten._euclidean_dist.default", x, y, out=meta(100, 300)))
    # Squares, norms and ones of each side; the first doubled and joined with them, then the second.
    assert found == [6400, 400, 400, 19_200, 1200, 1200, 6400, 100 * 18 * 4, 300 * 18 * 4]


def test_ctc_goes_back_through_a_second_table():
    alpha = meta(8, 200, 41)
    arguments = (meta(8), meta(200, 8, 30), meta(8, 20, dtype=torch.int64), [200] * 8, [20] * 8, meta(8), alpha, 0)
    assert allocated(script("aten._ctc_loss_backward.default", *arguments, out=meta(200, 8, 30))) == [8 * 200 * 41 * 4]


def test_fourier_transforms_take_a_plan_of_unknown_size():
    sound, spectrum = meta(4, 1024), meta(4, 513, dtype=torch.complex64)
    (plan,) = script("aten._fft_r2c.default", sound, [1], 0, True, out=spectrum).after
    assert (plan.nbytes, plan.most) == (0, 8 * 4 * 513 * 8)
    odd = meta(4, 1000)
    (plan,) = script("aten._fft_r2c.default", odd, [1], 0, True, out=meta(4, 501, dtype=torch.complex64)).after
    assert plan.nbytes == 4 * 501 * 8
    copy, _ = script("aten._fft_c2r.default", spectrum, [1], 0, 1024, out=sound).after
    assert copy.nbytes == 4 * 513 * 8


def test_foreach_maxima_are_kept_in_the_tensors_type():
    tensors = [meta(65_537, dtype=BF16), meta(10, dtype=BF16)]
    assert allocated(script("aten._foreach_max.default", tensors, out=[meta()] * 2)) == [2 * 2 * 2]


def test_flash_backward_with_shared_heads():
    # 1000 queries pad to 1024, head size 80 to 96; two of eight heads hold keys.
    query, key = (meta(2, 1000, heads, 80, dtype=BF16).transpose(1, 2) for heads in (8, 2))
    found = script(
        "aten._scaled_dot_product_flash_attention_backward.default",
        query, query, key, key, query, meta(2, 8, 1000), None, None, 1000, 1000, 0.0, True, None, None,
        out=(query, key, key),
    )  # fmt: skip
    rows = 2 * 8 * 1024
    assert allocated(found) == [rows * 4, rows * 96 * 4, 2 * 1000 * 8 * 80 * 2, 2 * 1000 * 8 * 80 * 2]


def test_flash_backward_copies_a_gradient_in_another_layout():
    query = meta(2, 128, 4, 64, dtype=BF16).transpose(1, 2)
    gradient = meta(2, 4, 128, 64, dtype=BF16)
    found = script(
        "aten._scaled_dot_product_flash_attention_backward.default",
        gradient, query, query, query, query, None, None, None, 128, 128, 0.0, True, None, None, out=(query,) * 3,
    )  # fmt: skip
    assert [step.nbytes for step in found.before] == [2 * 4 * 128 * 64 * 2]


def test_flash_decoding_splits_long_keys():
    query, key = meta(1, 1, 8, 128, dtype=BF16).transpose(1, 2), meta(1, 8192, 8, 128, dtype=BF16).transpose(1, 2)
    found = allocated(script("aten._scaled_dot_product_flash_attention.default", query, key, key, out=(query,)))
    # 8 blocks for 216 slots, 64 blocks of keys: some number of splits, with one float row and one float each.
    splits = found[0] // (8 * 4)
    assert 1 < splits <= 64
    assert found == [splits * 8 * 4, splits * 8 * 128 * 4]
    assert script("aten._scaled_dot_product_flash_attention.default", query, key, key, 0.1, out=(query,)) is None


@pytest.mark.parametrize(
    ("head", "half", "capability", "block"),
    [
        (64, True, (8, 0), Tile(64, 64, in_registers=True)),
        (128, True, (8, 0), Tile(128, 128, in_registers=True)),
        (80, True, (8, 6), Tile(128, 64, in_registers=True)),
        (128, True, (8, 6), Tile(64, 64, in_registers=False)),
        (64, False, (8, 0), Tile(64, 64, in_registers=False)),
    ],
)
def test_backward_tiles_of_efficient_attention(head, half, capability, block):
    assert backward_block(head, half=half, dropout=False, capability=capability) == block


def test_efficient_backward_in_half_precision():
    heads = meta(2, 256, 8, 64, dtype=BF16).transpose(1, 2)
    found = script(
        "aten._scaled_dot_product_efficient_attention_backward.default",
        heads, heads, heads, heads, None, heads, None, None, None, 0.0, [True] * 3 + [False], True, out=(heads,) * 3,
    )  # fmt: skip
    # Row sums in float, then four query tiles of 64 x 64 floats with 16 bytes of bookkeeping for each of 16 heads.
    assert allocated(found) == [2 * 8 * 256 * 4, 16 * 4 * (16 + 64 * 64 * 4)]


def test_softmax_backward_multiplies_first():
    scores = meta(4, 16, 512, 512)
    found = script("aten._softmax_backward_data.default", scores, scores, -1, torch.float32, out=scores)
    size = 4 * 16 * 512 * 512 * 4
    assert played(found) == [("alloc", size), ("free", size)]


def test_layer_norm_backward_splits_many_rows():
    # 131,072 rows of 512: 16 blocks across leave 2048 of the 4096 blocks of rows.
    x, weight = meta(64, 2048, 512), meta(512)
    found = script(
        "aten.native_layer_norm_backward.default",
        x, x, [512], meta(64, 2048, 1), meta(64, 2048, 1), weight, weight, [True, True, True], out=(x, weight, weight),
    )  # fmt: skip
    blocks = 2048 * 512 * 4
    assert allocated(found)[:2] == [blocks, blocks]
    # Each sum makes a new gradient and drops the one allocated at first.
    assert allocated(found).count(512 * 4) == 2
    few = meta(2, 2048, 512)
    assert script(
        "aten.native_layer_norm_backward.default",
        few, few, [512], None, None, weight, weight, [True, True, True], out=(few, weight, weight),
    ) is None  # fmt: skip


def test_group_norm_scales_in_float():
    x, stat = meta(2, 320, 64, 64, dtype=BF16), meta(2, 32, dtype=BF16)
    forward = script("aten.native_group_norm.default", x, meta(320), meta(320), 2, 320, 4096, 32, 1e-5, out=(x,))
    assert allocated(forward) == [2 * 32 * 4, 2 * 32 * 4, 2 * 320 * 4, 2 * 320 * 4]
    backward = script(
        "aten.native_group_norm_backward.default", x, x, stat, stat, meta(320), 2, 320, 4096, 32, [True] * 3, out=(x,)
    )
    assert allocated(backward) == [2 * 320 * 4] * 2 + [2 * 32 * 4] * 2 + [2 * 320 * 4]


def test_foreach_norm_has_one_partial_per_chunk():
    tensors = [meta(100), meta(65_537), meta(10)]
    assert played(script("aten._foreach_norm.Scalar", tensors, 2, out=[meta()])) == [
        ("alloc", 3 * 2 * 4),
        ("free", 3 * 2 * 4),
    ]


def test_logsumexp_holds_a_full_difference():
    logits = meta(64, 1000)
    found = script("aten.logsumexp.default", logits, [1], out=meta(64))
    assert allocated(found) == [64 * 4, 64 * 4, 64, 64 * 1000 * 4]
    # The result is an empty tensor until the sum resizes it.
    assert [(step.action, step.key) for step in found.after] == [("free", "difference"), ("free", "maxima")]


def test_short_sorts_number_one_row():
    scores = meta(32, 512)
    assert allocated(script("aten.sort.default", scores, -1, out=(scores, scores))) == [512 * 8]
    assert script("aten.sort.default", meta(), -1, out=None) is None


def test_indices_on_the_host_are_copied():
    table, index = meta(100, 8), meta(10, dtype=torch.int64)
    found = played(script("aten.index.Tensor", table, [index], out=meta(10, 8), host=(index,)))
    assert found == [("alloc", 80), ("free", 80)]
    assert script("aten.index.Tensor", table, [index], out=meta(10, 8)) is None


def test_index_put_copies_strided_values_and_targets():
    target, index = strided((50, 20), (1, 50)), meta(10, dtype=torch.int64)
    found = played(script("aten.index_put_.default", target, [index], meta(1).expand(10, 20), True, out=target))
    # The target first, the wrapped and the scaled index, the values, three rows of indices and a one-tile sort.
    assert found == [
        *[("alloc", 50 * 20 * 4), ("alloc", 80), ("alloc", 80), ("free", 80), ("alloc", 10 * 20 * 4)],
        *[("alloc", 80), ("alloc", 80), ("alloc", 80), ("alloc", 1), ("free", 1), ("free", 80), ("free", 80)],
        *[("free", 80), ("free", 10 * 20 * 4), ("free", 80), ("free", 50 * 20 * 4)],
    ]


def test_index_put_permutes_a_target_whose_indexed_dimensions_lie_apart():
    index, values = meta(10, dtype=torch.int64), meta(10, 20)
    dense, turned = meta(5, 20, 7), strided((5, 20, 7), (1, 5, 100))
    size = 5 * 20 * 7 * 4
    for target, copies in ((dense, 1), (turned, 2)):
        found = script("aten.index_put_.default", target, [index, None, index], values, True, out=target)
        assert allocated(found).count(size) == copies


def test_deterministic_index_put_sorts_even_without_accumulation(monkeypatch):
    target, index, values = meta(50, 20), meta(10, dtype=torch.int64), meta(10, 20)
    arguments = ("aten.index_put_.default", target, [index], values, False)
    assert script(*arguments, out=target) is None
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
    assert allocated(script(*arguments, out=target)) == [80, 80, 80, 80, 80, 1]


def test_the_second_operand_of_a_product_is_cloned_first():
    left, right = meta(1).expand(4, 1, 8, 16), meta(1).expand(4, 16, 5)
    found = allocated(script("aten.bmm.default", left.select(1, 0), right, out=meta(4, 8, 5)))
    assert found == [4 * 16 * 5 * 4, 4 * 8 * 16 * 4]


@pytest.mark.parametrize("name", ["mse_loss", "smooth_l1_loss"])
def test_a_mean_error_keeps_memory_of_its_elements_size(name):
    # PyTorch issue 185647: the 0-dimensional result of a 3 x 256 x 256 input holds 786,432 bytes.
    image, result = meta(3, 256, 256), meta()
    found = script(f"aten.{name}.default", image, image, out=result)
    assert result.untyped_storage().nbytes() == 786_432
    assert allocated(found)[0] == 786_432
    by_element = meta(3, 256, 256)
    assert script(f"aten.{name}.default", image, image, 0, out=by_element) is None
    assert by_element.untyped_storage().nbytes() == 786_432


def test_a_reduced_loss_takes_the_buffers_of_its_mean():
    long = meta(2**22)
    found = allocated(script("aten.huber_loss.default", long, long, out=meta()))
    assert found == [2**24, *allocated(script("aten.mean.default", long, out=meta()))]
    assert len(found) == 3


def test_cross_entropy_with_logits_on_cuda_takes_no_buffer():
    # 3,000 floats: the log of the sigmoid, then the loss; with weights a row less one and a full factor between them.
    logits, row, name = meta(30, 100), meta(100), "aten.binary_cross_entropy_with_logits.default"
    assert allocated(script(name, logits, logits, out=meta())) == [12_000, 12_000]
    assert allocated(script(name, logits, logits, None, None, 0, out=logits)) == [12_000]
    assert allocated(script(name, logits, logits, None, row, out=meta())) == [12_000, 400, 12_000, 12_000]


def test_unfolding_starts_at_the_size_of_the_image():
    image, columns = meta(2, 3, 20, 20), meta(2, 27, 324)
    assert allocated(script("aten.im2col.default", image, [3, 3], out=columns)) == [2 * 3 * 20 * 20 * 4]
    folded = meta(2, 3, 20, 20)
    assert script("aten.col2im.default", columns, [20, 20], [3, 3], out=folded) is None
    assert folded.untyped_storage().nbytes() == 2 * 27 * 324 * 4


def test_logic_accumulates_one_byte_whatever_it_reads():
    # The same split as the largest float's, whose accumulator takes four bytes.
    x = meta(8, 2**20)
    largest = allocated(script("aten.amax.default", x, [1], out=meta(8)))
    for name in ("any", "all"):
        found = allocated(script(f"aten.{name}.dim", x, 1, out=meta(8, dtype=torch.bool)))
        assert found == [largest[0] // 4, largest[1]]


def test_welford_accumulators_take_sixteen_bytes():
    x = meta(8, 2**20)
    found = allocated(script("aten.var.correction", x, [1], out=meta(8)))
    total = allocated(script("aten.sum.dim_IntList", x, [1], out=meta(8)))
    assert found[0] == 4 * total[0]
