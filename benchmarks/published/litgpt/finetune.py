"""The loops of finetune/{lora,adapter,adapter_v2,full}.py, with their local variables, on batches of given lengths."""

from collections.abc import Iterator
from itertools import chain, repeat
from typing import Any

import torch
from litgpt import adapter, adapter_v2, lora
from litgpt.model import GPT
from litgpt.utils import chunked_cross_entropy

from memplan.job.source import ModelSource
from published.litgpt.fabric import load_checkpoint, make_fabric
from published.litgpt.recipes import ALPACA, Recipe

SETTINGS = ("lora_query", "lora_key", "lora_value", "lora_projection", "lora_mlp", "lora_head")
DEFAULT_SETTINGS = frozenset({"lora_query", "lora_value"})
CHUNK = 128
"""``lm_head_chunk_size`` of every script but full.py."""
SANITY_CHECKS = 2
"""Batches that ``validate`` takes before training ("sanity check")."""


def source(recipe: Recipe) -> ModelSource:
    """A recipe as memplan takes it: ``main`` up to the loop, then the loop, an iteration or a step at a time."""
    program = _Finetuning(recipe)
    return ModelSource(
        model=program.model,
        batch=lambda *_: (),
        optimizer=program.optimizer,
        train_step=program.step,
    )


class _Finetuning:
    """One run.

    Args:
        recipe: What it runs.
    """

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._fabric: Any = None
        self._loop: Iterator[None] | None = None

    def model(self) -> torch.nn.Module:
        """``main``: build on the device, mark what is trained, load."""
        self._fabric = make_fabric(self._recipe)
        with self._fabric.init_module(empty_init=False):
            model = _build(self._recipe)
        model = self._fabric.setup_module(model)
        load_checkpoint(model, self._recipe.model)
        model.max_seq_length = self._recipe.length
        return model

    def optimizer(self, parameters: Any) -> Any:
        """``main``: torch's AdamW, or bitsandbytes' paged one with 4-bit layers."""
        made: torch.optim.Optimizer
        if self._recipe.quantize:
            import bitsandbytes

            made = bitsandbytes.optim.PagedAdamW(list(parameters), lr=2e-4)
        else:
            made = torch.optim.AdamW([each for each in parameters if each.requires_grad], lr=2e-4)
        return self._fabric.setup_optimizers(made)

    def step(self, model: torch.nn.Module, optimizer: Any, _: object) -> None:
        """Go on with the loop."""
        if self._loop is None:
            self._loop = _fit(self._fabric, model, optimizer, self._recipe)
        next(self._loop)


def _build(recipe: Recipe) -> torch.nn.Module:
    match recipe.method:
        case "lora":
            on = dict.fromkeys(SETTINGS if recipe.everywhere else DEFAULT_SETTINGS, True)
            layers = {setting: setting in on for setting in SETTINGS}
            model = lora.GPT.from_name(
                recipe.model, lora_r=recipe.rank, lora_alpha=16, lora_dropout=recipe.dropout, **layers
            )
            lora.mark_only_lora_as_trainable(model)
        case "adapter":
            model = adapter.GPT.from_name(recipe.model)
            adapter.mark_only_adapter_as_trainable(model)
        case "adapter_v2":
            model = adapter_v2.GPT.from_name(recipe.model)
            adapter_v2.mark_only_adapter_v2_as_trainable(model)
        case _:
            model = GPT.from_name(recipe.model)
    made: torch.nn.Module = model
    return made


def _batch(fabric: Any, recipe: Recipe, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """``get_batch``: made on the host, moved to the device."""
    tokens = torch.zeros(recipe.micro_batch, length, dtype=torch.int64, device="cpu")
    labels = torch.zeros(recipe.micro_batch, length, dtype=torch.int64, device="cpu")
    moved: tuple[torch.Tensor, torch.Tensor] = fabric.to_device((tokens, labels))
    return moved


@torch.no_grad()
def _validate(fabric: Any, model: Any, recipe: Recipe) -> None:
    """``validate``."""
    model.eval()
    losses = torch.zeros(SANITY_CHECKS)
    for k in range(SANITY_CHECKS):
        input_ids, targets = _batch(fabric, recipe, ALPACA)
        logits = model(input_ids)
        losses[k] = chunked_cross_entropy(logits[..., :-1, :], targets[..., 1:], chunk_size=0)
    model.train()


def _fit(fabric: Any, model: Any, optimizer: Any, recipe: Recipe) -> Iterator[None]:
    """``fit`` (``train`` in 2023). ``logits`` lives until the next forward has run, and with it the former graph."""
    _validate(fabric, model, recipe)
    accumulate = 2 if recipe.repeats_longest else 128 // recipe.micro_batch
    lengths = repeat(recipe.length) if recipe.repeats_longest else chain((recipe.length,), repeat(ALPACA))
    chunks = {} if recipe.method == "full" else {"lm_head_chunk_size": CHUNK}
    for iteration, length in enumerate(lengths, start=1):
        input_ids, targets = _batch(fabric, recipe, length)
        is_accumulating = iteration % accumulate != 0
        with fabric.no_backward_sync(model, enabled=is_accumulating):
            logits = model(input_ids, **chunks)
            if chunks:
                # shift the targets such that output n predicts token n+1
                logits[-1] = logits[-1][..., :-1, :]
                loss = chunked_cross_entropy(logits, targets[..., 1:])
            else:
                loss = chunked_cross_entropy(logits[..., :-1, :], targets[..., 1:])
            fabric.backward(loss / accumulate)
        if recipe.repeats_longest:
            # The hub's release logs a running mean under the loss's name.
            loss = loss.item()
        if not is_accumulating:
            optimizer.step()
            optimizer.zero_grad()
        if not is_accumulating or not recipe.repeats_longest:
            yield
