"""``hf:`` targets: a transformers configuration on this disk, or on the hub where the job allows network access."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memplan.errors import UsageError
from memplan.job.huggingface.build import require, said_untied, source_of
from memplan.job.huggingface.tasks import Task
from memplan.job.source import ModelSource
from memplan.job.spec import JobSpec

# transformers' own lists of heads (models/auto/modeling_auto.py), the likeliest reading of a bare configuration first.
_HEADS: Mapping[str, Task] = {
    "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES": "causal-lm",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES": "speech-seq2seq",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES": "seq2seq",
    "MODEL_FOR_MASKED_LM_MAPPING_NAMES": "masked-lm",
    "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES": "image-classification",
    "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES": "sequence-classification",
    "MODEL_FOR_ZERO_SHOT_IMAGE_CLASSIFICATION_MAPPING_NAMES": "contrastive",
}


def hub_source(location: str, *, spec: JobSpec) -> ModelSource:
    """Load ``hf:LOCATION``.

    Args:
        location: A folder with ``config.json``, such a file, or ``org/name`` on the hub.
        spec: The job; the hub is asked only with ``allow_network``, code beside the configuration runs only with
            ``trust_remote_code``.

    Returns:
        The target. Its head is the class that ``architectures`` names, else the first that transformers has for the
        model type.

    Raises:
        UsageError: transformers is missing, there is no such configuration, it is broken, or no head can be trained.
    """
    where = f"hf:{location}"
    require("transformers", where=where)
    _check_location(location, spec)
    config, said = _read(location, spec, where)
    model_class, task, how = _head(config, location, spec, where)
    own_head = said_untied(config, said)
    return source_of(model_class, config, task, spec=spec, own_head=own_head, provenance={"model": f"{where} ({how})"})


def is_at_hand(location: str) -> bool:
    """Can a configuration be read without the network: is it a folder, a file, or was it fetched before?"""
    path = Path(location)
    return path.is_file() or (path / "config.json").is_file() or (_is_hub_name(location) and _was_fetched(location))


def _was_fetched(name: str) -> bool:
    try:
        from huggingface_hub import try_to_load_from_cache
    except ImportError:
        return False
    return isinstance(try_to_load_from_cache(name, "config.json"), str)


def _is_hub_name(location: str) -> bool:
    return location.count("/") == 1 and not location.startswith((".", "~", "/")) and not location.endswith("/")


def _check_location(location: str, spec: JobSpec) -> None:
    if spec.allow_network or is_at_hand(location):
        return
    hint = "name a folder that holds config.json, or that file"
    if _is_hub_name(location):
        hint = f"to fetch the configuration '{location}' from the hub, add --allow-network"
    path = Path(location, "config.json") if Path(location).is_dir() else location
    raise UsageError(f"there is no configuration '{path}'", where=f"hf:{location}", hint=hint)


def _read(location: str, spec: JobSpec, where: str) -> tuple[Any, Mapping[str, Any]]:
    """The configuration, and what its file says."""
    from transformers import AutoConfig, PretrainedConfig

    options = {"local_files_only": not spec.allow_network}
    try:
        said, _rest = PretrainedConfig.get_config_dict(location, **options)
        config = AutoConfig.from_pretrained(location, trust_remote_code=spec.trust_remote_code, **options)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"transformers cannot read the configuration: {_first_line(error)}", where=where) from error
    return config, said


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0]


def _head(config: Any, location: str, spec: JobSpec, where: str) -> tuple[Any, Task, str]:
    import transformers
    from transformers.models.auto import modeling_auto

    named = (getattr(config, "architectures", None) or [None])[0]
    for mapping, task in _HEADS.items():
        heads = getattr(modeling_auto, mapping, {})
        for names in heads.values():
            if named in ((names,) if isinstance(names, str) else names):
                return _class(config, named, location, spec), task, f"{named}, named by architectures"
    for mapping, task in _HEADS.items():
        names = getattr(modeling_auto, mapping, {}).get(config.model_type)
        if names:
            name = names if isinstance(names, str) else names[0]
            return getattr(transformers, name), task, f"{name}, transformers' head for {config.model_type}"
    raise UsageError(
        f"no head that could be trained is known for '{named or config.model_type}'",
        where=where,
        hint="write a model.py whose model() builds it, with its batch() and loss()",
    )


def _class(config: Any, name: str, location: str, spec: JobSpec) -> Any:
    import transformers

    remote = getattr(config, "auto_map", None) or {}
    reference = next((path for path in remote.values() if str(path).endswith(f".{name}")), None)
    if spec.trust_remote_code and reference:
        from transformers.dynamic_module_utils import get_class_from_dynamic_module

        return get_class_from_dynamic_module(reference, location, local_files_only=not spec.allow_network)
    return getattr(transformers, name)
