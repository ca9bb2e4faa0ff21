"""``main`` of generate/base.py: one prompt, fifty tokens."""

from typing import Any

import torch
from litgpt import GPT
from litgpt.generate.base import generate as generate_tokens

from memplan.job.source import ModelSource
from published.litgpt.fabric import load_checkpoint, make_fabric
from published.litgpt.recipes import NEW_TOKENS, PROMPT, TRACED_TOKENS, Recipe


def source(recipe: Recipe) -> ModelSource:
    """A recipe as memplan takes it."""

    def model() -> torch.nn.Module:
        fabric = make_fabric(recipe)
        with fabric.init_module(empty_init=True):
            made = GPT.from_name(recipe.model)
        with fabric.init_tensor():
            made.max_seq_length = PROMPT + NEW_TOKENS
            made.set_kv_cache(batch_size=1)
        made.eval()
        made = fabric.setup_module(made)
        load_checkpoint(made, recipe.model)
        return made

    def tokens(model: Any, prompt: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = generate_tokens(model, prompt, PROMPT + TRACED_TOKENS, temperature=0.8, top_k=200)
        return answer

    return ModelSource(model=model, batch=lambda *_: torch.zeros(PROMPT, dtype=torch.int64), generate=tokens)
