"""What one step of ``--mode generate`` is: the target's own ``generate``, else that of transformers, as it is."""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain, repeat
from typing import Any

import torch

from memplan.errors import EstimateError, UsageError
from memplan.job.source import ModelSource

Generate = Callable[[torch.nn.Module, Any], Any]
"""``(model, batch)`` → whatever generation returns."""

_EXAMPLE = "define  def generate(model, batch): ...  in the target file, or give a transformers model that can generate"


def generator(
    source: ModelSource, model: torch.nn.Module, new_tokens: int, *, cached: Callable[[Any], None] = lambda _: None
) -> Generate:
    """How the job generates.

    Args:
        source: The target; its own ``generate`` comes first.
        model: The model built from it.
        new_tokens: Tokens to decode after the prompt.
        cached: Told of every forward's output, which holds the cache.

    Returns:
        One whole generation: greedy, and as long as it may be, since no sequence ends before the last token.

    Raises:
        UsageError: The target has no ``generate`` and its model is none of transformers' generating ones.
    """
    if source.generate is not None:
        return source.generate
    can_generate: Any = getattr(model, "can_generate", None)
    if can_generate is None or not can_generate():
        raise UsageError(f"{type(model).__name__} cannot generate", where="--mode generate", hint=_EXAMPLE)
    return _transformers(new_tokens, source.generate_inputs, cached)


def _transformers(new_tokens: int, keywords: Mapping[str, Any], cached: Callable[[Any], None]) -> Generate:
    # A generation takes as long to trace as hundreds of forward passes. The first one is there only to leave an output
    # behind, as every later one finds one, so one token is enough of it.
    lengths = chain([1], repeat(new_tokens))

    def generate(model: Any, batch: Any) -> Any:
        length = next(lengths)
        inputs = _inputs(batch)
        with _quiet(), _watched(model, cached):
            output = model.generate(**inputs, **_greedy(model), **keywords, max_new_tokens=length)
        _check_length(model, inputs, output, length)
        return _padded(output, new_tokens - length)

    return generate


@contextmanager
def _watched(model: torch.nn.Module, cached: Callable[[Any], None]) -> Iterator[None]:
    hook = model.register_forward_hook(lambda _, __, output: cached(output))
    try:
        yield
    finally:
        hook.remove()


@contextmanager
def _quiet() -> Iterator[None]:
    """Advice that transformers gives for values (padding on the wrong side) means nothing where there are none."""
    from transformers.utils import logging as transformers_logging

    verbosity = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity)


def _inputs(batch: Any) -> dict[str, Any]:
    """The batch as keywords; labels, which a batch made for training has, are nothing to generate from."""
    if isinstance(batch, Mapping):
        return {name: value for name, value in batch.items() if name != "labels"}
    return {"inputs": batch[0] if isinstance(batch, list | tuple) else batch}


def _greedy(model: Any) -> dict[str, Any]:
    """Options without chance and without an early end; what pads is still what would have padded."""
    own = model.generation_config
    ends = own.eos_token_id
    pads = own.pad_token_id if own.pad_token_id is not None else ends[0] if isinstance(ends, list) else ends
    return {"do_sample": False, "eos_token_id": None, "pad_token_id": pads}


def _check_length(model: Any, inputs: Mapping[str, Any], output: Any, length: int) -> None:
    """Generation must not have stopped at a condition on values that were only assumed."""
    prompt = inputs.get("input_ids", inputs.get("inputs"))
    if model.config.is_encoder_decoder or prompt is None or not isinstance(output, torch.Tensor):
        return
    made = output.shape[1] - prompt.shape[1]
    if made != length:
        raise EstimateError(f"generate() of {type(model).__name__} stopped after {made} of {length} tokens")


def _padded(output: Any, missing: int) -> Any:
    return torch.nn.functional.pad(output, (0, missing)) if missing and isinstance(output, torch.Tensor) else output
