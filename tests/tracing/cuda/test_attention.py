"""The ops of each attention kernel, forward and backward; shapes from attention.cpp and attention_backward.cu."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as attend

from memplan.errors import EstimateError
from tests.tracing.cuda.tape import played

BRAIN, SINGLE = torch.bfloat16, torch.float32


def inputs(size=64, dtype=BRAIN, *, heads=4, key_heads=4, length=17):
    query = torch.randn(2, heads, length, size, dtype=dtype, device="cuda", requires_grad=True)
    pair = [torch.randn(2, key_heads, length, size, dtype=dtype, device="cuda", requires_grad=True) for _ in range(2)]
    return query, *pair


def test_flash_saves_the_log_sum_exp_and_its_random_state():
    with played() as tape:
        args = inputs()
        tape.clear()
        attend(*args, is_causal=True).sum().backward()
        out, lse, *seeds, debug = tape.row("_scaled_dot_product_flash_attention.default").results
        assert (out, lse) == (((2, 4, 17, 64), BRAIN), ((2, 4, 17), SINGLE))
        assert all(shape in {(), (2,)} for shape, _ in seeds)
        assert debug[0] == (0,)
        backward = tape.row("_scaled_dot_product_flash_attention_backward.default").results
        assert backward == (((2, 4, 17, 64), BRAIN),) * 3
        assert "bmm" not in tape.ops


def test_flash_pads_heads_to_eight_and_cuts_the_result():
    with played() as tape:
        args = inputs(20)
        tape.clear()
        out = attend(*args)
        assert tape.ops == ["constant_pad_nd"] * 3 + ["_scaled_dot_product_flash_attention"]
        assert out.shape[-1] == 20
        assert tape.row("_scaled_dot_product_flash_attention.default").results[0] == ((2, 4, 17, 24), BRAIN)


def test_flash_takes_grouped_keys_as_they_are():
    with played() as tape:
        args = inputs(heads=8, key_heads=2)
        tape.clear()
        attend(*args, enable_gqa=True)
        assert tape.ops == ["_scaled_dot_product_flash_attention"]


def test_efficient_rounds_its_log_sum_exp_up_to_32_rows_and_has_none_in_inference():
    with played() as tape:
        args = inputs(dtype=SINGLE)
        tape.clear()
        attend(*args)
        assert tape.row("_scaled_dot_product_efficient_attention.default").results[1] == ((2, 4, 32), SINGLE)
        tape.clear()
        with torch.no_grad():
            attend(*args)
        assert tape.row("_scaled_dot_product_efficient_attention.default").results[1] == ((2, 4, 0), SINGLE)


def test_efficient_copies_a_mask_whose_rows_do_not_align():
    with played() as tape:
        args = inputs()
        boolean = torch.ones(17, 17, dtype=torch.bool, device="cuda")
        aligned = torch.zeros(2, 1, 17, 24, dtype=BRAIN, device="cuda")[..., :17]
        tape.clear()
        attend(*args, attn_mask=boolean)
        # A boolean mask becomes additive (two scalars and the mask), then rows of 17 are padded to 24.
        assert tape.ops[:4] == ["scalar_tensor", "scalar_tensor", "where.self", "constant_pad_nd"]
        assert tape.row("constant_pad_nd.default").results == (((17, 24), BRAIN),)
        tape.clear()
        attend(*args, attn_mask=aligned)
        assert tape.ops == ["_scaled_dot_product_efficient_attention"]


def test_math_upcasts_half_precision_as_the_composite_does():
    with played() as tape:
        args = inputs()
        tape.clear()
        with sdpa_kernel(SDPBackend.MATH):
            attend(*args, dropout_p=0.5)
        assert tape.ops[:3] == ["_to_copy"] * 3
        assert {"bmm", "_safe_softmax", "native_dropout"} <= set(tape.ops)
        assert tape.row("_safe_softmax.default").results == (((2, 4, 17, 17), SINGLE),)


def test_hopper_takes_cudnn_and_honours_the_users_switches():
    with played((9, 0)) as tape:
        if torch._C._get_sdp_priority_order()[0] != 3:
            pytest.skip("this torch's CUDA wheels bring an older cuDNN")
        args = inputs()
        tape.clear()
        attend(*args)
        assert tape.row("_scaled_dot_product_cudnn_attention.default").results[1] == ((2, 4, 17, 1), SINGLE)
        tape.clear()
        with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
            attend(*args)
        assert tape.ops == ["_scaled_dot_product_efficient_attention"]
        assert tape.cuda is not None
        assert tape.cuda.attention_kernels == {"cudnn": 1, "efficient": 1}


def test_inference_mode_reaches_the_same_kernel():
    with played() as tape, torch.inference_mode():
        args = [torch.empty(2, 4, 8, 64, dtype=BRAIN, device="cuda") for _ in range(3)]
        tape.clear()
        attend(*args)
        assert tape.ops == ["_scaled_dot_product_flash_attention"]


@pytest.mark.parametrize("kernel", ["flash", "efficient", "cudnn", "math"])
def test_a_forced_kernel_runs(kernel):
    with played(attention=kernel) as tape:
        args = inputs()
        tape.clear()
        attend(*args)
        assert (tape.ops == [f"_scaled_dot_product_{kernel}_attention"]) == (kernel != "math")


def test_an_impossible_force_says_why():
    with played(attention="flash"), pytest.raises(EstimateError, match="takes no attn_mask"):
        attend(*inputs(), attn_mask=torch.ones(17, 17, device="cuda", dtype=BRAIN))


def test_no_enabled_kernel_is_an_error_that_lists_them_all():
    args = {"dtype": torch.float64}
    with played(), sdpa_kernel(SDPBackend.FLASH_ATTENTION), pytest.raises(EstimateError, match="flash: q, k and v"):
        attend(*inputs(**args))
