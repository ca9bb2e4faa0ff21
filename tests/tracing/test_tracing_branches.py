"""transformers on fake tensors does what it does on real ones: no mask is written out where nothing is masked."""

from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from memplan.tracing.records import DeviceTraits
from memplan.tracing.tracing_branches import fakes_pass_for_real
from tests.support.libraries import library
from tests.tracing.jobs import source, trace

transformers = library("transformers", minversion="5.0")


class Wide(TorchDispatchMode):
    """Names of the ops that make a boolean tensor of queries by keys."""

    def __init__(self) -> None:
        super().__init__()
        self.masks: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and result.dtype == torch.bool and result.shape[-2:] == (8, 8):
            self.masks.append(str(func))
        return result


def _llama() -> torch.nn.Module:
    sizes = {"vocab_size": 50, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "attn_implementation": "sdpa", "use_cache": False}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, **heads))


def _batch(*, masked: bool, size: int = 2) -> dict[str, Any]:
    tokens = torch.ones(size, 8, dtype=torch.long)
    return {"input_ids": tokens, "labels": tokens} | ({"attention_mask": torch.ones_like(tokens)} if masked else {})


@pytest.mark.parametrize("masked", [False, True])
def test_a_real_step_writes_no_mask_out(masked: bool) -> None:
    with Wide() as seen:
        _llama()(**_batch(masked=masked))
    assert seen.masks == []


@pytest.mark.parametrize("masked", [False, True])
def test_nor_does_a_traced_one_so_that_attention_takes_the_kernel_without_masks(masked: bool) -> None:
    given = source(_llama, lambda size: _batch(masked=masked, size=size))
    made = trace(given, DeviceTraits(kind="cuda", capability=(8, 0)), precision="bf16")
    attention = {op.name for op in made.ops if op.name.startswith("aten._scaled_dot") and op.phase == "forward"}
    assert attention == {"aten._scaled_dot_product_flash_attention.default"}


def test_the_truth_is_told_again_afterwards() -> None:
    is_tracing = transformers.utils.import_utils.is_tracing
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(torch.ones(1))
        with fakes_pass_for_real():
            assert not is_tracing(fake)
        assert is_tracing(fake)
