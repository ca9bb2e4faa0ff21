"""From a configuration and a model class to a target: the library's own code, never its weights."""

import importlib.metadata
import importlib.util
import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from memplan.errors import UsageError
from memplan.job.as_loaded import HALF, LOADS_THE_TYPE, said
from memplan.job.depth import depth_of, halved
from memplan.job.huggingface.materialise import build
from memplan.job.huggingface.tasks import (
    DEFAULT_SEQ_LEN,
    WITHOUT_TOKENS,
    Task,
    batch_maker,
    denoising_loss,
    positions,
    text_part,
)
from memplan.job.source import ModelSource
from memplan.job.spec import JobSpec
from memplan.versions import at_least

if TYPE_CHECKING:
    import torch

# transformers 5, trainer.py: `config.use_cache = args.use_cache`, whose default is False (training_args.py).
TRAINER_TURNS_CACHE_OFF = 5


def require(library: str, *, where: str) -> None:
    """Check that a library of the ``hf`` extra is there, without importing it.

    Raises:
        UsageError: It is not; the hint says what to install.
    """
    if importlib.util.find_spec(library) is None:
        raise UsageError(f"this target needs {library}", where=where, hint='pip install "memplan[hf]"')


def source_of(
    model_class: Any,
    config: Any,
    task: Task,
    *,
    spec: JobSpec,
    default_seq_len: int | None = None,
    own_head: bool = False,
    provenance: Mapping[str, str] | None = None,
) -> ModelSource:
    """A target for one model class and configuration.

    Args:
        model_class: A transformers or diffusers model class.
        config: A transformers configuration, or a mapping of constructor arguments for diffusers.
        task: What it is trained for.
        spec: The job; mode and checkpointing are read.
        default_seq_len: Tokens per sample where the job gives none; None takes 2048, or the model's positions if fewer.
        own_head: The published weights have an output head of their own although the configuration class ties it.
        provenance: Where model and configuration came from.

    Returns:
        The target. Its model is built on demand, in training mode only for training jobs.
    """
    is_diffusion = task == "diffusion"
    config = config if is_diffusion else _fitting(model_class, config)
    if spec.halved is not None:
        config, said = halved(config, spec.halved)
        spec, provenance = replace(spec, halved=None), {**(provenance or {}), "halved": said}
    again = partial(
        source_of, model_class, task=task, spec=spec, default_seq_len=default_seq_len, own_head=own_head,
        provenance=provenance,
    )  # fmt: skip
    assumptions: dict[str, str] = {}
    if not is_diffusion:
        assumptions["use_cache"] = _settle_cache(config, spec)
    if not default_seq_len:
        default_seq_len = min(positions(config) or DEFAULT_SEQ_LEN, DEFAULT_SEQ_LEN)
    batch_config = _Arguments(model_class, config) if is_diffusion else config
    return ModelSource(
        model=_builder(model_class, config, spec, own_head=own_head),
        batch=batch_maker(task, batch_config, default_seq_len=default_seq_len, mode=spec.mode),
        loss=denoising_loss if is_diffusion else None,
        default_seq_len=None if task in WITHOUT_TOKENS else default_seq_len,
        depth=None if is_diffusion else depth_of(config, again),
        assumptions=() if is_diffusion else _type_said(config, spec),
        provenance=_inputs_said(task, labels=spec.mode == "train") | assumptions | dict(provenance or {}),
    )


def _fitting(model_class: Any, config: Any) -> Any:
    """The text part of a composite configuration where the head is a text model's, as transformers' AutoModel does."""
    wanted = getattr(model_class, "config_class", None)
    if not wanted or isinstance(config, wanted):
        return config
    text = text_part(config)
    return text if isinstance(text, wanted) else config


class _Arguments:
    """A diffusers model's constructor arguments, defaults included, read as attributes like a configuration's."""

    def __init__(self, model_class: Any, given: Mapping[str, Any]) -> None:
        parameters = inspect.signature(model_class.__init__).parameters
        self.__dict__ |= {name: parameter.default for name, parameter in parameters.items()} | dict(given)


def said_untied(config: Any, said: Mapping[str, Any]) -> bool:
    """Does a configuration say ``tie_word_embeddings = false`` where its class insists on true?

    T5's does (transformers 5, T5Config.__post_init__): whether the head is tied is then decided by the checkpoint,
    which is never loaded here.
    """
    return said.get("tie_word_embeddings") is False and bool(getattr(config, "tie_word_embeddings", False))


def _builder(model_class: Any, config: Any, spec: JobSpec, *, own_head: bool) -> "Callable[[], torch.nn.Module]":
    def make() -> "torch.nn.Module":
        made: torch.nn.Module = model_class(**config) if isinstance(config, Mapping) else model_class(config)
        if own_head:
            _untie_head(made)
        return made

    def model() -> "torch.nn.Module":
        built = build(make)
        if spec.checkpoint == "full":
            _checkpoint(built)
        return built.train(spec.mode == "train")

    return model


def _untie_head(model: Any) -> None:
    import torch

    head = model.get_output_embeddings()
    head.weight = torch.nn.Parameter(torch.empty_like(head.weight))


def _checkpoint(model: Any) -> None:
    """Turn on the library's own checkpointing of every block, by the newest name that it has."""
    names = ("activation_checkpointing_enable", "gradient_checkpointing_enable", "enable_gradient_checkpointing")
    name = next(name for name in names if hasattr(model, name))
    try:
        getattr(model, name)()
    except ValueError as error:
        raise UsageError(
            f"{type(model).__name__} does not support checkpointing", where="--checkpoint full", hint="use a plan file"
        ) from error


def _settle_cache(config: Any, spec: JobSpec) -> str:
    """Set ``use_cache`` as a Trainer would, and say so: a returned key-value cache lives as long as the output."""
    text = text_part(config)
    if not hasattr(text, "use_cache"):
        return "the model has no key-value cache"
    if spec.mode != "train":
        return f"{text.use_cache}: the configuration's own"
    version = importlib.metadata.version("transformers")
    if spec.checkpoint == "none" and int(version.split(".")[0]) < TRAINER_TURNS_CACHE_OFF:
        return f"{text.use_cache}: the configuration's own, which the Trainer of transformers {version} keeps"
    text.use_cache = False
    config.use_cache = False
    return "False: as Trainer sets it under checkpointing, and from transformers 5 on always"


def _type_said(config: Any, spec: JobSpec) -> tuple[str, ...]:
    """Say what type weights have where nobody gave a precision, and where transformers loads them in another."""
    version = importlib.metadata.version("transformers")
    dtype = getattr(config, "dtype", None) or getattr(text_part(config), "dtype", None)
    loaded = str(dtype).removeprefix("torch.")
    if stands := said(spec):
        return stands
    is_given = spec.provenance.get("precision", "default") != "default" or spec.precision != "fp32"
    if is_given or loaded not in HALF or not at_least(version, LOADS_THE_TYPE):
        return ()
    asked = f"--precision {HALF[loaded]}"
    return (f"weights are fp32; transformers {version} loads them in {loaded}, their configuration's type: {asked}",)


def _inputs_said(task: Task, *, labels: bool) -> dict[str, str]:
    and_labels = " and labels" if labels else ""
    match task:
        case "causal-lm":
            inputs = f"input_ids{and_labels}, no attention_mask: sequences are packed, none is padded"
        case "image-classification":
            inputs = f"pixel_values{and_labels}"
        case "speech-seq2seq":
            inputs = f"input_features of the full window{and_labels}"
        case "diffusion":
            inputs = "noisy sample, timestep and conditions; text encoders and autoencoder are not on the device"
        case _:
            inputs = f"tokens{and_labels}, with an attention_mask as padded batches have"
    return {"batch": inputs}
