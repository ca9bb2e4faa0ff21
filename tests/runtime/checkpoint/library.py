"""Steps of models of a library."""

import inspect
from typing import Any

import pytest
import torch
from torch import nn

from memplan.runtime.checkpoint.records import SavedOp

transformers = pytest.importorskip("transformers")


TOKENS = torch.randint(0, 64, (2, 12), generator=torch.Generator().manual_seed(0))


def gpt2() -> Any:
    config = transformers.GPT2Config(vocab_size=64, n_embd=16, n_layer=4, n_head=2, n_positions=32)
    return transformers.GPT2LMHeadModel(config)


def llama() -> Any:
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=4, num_attention_heads=2,
        num_key_value_heads=1, attention_dropout=0.2,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


def t5() -> Any:
    config = transformers.T5Config(
        vocab_size=64, d_model=16, d_kv=8, d_ff=32, num_layers=3, num_heads=2, decoder_start_token_id=0, pad_token_id=0
    )
    return transformers.T5ForConditionalGeneration(config)


MODELS = {"gpt2": gpt2, "llama": llama, "t5": t5}
_ARGUMENTS = inspect.signature(transformers.LlamaForCausalLM.forward).parameters
CACHE = "cache" if "cache" in _ARGUMENTS else "past_key_values"
"""What a model takes its cache as: transformers 5.24 renamed the argument."""


def seeded(name: str) -> Any:
    torch.manual_seed(1)
    model = MODELS[name]()
    assert model.config.use_cache
    return model.train()


def step(model: nn.Module) -> dict[str, torch.Tensor]:
    torch.manual_seed(3)
    output = model(input_ids=TOKENS, labels=TOKENS, attention_mask=torch.ones_like(TOKENS))
    output.loss.backward()
    return {"loss": output.loss.detach(), "logits": output.logits.detach()} | {
        name: parameter.grad for name, parameter in model.named_parameters()
    }


# The second projection in a block: GPT-2's is ``addmm``, as it has a bias.
SAVED = {
    "gpt2": SavedOp(op="aten.addmm.default", calls=(0, 2)),
    "llama": SavedOp(op="aten.mm.default", calls=(1, 4)),
    "t5": SavedOp(op="aten.mm.default", calls=(0, 3)),
}
