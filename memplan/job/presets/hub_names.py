"""Which preset has the architecture of a model that the hub names."""

import re
from dataclasses import replace
from functools import cache

from memplan.job.presets.catalog import Preset, list_presets

_PAGE = re.compile(r"huggingface\.co/([^/]+/[^/#?]+)")
_TUNED = re.compile(r"-(instruct|chat|it|hf|base|pt)(?=$|-)")
"""Parts of names that tell of weights, not of the architecture."""

_OTHER_NAMES = {
    "vit-base-patch16-224.*": "vit-b-16",
    "vit-large-patch16-224.*": "vit-l-16",
    "swin-tiny-patch4-window7-224": "swin-tiny",
    "swin-base-patch4-window7-224.*": "swin-base",
    "convnext-tiny-224.*": "convnext-tiny",
    "convnext-base-224.*": "convnext-base",
}
"""Names on the hub (google, microsoft, facebook) of architectures whose presets have torchvision's."""

_VOCABULARIES = {
    "bert-base-cased": ("bert-base", 28_996),
    "bert-large-cased": ("bert-large", 28_996),
    "bert-base-multilingual-cased": ("bert-base", 119_547),
    "distilbert-base-cased": ("distilbert-base", 28_996),
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
    last = next((name for pattern, name in _OTHER_NAMES.items() if re.fullmatch(pattern, last)), last)
    by_id, short, plain = _names()
    return by_id.get(wanted) or short.get(last) or plain.get(_TUNED.sub("", last))


@cache
def _names() -> tuple[dict[str, Preset], ...]:
    by_id = {match[1].lower(): preset for preset in list_presets() if (match := _PAGE.search(preset.source))}
    by_id |= {preset.name: preset for preset in list_presets()}
    short = {key.rpartition("/")[2]: preset for key, preset in by_id.items()}
    return by_id, short, {_TUNED.sub("", key): preset for key, preset in short.items()}
