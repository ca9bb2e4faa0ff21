"""Processors of pictures and sound of the hub: made with the defaults of their classes."""

import importlib
import inspect
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

from memplan.errors import EstimateError
from memplan.job.presets import Preset

Assume = Callable[[str], None]
_AUTO = {
    "AutoImageProcessor": ("image_processing_auto", "IMAGE_PROCESSOR_MAPPING_NAMES"),
    "AutoFeatureExtractor": ("feature_extraction_auto", "FEATURE_EXTRACTOR_MAPPING_NAMES"),
    "AutoProcessor": ("processing_auto", "PROCESSOR_MAPPING_NAMES"),
}
"""Class → module and table of the classes that it stands for, by type of model (transformers, models/auto)."""
_BASES = ("image_processing_base.ImageProcessingMixin", "feature_extraction_utils.FeatureExtractionMixin",
          "processing_utils.ProcessorMixin")  # fmt: skip


def processors(
    module: ModuleType, stack: ExitStack, assume: Assume, preset_of: Callable[[Any], Preset], tokenizer_of: Any
) -> None:
    """Let ``from_pretrained`` of processors find what the hub would have.

    Args:
        module: transformers.
        stack: Takes what is replaced.
        assume: Told what stands in for what.
        preset_of: The architecture that a name stands for.
        tokenizer_of: Makes the tokenizer of a name.
    """
    kinds: list[Any] = [getattr(module, name) for name in _AUTO if hasattr(module, name)]
    for path in _BASES:
        part, _, name = path.rpartition(".")
        kinds.append(getattr(importlib.import_module(f"{module.__name__}.{part}"), name))

    def make(real: Any) -> Any:
        def from_pretrained(cls: Any, name: Any, *args: Any, **kwargs: Any) -> Any:
            if Path(str(name)).exists():
                return real(cls, name, *args, **kwargs)
            preset = preset_of(name)
            kind = _class_of(module, cls, preset)
            if kind is None and cls.__name__ == "AutoProcessor":
                return tokenizer_of(name)
            if kind is None:
                raise EstimateError(f"{name} has no {cls.__name__.removeprefix('Auto')}")
            made = _made(module, kind, preset, lambda: tokenizer_of(name))
            assume(f"the {type(made).__name__} of {name} is made with the defaults of its class")
            return made

        return from_pretrained

    for kind in kinds:
        stack.enter_context(
            mock.patch.object(kind, "from_pretrained", classmethod(make(vars(kind)["from_pretrained"].__func__)))
        )


def _class_of(module: ModuleType, kind: Any, preset: Preset) -> Any:
    """The class that an ``Auto`` class stands for, None where there is none; any other is its own."""
    if kind.__name__ not in _AUTO:
        return kind
    part, table = _AUTO[kind.__name__]
    names = getattr(importlib.import_module(f"{module.__name__}.models.auto.{part}"), table)
    model_type = getattr(module, preset.config_class or "").model_type
    named = names.get(model_type)
    if isinstance(named, Mapping):
        named = named.get("torchvision") or named.get("pil")
    if isinstance(named, tuple):
        named = next((name for name in reversed(named) if name), None)
    if named is None and kind.__name__ == "AutoProcessor":
        # What has no processor of its own has a processor of pictures, or else a tokenizer (processing_auto.py).
        return _class_of(module, module.AutoImageProcessor, preset)
    return None if named is None else getattr(module, named)


def _made(module: ModuleType, kind: Any, preset: Preset, tokenizer: Callable[[], Any]) -> Any:
    parts = {"image_processor": "AutoImageProcessor", "feature_extractor": "AutoFeatureExtractor"}
    if not issubclass(kind, module.ProcessorMixin):
        size = preset.config.get("image_size")
        return kind(size={"height": size, "width": size}) if isinstance(size, int) else kind()
    arguments: dict[str, Any] = {}
    for name in inspect.signature(kind.__init__).parameters:
        if name in parts:
            arguments[name] = _made(module, _class_of(module, getattr(module, parts[name]), preset), preset, tokenizer)
        elif name == "tokenizer":
            arguments[name] = tokenizer()
    with mock.patch.object(kind, "check_argument_for_proper_class", create=True):
        return kind(**arguments)
