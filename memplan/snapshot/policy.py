"""The allocator's options as a snapshot names them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from memplan.errors import UsageError
from memplan.replay.conf import parse_conf
from memplan.replay.cpu import NoCaching
from memplan.replay.policy import ROUNDUP_INTERVALS, AllocatorPolicy
from memplan.snapshot.fields import described
from memplan.units import MIB, Bytes

_MAX_DIVISIONS = 1 << 20
"""More steps between two powers of two than bytes in the smallest of these sizes say nothing."""
CONF_KEY = "PYTORCH_CUDA_ALLOC_CONF"
"""The whole option string, as the process had it (``memory_snapshot.cpp``: ``last_allocator_settings``)."""

UNCACHED: Mapping[str, object] = {"memplan_caching": False}
"""Settings of a file by memplan in which no caching allocator took part: each block is a segment of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedPolicy:
    """The options that a process ran with."""

    policy: AllocatorPolicy | NoCaching
    """The options."""
    conf: str
    """The option string; empty for PyTorch's defaults, and where the file is too old to say."""
    source: str
    """Where they come from: ``--conf``, ``snapshot``, ``default``, or ``none`` where there is no caching allocator."""
    problem: str = ""
    """What of the options in the file could not be read, if anything."""


def recorded_policy(settings: Mapping[str, object], conf: str | None = None) -> RecordedPolicy:
    """Read ``allocator_settings``, or what is given instead, as in ``PYTORCH_CUDA_ALLOC_CONF``.

    Raises:
        UsageError: ``conf`` is wrong. Wrong settings in the file are a ``problem`` of the result.
    """
    if conf is not None:
        return RecordedPolicy(policy=parse_conf(conf), conf=conf, source="--conf")
    if not settings:
        return RecordedPolicy(policy=AllocatorPolicy(), conf="", source="default")
    if all(settings.get(key) is value for key, value in UNCACHED.items()):
        return RecordedPolicy(policy=NoCaching(), conf="", source="none")
    written = settings.get(CONF_KEY)
    text = written if isinstance(written, str) else ""
    try:
        policy, problem = parse_conf(text), ""
    except UsageError as error:
        # Options come and go between versions; the numbers beside the string remain.
        policy, problem = AllocatorPolicy(), error.what
    split = settings.get("max_split_size")
    if type(split) is int and (reason := _impossible_split(split, policy)):
        settings = {**settings, "max_split_size": None}
        problem = f"{problem}; {reason}" if problem else reason
    return RecordedPolicy(policy=_with_numbers(policy, settings), conf=text, source="snapshot", problem=problem)


def _impossible_split(split: int, policy: AllocatorPolicy) -> str:
    """Why no allocator has this ``max_split_size``; empty if one may.

    From any smaller size on, blocks would be split that the model, as PyTorch, gives back as whole segments.
    """
    least = policy.large_segment_size
    if split < 0 or (split >= least and split % MIB == 0):
        return ""
    return f"max_split_size is {described(split)} bytes, and PyTorch takes whole MiB from {least // MIB} on"


def _with_numbers(policy: AllocatorPolicy, settings: Mapping[str, object]) -> AllocatorPolicy:
    """Options that stand in the file as numbers too, which hold what PyTorch made of the string."""
    found: dict[str, Any] = {}
    split = settings.get("max_split_size")
    if type(split) is int:
        # The largest size_t, which means no limit, is written as -1.
        found["max_split_size"] = Bytes(split) if split > 0 else None
    threshold = settings.get("garbage_collection_threshold")
    if isinstance(threshold, float) and 0 <= threshold < 1:
        found["garbage_collection_threshold"] = threshold
    if isinstance(expandable := settings.get("expandable_segments"), bool):
        found["expandable_segments"] = expandable
    if divisions := _divisions(settings.get("roundup_power2_divisions")):
        found["roundup_power2_divisions"] = divisions
    return replace(policy, **found)


def _divisions(written: object) -> tuple[int, ...]:
    """``{"1": 0, "2": 0, …, "32768": 0}`` by the start of each interval; empty if it is anything else."""
    if not isinstance(written, dict):
        return ()
    counts = (written.get(str(1 << interval)) for interval in range(ROUNDUP_INTERVALS))
    table = tuple(count for count in counts if type(count) is int and 0 <= count <= _MAX_DIVISIONS)
    sound = len(table) == ROUNDUP_INTERVALS and not any(count & (count - 1) for count in table)
    return table if sound else ()
