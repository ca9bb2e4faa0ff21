"""``preset:`` targets: from catalog facts to a model class and its configuration."""

import copy
from typing import Any

from memplan.errors import UsageError
from memplan.job.huggingface.build import require, said_untied, source_of
from memplan.job.presets.catalog import Preset, find_preset
from memplan.job.source import ModelSource
from memplan.job.spec import JobSpec


def preset_source(name: str, *, spec: JobSpec) -> ModelSource:
    """Load ``preset:NAME``: the architecture with the head of its task and inputs of the published sizes.

    Upper and lower case are the same.

    Raises:
        UsageError: No such preset, the library is missing or too old to know the architecture, or the sequence is
            longer than the model's learned positions.
    """
    preset = find_preset(name)
    where = f"preset:{preset.name}"
    _check_length(preset, spec, where)
    require(preset.library, where=where)
    model_class = _named(preset, preset.model_class, where)
    # The constructors keep and change what they are given; the catalog stays as it is.
    config: Any = copy.deepcopy(dict(preset.config))
    if preset.config_class:
        config = _named(preset, preset.config_class, where)(**config)
    return source_of(
        model_class,
        config,
        preset.task,
        spec=spec,
        default_seq_len=preset.seq_len,
        own_head=said_untied(config, preset.config),
        provenance={"model": f"{where}: {preset.library}.{preset.model_class}, figures from {preset.source}"},
    )


def _check_length(preset: Preset, spec: JobSpec, where: str) -> None:
    if spec.seq_len and preset.max_seq_len and spec.seq_len > preset.max_seq_len:
        raise UsageError(
            f"{preset.name} has learned positions for {preset.max_seq_len} tokens, not {spec.seq_len}",
            where=where,
            hint=f"give --seq-len {preset.max_seq_len} or less",
        )


def _named(preset: Preset, name: str, where: str) -> Any:
    import importlib

    library = importlib.import_module(preset.library)
    try:
        return getattr(library, name)
    except AttributeError as error:
        raise UsageError(
            f"{preset.library} {library.__version__} does not know {name}",
            where=where,
            hint=f"pip install --upgrade {preset.library}",
        ) from error
