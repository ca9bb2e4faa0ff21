"""Tokenizers of the hub: as many words as the model has, and each word of a text is one of them."""

import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

from memplan.job.presets import Preset, find_preset
from memplan.job.presets.pipelines import parts_of

Assume = Callable[[str], None]
_SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "cls_token": "<cls>", "sep_token": "<sep>",
            "mask_token": "<mask>"}  # fmt: skip
_TEMPLATE = "{% for message in messages %}{{ message['role'] }} : {{ message['content'] }} \n{% endfor %}"
_MARKER = re.compile(r"<[^<>\s]+>|\[[^\[\]\s]+\]")
"""How tokens are written that stand for no text: ``<|im_end|>``, ``[PAD]``."""


def tokenizers(module: ModuleType, stack: ExitStack, assume: Assume, preset_of: Callable[[Any], Preset]) -> None:
    """Let ``from_pretrained`` of tokenizers find what the hub would have.

    Args:
        module: transformers.
        stack: Takes what is replaced.
        assume: Told what stands in for what.
        preset_of: The architecture that a name stands for.
    """

    def make(real: Any) -> Any:
        def from_pretrained(cls: Any, name: Any, *args: Any, **kwargs: Any) -> Any:
            if Path(str(name)).exists():
                return real(cls, name, *args, **kwargs)
            part = parts_of(str(name)).get(kwargs.get("subfolder") or "")
            preset = preset_of(name) if part is None else find_preset("clip-vit-l-14")
            size = _vocabulary_size(preset.config if part is None else part) or 32_000
            assume(f"the tokenizer of {name} makes one of {size:,} tokens of each word")
            return _words(size, preset, kwargs, lambda marker: assume(f"{marker} is a token of {name}"))

        return from_pretrained

    for kind in (module.AutoTokenizer, module.PreTrainedTokenizerBase):
        real = vars(kind)["from_pretrained"].__func__
        stack.enter_context(mock.patch.object(kind, "from_pretrained", classmethod(make(real))))


def _words(size: int, preset: Preset, kwargs: Mapping[str, Any], named: Callable[[str], None]) -> Any:
    """A tokenizer with as many words as the model has, which takes each word of a text for a token."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    special = dict(_SPECIAL)
    if preset.task != "causal-lm":
        special["pad_token"] = "<pad>"  # noqa: S105 - no password.
    words = [*special.values(), *(f"w{place}" for place in range(size - len(special)))]
    inner = Tokenizer(
        models.WordLevel({word: place for place, word in enumerate(words)}, unk_token=special["unk_token"])
    )
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    longest = kwargs.get("model_max_length") or preset.max_seq_len or preset.config.get("max_position_embeddings")
    tokenizer = _kind(named)(tokenizer_object=inner, model_max_length=longest or 2048, **special)
    tokenizer.chat_template = _TEMPLATE
    tokenizer.padding_side = kwargs.get("padding_side", "right")
    return tokenizer


def _kind(named: Callable[[str], None]) -> Any:
    """A class of tokenizers whose vocabulary has the markers that a program looks for: it knows its model."""
    from transformers import PreTrainedTokenizerFast

    class Words(PreTrainedTokenizerFast):
        def get_vocab(self) -> dict[str, int]:
            return _Vocabulary(super().get_vocab(), named)

    return Words


class _Vocabulary(dict[str, int]):
    """Words and their places; a marker that is looked for is there, in the place of the unknown word.

    Args:
        words: The others.
        named: Told of such markers.
    """

    def __init__(self, words: Mapping[str, int], named: Callable[[str], None]) -> None:
        super().__init__(words)
        self._named = named

    def __contains__(self, word: object) -> bool:
        return super().__contains__(word) or self._is_marker(word)

    def __missing__(self, word: str) -> int:
        if self._is_marker(word):
            return self[_SPECIAL["unk_token"]]
        raise KeyError(word)

    def _is_marker(self, word: object) -> bool:
        is_marker = isinstance(word, str) and _MARKER.fullmatch(word) is not None
        if is_marker:
            self._named(str(word))
        return is_marker


def _vocabulary_size(config: Mapping[str, Any]) -> int | None:
    sizes = (part.get("vocab_size") for part in (config, config.get("text_config") or {}))
    return next((size for size in sizes if isinstance(size, int)), None)
