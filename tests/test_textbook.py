"""The formulas of textbooks, within the terms that they state: traced bytes against arithmetic on shapes alone."""

import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from memplan.job.adapters import Lora
from memplan.tracing.records import DeviceTraits, Trace
from tests.support.libraries import library
from tests.tracing.jobs import source, trace

transformers = library("transformers")

CUDA = DeviceTraits(kind="cuda", capability=(9, 0))
VOCABULARY = 64


def net(width: int = 32, depth: int = 3) -> nn.Module:
    return nn.Sequential(*(nn.Linear(width, width) for _ in range(depth)))


def of_net(width: int = 32, depth: int = 3, **options: Any) -> Trace:
    job = source(
        lambda: net(width, depth), lambda size: torch.zeros(size, width), loss=lambda output, _: output.float().sum()
    )
    return trace(job, CUDA, **options)


def count(width: int, depth: int) -> int:
    return depth * (width * width + width)


def total(found: Trace, role: str) -> int:
    return sum(each.nbytes for each in found.storages if each.role == role and each.place == "device")


def alive_before_backward(found: Trace) -> list[int]:
    """Bytes of each storage that a forward op of the last step made and that is alive when its backward begins."""
    step = found.steps[-1]
    first = next(op.index for op in found.ops[step.first_op :] if op.phase == "backward")
    alive: set[int] = set()
    for event in found.events[step.first_event : step.end_event]:
        if event.op < first and found.storages[event.storage].role == "intermediate":
            (alive.add if event.action == "alloc" else alive.discard)(event.storage)
    return [found.storages[each].nbytes for each in alive]


shapes = given(width=st.integers(1, 70), depth=st.integers(1, 4))


@settings(max_examples=2, deadline=None)
@shapes
def test_weights_are_parameters_times_bytes(width: int, depth: int) -> None:
    for precision, size in (("fp32", 4), ("bf16", 2), ("fp16", 2)):
        found = of_net(width, depth, precision=precision, mode="inference")
        assert total(found, "parameter") == size * count(width, depth)


@settings(max_examples=2, deadline=None)
@shapes
def test_adamw_keeps_eight_bytes_a_parameter_in_fp32_and_sgd_none(width: int, depth: int) -> None:
    assert total(of_net(width, depth, optimizer="adamw"), "optimizer_state") == 8 * count(width, depth)
    assert total(of_net(width, depth, optimizer="sgd"), "optimizer_state") == 0
    assert total(of_net(width, depth, optimizer="sgd-momentum"), "optimizer_state") == 4 * count(width, depth)


@settings(max_examples=2, deadline=None)
@shapes
def test_a_cast_model_keeps_four(width: int, depth: int) -> None:
    assert total(of_net(width, depth, optimizer="adamw", precision="bf16"), "optimizer_state") == 4 * count(
        width, depth
    )


@pytest.mark.parametrize("precision", ["fp32", "bf16-mixed"])
def test_training_takes_sixteen_bytes_a_parameter_and_autocast_two_more(precision: Any) -> None:
    width, depth = 64, 3
    found = of_net(width, depth, optimizer="adamw", precision=precision)
    steps = len(found.steps)
    gradients = total(found, "gradient") // steps
    states = total(found, "parameter") + gradients + total(found, "optimizer_state")
    assert states == 16 * count(width, depth)
    casts = alive_before_backward(found).count(2 * width * width)
    # Autocast keeps a half-precision copy of every weight (not of small biases, which are of another size) until its
    # context ends; then backward keeps those that it needs: the first layer's input asks for no gradient.
    assert casts == (0 if precision == "fp32" else depth - 1)


class Attention(nn.Module):
    """Attention as it is taught, or by the fused kernel."""

    def __init__(self, heads: int, width: int, *, fused: bool) -> None:
        super().__init__()
        self.heads, self.fused = heads, fused
        self.inner = nn.Linear(width, 3 * width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.inner(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if self.fused:
            return functional.scaled_dot_product_attention(q, k, v, dropout_p=0.1)
        scores = (q @ k.transpose(-2, -1) / math.sqrt(width // self.heads)).softmax(-1)
        return functional.dropout(scores, 0.1) @ v


def kept_by_attention(length: int, *, fused: bool, heads: int = 4, batch: int = 2) -> int:
    job = source(
        lambda: Attention(heads, 64, fused=fused),
        lambda size: torch.zeros(size, length, 64),
        loss=lambda output, _: output.sum(),
    )
    return sum(alive_before_backward(trace(job, CUDA, precision="bf16", batch_size=batch)))


def second_difference(function: Callable[[int], int], start: int, step: int) -> int:
    """Zero for what grows linearly; twice the coefficient times the step squared for what grows quadratically."""
    return function(start) - 2 * function(start + step) + function(start + 2 * step)


def test_standard_attention_keeps_five_bytes_for_every_pair_of_tokens_and_head() -> None:
    # Korthikanti et al. 2022, section 4.1: softmax 2, dropout's mask 1, its output 2 bytes.
    batch, heads, step = 2, 4, 128
    found = second_difference(lambda length: kept_by_attention(length, fused=False), 128, step)
    assert found == 2 * 5 * batch * heads * step**2


def test_flash_attention_is_linear() -> None:
    assert second_difference(lambda length: kept_by_attention(length, fused=True), 128, 128) == 0


LAYERS, HEADS, SIZE, PROMPT, NEW = 2, 4, 8, 7, 3


def llama(kv_heads: int, **changes: Any) -> Callable[[], nn.Module]:
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=HEADS * SIZE,
        intermediate_size=16,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=kv_heads,
        **changes,
    )
    return lambda: transformers.LlamaForCausalLM(config)


def most_alive(found: Trace, size: int) -> int:
    """The largest number of storages of this size that are alive at once in the last step."""
    live = most = 0
    step = found.steps[-1]
    for event in found.events[step.first_event : step.end_event]:
        if found.storages[event.storage].nbytes == size:
            live += 1 if event.action == "alloc" else -1
            most = max(most, live)
    return most


def generated(model: Callable[[], nn.Module], **options: Any) -> Trace:
    job = source(model, lambda size: {"input_ids": torch.ones(size, PROMPT, dtype=torch.int64)})
    return trace(job, CUDA, mode="generate", max_new_tokens=NEW, **options)


@pytest.mark.parametrize(
    ("kv_heads", "precision", "width"),
    [(HEADS, "fp32", 4), (2, "bf16", 2), (1, "fp32", 4)],
    ids=["multi-head", "grouped", "multi-query"],
)
def test_the_cache_is_two_times_layers_times_heads_times_size_times_tokens(
    kv_heads: int, precision: Any, width: int
) -> None:
    batch = 3
    # The last token is chosen and never fed.
    tokens = PROMPT + NEW - 1
    found = generated(llama(kv_heads), batch_size=batch, precision=precision)
    one = batch * kv_heads * SIZE * tokens * width
    # Two for each layer; while one is made longer, the old and the new are there.
    assert most_alive(found, one) == 2 * LAYERS
    assert 2 * LAYERS * one == 2 * LAYERS * kv_heads * SIZE * tokens * width * batch


def test_a_sliding_window_bounds_the_cache() -> None:
    window = 5
    config = transformers.MistralConfig(
        vocab_size=VOCABULARY,
        hidden_size=HEADS * SIZE,
        intermediate_size=16,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=2,
        sliding_window=window,
    )
    found = generated(lambda: transformers.MistralForCausalLM(config))
    per_token = 2 * SIZE * 4
    assert most_alive(found, window * per_token) >= 2 * LAYERS
    # Without a window, it would end so long.
    assert most_alive(found, (PROMPT + NEW - 1) * per_token) == 0
    # Where the formula breaks: what is cached of a prompt is a view, which keeps all of it until the next token.
    assert most_alive(found, PROMPT * per_token) >= 2 * LAYERS


def test_latent_attention_caches_one_latent_vector_and_one_rotary_part_a_token() -> None:
    # DeepSeek-V2 (2024), section 2.1.3. Older releases of transformers cache keys and values of every head.
    module = pytest.importorskip("transformers.models.deepseek_v3.modeling_deepseek_v3")
    if not hasattr(module.DeepseekV3Attention, "expand_kv"):
        pytest.skip("this transformers caches whole heads")
    latent, rope, nope, value = 20, 8, 16, 12
    config = transformers.DeepseekV3Config(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=16,
        moe_intermediate_size=16,
        num_hidden_layers=LAYERS,
        first_k_dense_replace=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        kv_lora_rank=latent,
        q_lora_rank=12,
        qk_rope_head_dim=rope,
        qk_nope_head_dim=nope,
        v_head_dim=value,
    )
    found = generated(lambda: transformers.DeepseekV3ForCausalLM(config))
    tokens = PROMPT + NEW - 1
    assert most_alive(found, 4 * latent * tokens) == LAYERS
    assert most_alive(found, 4 * rope * tokens) == LAYERS
    # Keys and values of all heads are made of it, one layer at a time.
    assert most_alive(found, 4 * HEADS * (rope + nope) * tokens) < LAYERS


@settings(max_examples=2, deadline=None)
@given(rank=st.integers(1, 8), width=st.integers(8, 40), depth=st.integers(1, 3))
def test_lora_trains_rank_times_in_and_out(rank: int, width: int, depth: int) -> None:
    pytest.importorskip("peft")
    found = of_net(width, depth, lora=Lora(rank=rank))
    trained = depth * rank * (width + width)
    assert found.model.trainable_parameters == trained
    assert total(found, "optimizer_state") == 8 * trained


@pytest.mark.parametrize(("how", "bits"), [("nf4", 4.5), ("nf4-double", 4.127)])
def test_nf4_takes_the_bits_that_the_paper_says(how: Any, bits: float) -> None:
    # Dettmers et al. 2023, section 3: 0.5 bits for constants, 0.127 when they are quantised too.
    pytest.importorskip("bitsandbytes", minversion="0.46")
    width, depth = 512, 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = of_net(width, depth, quantize=how, mode="inference", precision="bf16")
    weights = [each for each in found.storages if each.role == "parameter" and ".weight" in each.name]
    # The tables of 16 and of 256 values have a constant size.
    codes = sum(each.nbytes for each in weights if not each.name.endswith(("code", "offset")))
    assert 8 * codes / (depth * width * width) == pytest.approx(bits, abs=0.001)
