"""Which preset has the architecture of a model that the hub names."""

import re
from dataclasses import replace
from functools import cache

from memplan.job.presets.catalog import Preset, list_presets

_PAGE = re.compile(r"huggingface\.co/([^/]+/[^/#?]+)")
_TUNED = re.compile(
    r"-(instruct|chat|it|hf|base|pt|deduped|thinking|2507|finetuned.*)(?=$|-)|^meta-|(?<=^qwen2\.5)-(coder|math)"
)
"""Parts of names that tell of weights, not of the architecture."""

_OTHER_NAMES = {
    r"qwen2-(0\.5b|1\.5b|7b|72b)(-instruct)?": r"qwen2.5-\1",
    r"smollm-(135m|360m|1\.7b)(-instruct)?": r"smollm2-\1",
    r"bloomz-(560m)": r"bloom-\1",
    r"t5-v1_1-(small|base|large|xl)": r"flan-t5-\1",
    "deepseek-r1-distill-llama-(8b|70b)": r"llama-3.1-\1",
    "deepseek-r1-distill-qwen-(7b|14b|32b)": r"qwen2.5-\1",
    "tinyllama_v1.1": "tinyllama-1.1b",
    "zephyr-7b-(alpha|beta)": "mistral-7b-v0.1",
    "(llama-7b(-hf)?|vicuna-7b-v1.5)": "llama-2-7b",
    "deit-base-patch16-224": "vit-b-16",
    "vit-base-patch16-224.*": "vit-b-16",
    "vit-large-patch16-224.*": "vit-l-16",
    "swin-tiny-patch4-window7-224": "swin-tiny",
    "swin-base-patch4-window7-224.*": "swin-base",
    "convnext-tiny-224.*": "convnext-tiny",
    "convnext-base-224.*": "convnext-base",
}
"""Names on the hub of weights, releases and ports of architectures that a preset has under another name."""

_VOCABULARIES = {
    "bert-base-cased": ("bert-base", 28_996),
    "bert-large-cased": ("bert-large", 28_996),
    "bert-base-multilingual-cased": ("bert-base", 119_547),
    "bert-base-ner": ("bert-base", 28_996),
    "distilbert-base-cased": ("distilbert-base", 28_996),
    "distilbert-base-multilingual-cased": ("distilbert-base", 119_547),
    "bart-large-cnn": ("bart-large", 50_264),
    "codet5-base": ("t5-base", 32_100),
    "whisper-tiny.en": ("whisper-tiny", 51_864),
    "whisper-base.en": ("whisper-base", 51_864),
    "whisper-small.en": ("whisper-small", 51_864),
    "whisper-medium.en": ("whisper-medium", 51_864),
}
"""Names on the hub of architectures whose presets have another vocabulary, and its size (each one's config.json)."""


def preset_of(name: str) -> Preset | None:
    """Return the preset of a name on the hub, with its organisation or without; tuned weights have their base's."""
    wanted = name.lower()
    last = wanted.rpartition("/")[2]
    if last in _VOCABULARIES:
        preset, size = _VOCABULARIES[last]
        base = _names()[0][preset]
        return replace(base, config={**base.config, "vocab_size": size})
    last = next(
        (found.expand(name) for pattern, name in _OTHER_NAMES.items() if (found := re.fullmatch(pattern, last))), last
    )
    by_id, short, plain = _names()
    return by_id.get(wanted) or short.get(last) or plain.get(_TUNED.sub("", last))


@cache
def _names() -> tuple[dict[str, Preset], ...]:
    by_id = {match[1].lower(): preset for preset in list_presets() if (match := _PAGE.search(preset.source))}
    by_id |= {preset.name: preset for preset in list_presets()}
    short = {key.rpartition("/")[2]: preset for key, preset in by_id.items()}
    return by_id, short, {_TUNED.sub("", key): preset for key, preset in short.items()}
