"""Arguments of transformers' ``TrainingArguments`` (transformers/training_args.py, 5.23), in a JSON file."""

from collections.abc import Mapping
from typing import Any

from memplan.errors import MemplanError
from memplan.job.config_files import sharding
from memplan.job.config_files.content import load
from memplan.job.config_files.deepspeed import include_deepspeed
from memplan.job.config_files.source import FileSource
from memplan.job.config_files.values import norm, switch, whole, word, words
from memplan.job.parallel import Parallel
from memplan.job.spec import COMPILERS

KEYS = frozenset({
    "per_device_train_batch_size", "output_dir", "num_train_epochs", "max_steps", "optim", "learning_rate", "fsdp",
    "fsdp_config", "deepspeed", "bf16", "fp16", "gradient_checkpointing", "activation_checkpointing", "max_grad_norm",
})  # fmt: skip
"""What such a file has at least one of."""
DEFAULT_OPTIMIZER = "adamw_torch_fused"
"""With torch 2.8 and later."""
OPTIM: Mapping[str, str] = {
    "adamw": "adamw_torch",
    "sgd": "sgd",
    "adagrad": "adagrad",
    "adafactor": "adafactor",
    "lion": "lion_32bit",
    "adamw-8bit": "adamw_bnb_8bit",
    "paged-adamw-8bit": "paged_adamw_8bit",
}
"""Optimizer → ``optim`` (transformers/training_args.py ``OptimizerNames``)."""
OPTIMIZERS: Mapping[str, dict[str, str]] = {
    **{name: {"optimizer": optimizer} for optimizer, name in OPTIM.items()},
    "adamw_torch_fused": {"optimizer": "adamw", "optimizer_impl": "fused"},
    "adamw_8bit": {"optimizer": "adamw-8bit"},
}
"""``optim`` → fields."""
_UNREAD = (
    "auto_find_batch_size", "use_liger_kernel", "neftune_noise_alpha", "parallelism_config", "group_by_length",
    "torch_empty_cache_steps", "activation_checkpointing_kwargs", "gradient_checkpointing_kwargs",
)  # fmt: skip


def read(source: FileSource) -> None:
    """Take over what the file says, and the trainer's own defaults where memplan has others."""
    source.take("batch_size", "per_device_train_batch_size", whole, default=8)
    source.take("grad_accum", "gradient_accumulation_steps", whole)
    clip = source.take("clip_grad_norm", "max_grad_norm", norm, default=1.0)
    if clip == 0:
        source.say("clip_grad_norm", None, "max_grad_norm")
    optimizer(source, "optim")
    for key in ("bf16", "fp16"):
        if source.get(key, switch):
            source.say("precision", f"{key}-mixed", key)
    if source.get("torch_compile", switch):
        compiler(source)
    _checkpointing(source)
    _ranks(source)
    source.note_unread(_UNREAD)


def compiler(source: FileSource) -> None:
    """Take over what compiles, of which axolotl says the same; where nothing is said it is Inductor."""
    backend = source.get("torch_compile_backend", word)
    source.say("compile", backend if backend in COMPILERS else "inductor", "torch_compile")


def optimizer(source: FileSource, place: str) -> None:
    """Take over the optimizer's name, of which axolotl takes the same."""
    name = source.get(place, word)
    said = OPTIMIZERS.get(name or DEFAULT_OPTIMIZER)
    if said is None:
        source.note(f"{place} {name} is not known here")
        return
    for field, value in said.items():
        source.say(field, value, place if name else f"{place}(default)")


def _checkpointing(source: FileSource) -> None:
    for key in ("gradient_checkpointing", "activation_checkpointing"):
        if source.get(key) is not None and key == "gradient_checkpointing":
            source.note(f"{key} is deprecated, read as activation_checkpointing")
        if source.get(key, switch):
            source.say("checkpoint", "full", key)


def _ranks(source: FileSource) -> None:
    if source.get("deepspeed") is not None:
        include_deepspeed(source, "deepspeed")
        return
    if not (kinds := _fsdp_words(source)):
        return
    _load_section(source)
    said = sharding.fsdp(source, "fsdp_config", version=2)
    said |= {"offload": True} if "offload" in kinds else {}
    said |= {"reshard": False} if "shard_grad_op" in kinds else {}
    source.say("parallel", Parallel(**said), "fsdp")
    source.lack("parallel", "says FSDP, but not over how many ranks: give --parallel fsdp=N")


def _fsdp_words(source: FileSource) -> tuple[str, ...]:
    """What ``fsdp`` says: a switch, or, deprecated, a list of words."""
    found: Any = source.get("fsdp")
    if isinstance(found, bool) or found in ("true", "false", "True", "False", None):
        return ("full_shard",) if found is not None and switch(found) else ()
    names = source.get("fsdp", words) or ()
    if names:
        source.note("fsdp with a list of words is deprecated, read as fsdp: true and fsdp_config")
    return tuple(names)


def _load_section(source: FileSource) -> None:
    """Put what a file says that ``fsdp_config`` names in its place."""
    found = source.get("fsdp_config")
    if not isinstance(found, str):
        return
    try:
        source.content = {**source.content, "fsdp_config": load(source.path.parent / found)}
    except MemplanError as error:
        source.problems.append(f"{source.path.name}: fsdp_config: {error.what}")
