"""``ds_config.json`` (deepspeed/runtime/config.py, 0.19.8)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, get_type_hints

from memplan.errors import MemplanError
from memplan.job.config_files.content import load
from memplan.job.config_files.source import FileSource
from memplan.job.config_files.values import choice, elements, norm, of_type, switch, whole, word
from memplan.job.parallel import Parallel
from memplan.job.zero import Zero

KEYS = frozenset({"zero_optimization", "train_micro_batch_size_per_gpu", "train_batch_size"})
"""What such a file has at least one of."""
_STAGE = "zero_optimization.stage"
_DEPRECATED: Mapping[str, str] = {"cpu_offload": "offload_optimizer", "cpu_offload_param": "offload_param"}
_UNREAD = (
    "torch_autocast.enabled", "tensor_parallel.autotp_size", "sequence_parallel_size", "zero_optimization.zenflow",
    "zero_optimization.zero_quantized_weights", "zero_optimization.zero_quantized_nontrainable_weights",
    "zero_optimization.zero_quantized_gradients", "zero_optimization.stage3_module_granularity_threshold",
    "zero_optimization.stage3_allgather_sequential", "zero_optimization.stage3_model_persistence_threshold",
)  # fmt: skip
_SECTION = "zero_optimization"
_OPTIMIZER, _PARAM = f"{_SECTION}.offload_optimizer", f"{_SECTION}.offload_param"

ZERO_KEYS: Mapping[str, tuple[str, ...]] = {
    "stage": (f"{_SECTION}.stage",),
    "offload_optimizer": (f"{_OPTIMIZER}.device",),
    "offload_param": (f"{_PARAM}.device",),
    "overlap_comm": (f"{_SECTION}.overlap_comm",),
    "contiguous_gradients": (f"{_SECTION}.contiguous_gradients",),
    "reduce_bucket_size": (f"{_SECTION}.reduce_bucket_size",),
    "allgather_bucket_size": (f"{_SECTION}.allgather_bucket_size",),
    "prefetch_bucket_size": (f"{_SECTION}.stage3_prefetch_bucket_size",),
    "max_live_parameters": (f"{_SECTION}.stage3_max_live_parameters",),
    "max_reuse_distance": (f"{_SECTION}.stage3_max_reuse_distance",),
    "param_persistence_threshold": (f"{_SECTION}.stage3_param_persistence_threshold",),
    "reduce_scatter": (f"{_SECTION}.reduce_scatter",),
    "round_robin_gradients": (f"{_SECTION}.round_robin_gradients",),
    "pin_memory": (f"{_OPTIMIZER}.pin_memory", f"{_PARAM}.pin_memory"),
    "param_buffer_count": (f"{_PARAM}.buffer_count",),
    "param_buffer_size": (f"{_PARAM}.buffer_size",),
    "param_max_in_cpu": (f"{_PARAM}.max_in_cpu",),
    "optimizer_buffer_count": (f"{_OPTIMIZER}.buffer_count",),
    "sub_group_size": (f"{_SECTION}.sub_group_size",),
    "hpz_partition_size": (f"{_SECTION}.zero_hpz_partition_size",),
    "gradient_accumulation_dtype": ("data_types.grad_accum_dtype",),
}
"""Field → its places."""

OPTIMIZERS: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "adamw": ("AdamW", {}),
    "adam": ("Adam", {"adam_w_mode": False}),
    "adagrad": ("Adagrad", {}),
    "lion": ("Lion", {}),
    "sgd": ("SGD", {}),
    "sgd-momentum": ("SGD", {"momentum": 0.9}),
    "adafactor": ("Adafactor", {}),
}
"""Optimizer → ``optimizer.type`` and ``params``: names that DeepSpeed knows, then those of torch.optim
(runtime/engine.py, ``_configure_basic_optimizer``)."""


def read(source: FileSource) -> None:
    """Take over what the file says; ``auto`` says nothing."""
    batch = source.take("batch_size", "train_micro_batch_size_per_gpu", whole)
    count = source.take("grad_accum", "gradient_accumulation_steps", whole)
    clip = source.get("gradient_clipping", norm)
    if clip is not None:
        source.say("clip_grad_norm", clip or None, "gradient_clipping")
    for section in ("bf16", "fp16"):
        if source.get(f"{section}.enabled", switch):
            source.say("precision", f"{section}-mixed", f"{section}.enabled")
    _optimizer(source)
    _zero(source, _ranks(source, batch, count))
    source.note_unread(_UNREAD)


def _ranks(source: FileSource, batch: int | None, count: int | None) -> int | None:
    total = source.get("train_batch_size", whole)
    if total is None or batch is None or count is None:
        return None
    if total % (batch * count):
        source.problems.append(
            f"{source.path.name}: train_batch_size {total} is no multiple of "
            f"train_micro_batch_size_per_gpu {batch} x gradient_accumulation_steps {count}"
        )
        return None
    return int(total // (batch * count))


def _zero(source: FileSource, ranks: int | None) -> None:
    section = source.get("zero_optimization")
    if isinstance(section, bool):
        source.note("zero_optimization: true is deprecated, read as stage 1")
        section = {"stage": int(section)}
        source.content = {**source.content, "zero_optimization": section}
    stage = source.get(_STAGE, _stage) or 0
    if stage == 0:
        source.note("without ZeRO, DeepSpeed's engine keeps other states than are predicted: plain data parallelism")
        if ranks is not None and ranks > 1:
            source.say("parallel", Parallel(data="ddp", replicas=ranks), "train_batch_size")
        return
    _deprecated(source)
    source.say("zero", Zero(**_settings(source)), _STAGE)
    source.say("parallel", Parallel(data=f"zero{stage}", shards=ranks or 1), _STAGE)  # type: ignore[arg-type]
    if ranks is None:
        source.lack("parallel", f"says ZeRO stage {stage}, but not over how many ranks: give --parallel zero{stage}=N")


def _stage(content: object) -> int:
    return int(choice((0, 1, 2, 3))(elements(content)))


def _deprecated(source: FileSource) -> None:
    section = dict(source.content["zero_optimization"])
    for old, name in _DEPRECATED.items():
        if old in section:
            source.note(f"zero_optimization.{old} is deprecated, read as {name}")
            is_on = source.get(f"zero_optimization.{old}", switch)
            section |= {name: {"device": "cpu"}} if is_on and name not in section else {}
    source.content = {**source.content, "zero_optimization": section}


def _settings(source: FileSource) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for name, hint in get_type_hints(Zero).items():
        reader = of_type(hint)
        found = [source.get(place, reader) for place in ZERO_KEYS[name]]
        # Where two sections say it, the optimizer's counts.
        settings |= next(({name: value} for value in found if value is not None), {})
    return settings


def _optimizer(source: FileSource) -> None:
    kind = source.get("optimizer.type", word)
    if kind is None:
        return
    if kind == "sgd" and source.get("optimizer.params.momentum", norm):
        kind = "sgd-momentum"
    names = {known.lower(): name for name, (known, _) in OPTIMIZERS.items() if name != "sgd-momentum"}
    name = "sgd-momentum" if kind == "sgd-momentum" else names.get(kind)
    if name is None:
        source.note(f"optimizer.type {kind} is not known here")
    else:
        source.say("optimizer", name, "optimizer.type")


def include_deepspeed(source: FileSource, place: str, ranks: int | None = None) -> None:
    """Take over DeepSpeed's settings; what they say counts, as DeepSpeed is what runs.

    The place holds a path, relative to the file, or the settings themselves. Some files say how many ranks there are.
    """
    found = source.get(place)
    if isinstance(found, Mapping):
        inner = FileSource(path=source.path, content=found)
    else:
        path = source.path.parent / str(found)
        try:
            inner = FileSource(path=path, content=load(path))
        except MemplanError as error:
            source.problems.append(f"{source.path.name}: {place}: {error.what}")
            return
    read(inner)
    source.include(inner)
    set_ranks(source, ranks)


def set_ranks(source: FileSource, ranks: int | None) -> None:
    """Let a file that knows the number of ranks say it where DeepSpeed's does not."""
    parallel: Any = source.values.get("parallel")
    if ranks is not None and parallel is not None and "parallel" in source.lacks:
        source.values["parallel"] = replace(parallel, shards=ranks)
        del source.lacks["parallel"]
