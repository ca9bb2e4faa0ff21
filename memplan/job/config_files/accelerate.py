"""The file of ``accelerate launch`` (accelerate/commands/config/config_args.py, 1.15)."""

from collections.abc import Mapping

from memplan.job.config_files import deepspeed, sharding
from memplan.job.config_files.deepspeed import include_deepspeed, set_ranks
from memplan.job.config_files.source import FileSource
from memplan.job.config_files.values import elements, norm, switch, whole, word
from memplan.job.parallel import Parallel
from memplan.job.spec import COMPILERS

KEYS = frozenset({"distributed_type", "compute_environment"})
"""What such a file has at least one of."""
_MIXED: Mapping[str, str] = {"bf16": "bf16-mixed", "fp16": "fp16-mixed", "no": "fp32"}
_MESH: Mapping[str, str] = {
    "replicas": "dp_replicate_size",
    "shards": "dp_shard_size",
    "tensor": "tp_size",
    "context": "cp_size",
}
"""Field of ``Parallel`` → key of ``parallelism_config``."""
_UNREAD = ("fp8_config", "megatron_lm_config", "parallelism_config.parallelism_config_sp_size", "downcast_bf16")


def read(source: FileSource) -> None:
    """Take over what the file says."""
    mixed = source.get("mixed_precision", word)
    if mixed in _MIXED:
        source.say("precision", _MIXED[mixed], "mixed_precision")
    elif mixed is not None:
        source.note(f"mixed_precision {mixed} is not read")
    if source.get("fp16", switch):
        source.note("fp16 is deprecated, read as mixed_precision: fp16")
        source.say("precision", "fp16-mixed", "fp16")
    for place in ("dynamo_config.dynamo_backend", "dynamo_backend"):
        backend = source.get(place, word)
        if backend in COMPILERS:
            source.say("compile", backend, place)
    _ranks(source)
    source.note_unread(_UNREAD)


def _ranks(source: FileSource) -> None:
    ranks = source.get("num_processes", whole)
    match source.get("distributed_type", word):
        case "fsdp":
            _fsdp(source, ranks)
        case "deepspeed":
            _deepspeed(source, ranks)
        case None | "no":
            pass
        case kind if kind.startswith("multi_") and ranks is not None:
            source.say("parallel", Parallel(data="ddp", replicas=ranks), "num_processes")
        case kind:
            source.note(f"distributed_type {kind} is not read")


def _fsdp(source: FileSource, ranks: int | None) -> None:
    said = sharding.fsdp(source, "fsdp_config", version=1)
    sizes = {name: source.get(f"parallelism_config.parallelism_config_{key}", whole) for name, key in _MESH.items()}
    given = {name: size for name, size in sizes.items() if size is not None}
    if given:
        source.say("parallel", Parallel(**said, **given), "parallelism_config")
        return
    source.say("parallel", Parallel(**said, shards=ranks or 1), "fsdp_config")
    if ranks is None:
        source.lack("parallel", "says FSDP, but not over how many ranks: give --parallel fsdp=N")


def _deepspeed(source: FileSource, ranks: int | None) -> None:
    place = "deepspeed_config.deepspeed_config_file"
    if source.get(place) is not None:
        include_deepspeed(source, place, ranks)
        return
    inner = FileSource(path=source.path, content=_as_deepspeed(source))
    deepspeed.read(inner)
    source.include(inner)
    set_ranks(source, ranks)


def _as_deepspeed(source: FileSource) -> dict[str, object]:
    """The launcher's own few settings for DeepSpeed, in DeepSpeed's words (accelerate's ``DeepSpeedPlugin``)."""
    section = "deepspeed_config"
    stage = source.get(f"{section}.zero_stage", elements)
    zero: dict[str, object] = {"stage": 2 if stage is None else stage}
    for name in ("offload_optimizer", "offload_param"):
        device = source.get(f"{section}.{name}_device", word)
        zero |= {name: {"device": device}} if device not in (None, "none") else {}
    content: dict[str, object] = {"zero_optimization": zero}
    steps = source.get(f"{section}.gradient_accumulation_steps", whole)
    clip = source.get(f"{section}.gradient_clipping", norm)
    content |= {"gradient_accumulation_steps": steps} if steps is not None else {}
    content |= {"gradient_clipping": clip} if clip is not None else {}
    return content
