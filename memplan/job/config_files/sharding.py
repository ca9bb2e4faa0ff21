"""FSDP sections, which accelerate, transformers and axolotl write alike but for the names of keys."""

from collections.abc import Mapping
from typing import Any

from memplan.job.config_files.source import FileSource
from memplan.job.config_files.values import elements, switch, word
from memplan.job.parallel import DataParallel

_STRATEGIES: Mapping[str, bool | None] = {
    "full_shard": True, "1": True, "hybrid_shard": True, "4": True,
    "shard_grad_op": False, "2": False, "hybrid_shard_zero2": False, "5": False,
    "true": True, "false": False,
}  # fmt: skip
"""FSDP1's strategy → does it reshard after forward? (accelerate/utils/constants.py, ``FSDP_SHARDING_STRATEGY``.)"""
WHOLE_COPIES = frozenset({"no_shard", "3"})
"""FSDP1's strategies that share nothing."""


def fsdp(source: FileSource, section: str, version: int) -> dict[str, Any]:
    """Fields of ``Parallel`` that an FSDP section says, and whether it checkpoints.

    The version is that of FSDP, where the section does not say it.
    """
    said = {
        "data": _kind(source, section, version),
        "offload": _switch(source, section, "offload_params", "cpu_offload"),
    }
    reshard = _reshard(source, section)
    said |= {"reshard": reshard} if reshard is not None else {}
    if _switch(source, section, "activation_checkpointing"):
        source.say("checkpoint", "full", f"{section}.{_place(source, section, 'activation_checkpointing')}")
    source.note_unread((f"{section}.{_place(source, section, 'activation_checkpointing_offload')}",))
    return said


def _kind(source: FileSource, section: str, version: int) -> DataParallel:
    for key in ("fsdp_version", "version"):
        version = source.get(f"{section}.{key}", elements) or version
    return "fsdp1" if version == 1 else "fsdp2"


def _reshard(source: FileSource, section: str) -> bool | None:
    for key in ("sharding_strategy", "reshard_after_forward"):
        found = source.get(f"{section}.{_place(source, section, key)}", lambda value: word(str(value)))
        if found in WHOLE_COPIES:
            source.note(f"{section}.{key} {found} shares nothing: give --parallel ddp=N")
        elif found is not None:
            return _STRATEGIES.get(found, True)
    return None


def _switch(source: FileSource, section: str, *keys: str) -> bool:
    return any(source.get(f"{section}.{_place(source, section, key)}", switch) for key in keys)


def _place(source: FileSource, section: str, key: str) -> str:
    """The key as this file writes it: with the prefix or without."""
    return f"fsdp_{key}" if source.get(f"{section}.fsdp_{key}") is not None else key
