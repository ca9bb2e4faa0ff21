"""``ds_config.json`` (deepspeed/runtime/config.py, 0.19.8)."""

from collections.abc import Mapping
from typing import Any, get_type_hints

from memplan.job.config_files.deepspeed_keys import OPTIMIZERS, ZERO_KEYS
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
