"""Predicted scratch against what real GPUs allocated: sizes, counts and order."""

from collections import Counter
from dataclasses import replace

import torch

from memplan.tracing.cuda.release import VARIABLE
from tests.tracing.scratch.calls import A100, H100, meta, played, script, strided
from tests.tracing.scratch.real_scratch import below, events, inside, steps

# Programs of the snapshots: batch 4; 24 layers of 1024 over 256 tokens; 32 layers of 2560 over 128 tokens whose
# activations lie feature by feature; vocabulary 10,000.
MEDIUM_NORMS = 2 * 24 + 1
LARGE_NORMS = 2 * 32 + 1


def test_reductions_of_a_training_step_on_an_a100():
    real = steps(
        [
            event
            for event in events("wedsonlin_medium_256_training_memory_snapshot")
            if inside(event, "gpu_reduce_kernel")
        ]
    )
    # Each norm's weight gradient sums (4, 256, 1024) over batch and tokens; all other reductions need no split.
    weight_gradient = script(
        "aten.sum.dim_IntList", meta(4, 256, 1024), [0, 1], True, out=meta(1, 1, 1024), device=A100
    )
    assert real == played(weight_gradient) * MEDIUM_NORMS


def test_reductions_of_a_training_step_on_an_h100():
    real = Counter(
        size
        for action, size in steps(
            [e for e in events("kkaitlyn_memory_ctx128_fullstep") if inside(e, "gpu_reduce_kernel")]
        )
        if action == "alloc"
    )
    by_feature = strided((4, 128, 2560), (128, 1, 512))
    logits = strided((512, 10_000), (1, 512))
    totals = strided((512, 1), (1, 1))
    predicted = (
        played(script("aten.sum.dim_IntList", by_feature, [2], True, out=meta(4, 128, 1), device=H100)) * LARGE_NORMS
    )
    predicted += played(script("aten.max.dim", logits, 1, True, out=(totals, totals.long()), device=H100))
    predicted += played(script("aten.sum.dim_IntList", logits, [1], out=meta(512), device=H100))
    assert real == Counter(size for action, size in predicted if action == "alloc")


def test_the_split_follows_the_number_of_multiprocessors():
    logits = strided((512, 10_000), (1, 512))
    on = {
        sms: played(script("aten.sum.dim_IntList", logits, [1], out=meta(512), device=replace(H100, sm_count=sms)))
        for sms in (8, 24, 132)
    }
    # Fewer multiprocessors, fewer blocks per output; the semaphores count blocks of outputs, which stay the same.
    assert on[8][0][1] < on[24][0][1] < on[132][0][1]
    assert on[8][1] == on[24][1] == on[132][1]


def test_sorting_index_put_with_a_host_index():
    real = events("kkaitlyn_memory_ctx128_fullstep")
    inner = [position for position, event in enumerate(real) if below(event, "_index_put_impl_")]
    first = next(i for i, position in enumerate(inner) if i and position != inner[i - 1] + 1)
    rows, targets = meta(512, dtype=torch.int64), meta(512, dtype=torch.int64)
    loss_gradient = script(
        "aten.index_put.default",
        meta(512, 10_000),
        [rows, targets],
        meta(512),
        True,
        out=meta(512, 10_000),
        host=(rows,),
    )
    assert steps([real[position] for position in inner[:first]]) == played(loss_gradient)


def test_sorting_index_put_of_an_embedding():
    for name, shape, width in (
        ("wedsonlin_medium_256_training_memory_snapshot", (4, 256), 1024),
        ("kkaitlyn_memory_ctx128_fullstep", (4, 128), 2560),
    ):
        real = events(name)
        inner = [position for position, event in enumerate(real) if below(event, "_index_put_impl_")]
        last = next(i for i in reversed(range(len(inner))) if i == 0 or inner[i] != inner[i - 1] + 1)
        contiguous = name.startswith("w")
        tokens = shape[0] * shape[1]
        values = meta(*shape, width) if contiguous else strided((*shape, width), (shape[1], 1, tokens))
        index = meta(*shape, dtype=torch.int64)
        weights = meta(10_000, width)
        predicted = script("aten.index_put.default", weights, [index], values, True, out=weights)
        assert steps([real[position] for position in inner[last:]]) == played(predicted)


def test_efficient_attention_backward_in_float():
    op = "_scaled_dot_product_efficient_attention_backward"
    real = [event for event in events("cranberrii__memory_snapshot") if below(event, op)]
    # 64 heads in all, 500 tokens, head size 64: gradients of query, key and value come first and outlive the op.
    heads = meta(4, 500, 16, 64).transpose(1, 2)
    predicted = script(
        f"aten.{op}.default",
        heads, heads, heads, heads, None, heads, None, None, None, 0.0, [True] * 3 + [False], True,
        out=(heads,) * 3, device=A100,
    )  # fmt: skip
    gradients = [("alloc", 4 * 500 * 16 * 64 * 4)] * 3
    one = gradients + played(predicted)
    layers = len(real) // len(one)
    assert layers == 22
    assert steps(real) == one * layers


def test_each_thread_gets_one_workspace_with_its_first_product(monkeypatch):
    monkeypatch.setenv(VARIABLE, "2.6.0")  # of the run; from 2.15 on it is taken for each call
    real = [event for event in events("kkaitlyn_memory_ctx128_fullstep") if inside(event, "getNewWorkspace")]
    forward = script("aten.mm.default", meta(8, 8), meta(8, 8), out=meta(8, 8), device=H100)
    backward = script("aten.mm.default", meta(8, 8), meta(8, 8), out=meta(8, 8), device=H100, in_backward=True)
    assert steps(real) == [("alloc", size) for _, size in played(forward) + played(backward)]
    assert {scratch.key for part in (forward, backward) for scratch in part.after} == {
        "cublas:forward",
        "cublas:backward",
    }
