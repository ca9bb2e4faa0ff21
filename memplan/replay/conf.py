"""Reads ``PYTORCH_CUDA_ALLOC_CONF`` as PyTorch does, with errors that name the key.

Rules after ``c10/core/AllocatorConfig.cpp`` (torch 2.13).
"""

import dataclasses
import difflib
import re
from collections.abc import Callable, Mapping
from typing import Never

from memplan.errors import UsageError
from memplan.replay.policy import MIN_LARGE_ALLOCATION, ROUNDUP_INTERVALS, AllocatorPolicy
from memplan.units import MIB, Bytes

_SILENT_KEYS = frozenset(
    {
        "release_lock_on_cudamalloc",
        "release_lock_on_hipmalloc",
        "graph_capture_record_stream_reuse",
        "pinned_use_cuda_host_register",
        "pinned_use_hip_host_register",
        "pinned_num_register_threads",
        "pinned_reserve_segment_size_mb",
        "pinned_free_catch_all",
        "pinned_use_background_threads",
        "pinned_max_round_threshold_mb",
        "pinned_max_cached_size_mb",
    }
)
"""Real keys that change nothing of what is modelled here: host memory, locks, graph capture."""


def parse_conf(text: str) -> AllocatorPolicy:
    """Read the value of ``PYTORCH_CUDA_ALLOC_CONF``.

    Args:
        text: ``key:value`` pairs separated by commas, e.g.
            ``expandable_segments:True,roundup_power2_divisions:[256:2,>:4]``.

    Returns:
        The policy. Options for host memory, locks and graph capture are accepted and change nothing.

    Raises:
        UsageError: A key is unknown, or its value is one that PyTorch 2.13 refuses or memplan does not model.
    """
    policy = AllocatorPolicy()
    for item in _items("".join(text.split())):
        key, _, value = item.partition(":")
        if key in _READERS:
            policy = _READERS[key](policy, key, value)
        elif key not in _SILENT_KEYS:
            _refuse_key(key)
        elif not value:
            _refuse(key, value, "a value")
    return policy


def _items(text: str) -> list[str]:
    """Cut at commas outside brackets."""
    return re.split(r",(?![^\[]*\])", text) if text else []


def _refuse_key(key: str) -> Never:
    near = difflib.get_close_matches(key, [*_READERS, *_SILENT_KEYS], n=1)
    hint = f"did you mean {near[0]}?" if near else f"options with an effect here: {', '.join(sorted(_READERS))}"
    raise UsageError(f"'{key}' is not an option of the CUDA allocator", where=f"allocator option '{key}'", hint=hint)


def _refuse(key: str, value: str, wanted: str) -> Never:
    raise UsageError(f"{key} must be {wanted}, not '{value}'", where=f"allocator option '{key}'")


def _mebibytes(key: str, value: str, least: int) -> Bytes:
    if not re.fullmatch(r"\d+", value) or int(value) * MIB < least:
        _refuse(key, value, f"a whole number of MiB, at least {-(-least // MIB)}")
    return Bytes(int(value) * MIB)


def _fraction(key: str, value: str) -> float:
    if not re.fullmatch(r"\d+(\.\d*)?|\.\d+", value) or float(value) > 1:
        _refuse(key, value, "a number from 0 to 1")
    return float(value)


def _flag(key: str, value: str) -> bool:
    if value not in {"True", "False"}:
        _refuse(key, value, "True or False")
    return value == "True"


def _power_of_two(key: str, value: str, *, or_zero: bool = False) -> int:
    number = int(value) if re.fullmatch(r"\d+", value) else -1
    if number < 0 or number & (number - 1) or (number == 0 and not or_zero):
        _refuse(key, value, "made of powers of two")
    return number


def _divisions(key: str, value: str) -> tuple[int, ...]:
    """One number for all, or ``[256:1,512:2,>:4]`` by starts of intervals in MiB (``parseRoundUpPower2Divisions``)."""
    if not value.startswith("["):
        return (_power_of_two(key, value),) * ROUNDUP_INTERVALS
    if not value.endswith("]"):
        _refuse(key, value, "closed by ]")
    table, last = [0] * ROUNDUP_INTERVALS, -1
    for entry in value[1:-1].split(","):
        start, _, count = entry.partition(":")
        divisions = _power_of_two(key, count, or_zero=True)
        if start == ">":
            # Without an entry before it, PyTorch leaves the first interval alone.
            rest = max(last, 0) + 1
            table[rest:] = [divisions] * (ROUNDUP_INTERVALS - rest)
            continue
        index = min(_power_of_two(key, start).bit_length() - 1, ROUNDUP_INTERVALS - 1)
        if last < 0:
            # The first entry also holds for everything below it.
            table[:index] = [divisions] * index
        table[index], last = divisions, index
    return tuple(table)


def _read_large_segment(policy: AllocatorPolicy, key: str, value: str) -> AllocatorPolicy:
    return dataclasses.replace(policy, large_segment_size=_mebibytes(key, value, MIN_LARGE_ALLOCATION + MIB))


def _read_max_split(policy: AllocatorPolicy, key: str, value: str) -> AllocatorPolicy:
    return dataclasses.replace(policy, max_split_size=_mebibytes(key, value, policy.large_segment_size))


def _read_non_split_rounding(policy: AllocatorPolicy, key: str, value: str) -> AllocatorPolicy:
    return dataclasses.replace(policy, max_non_split_rounding=_mebibytes(key, value, policy.large_segment_size))


def _read_garbage_collection(policy: AllocatorPolicy, key: str, value: str) -> AllocatorPolicy:
    threshold = _fraction(key, value)
    if threshold in {0.0, 1.0}:
        _refuse(key, value, "between 0 and 1, both excluded")
    return dataclasses.replace(policy, garbage_collection_threshold=threshold)


def _read_divisions(policy: AllocatorPolicy, key: str, value: str) -> AllocatorPolicy:
    return dataclasses.replace(policy, roundup_power2_divisions=_divisions(key, value))


def _read_expandable(policy: AllocatorPolicy, key: str, value: str) -> AllocatorPolicy:
    return dataclasses.replace(policy, expandable_segments=_flag(key, value))


def _read_memory_fraction(policy: AllocatorPolicy, key: str, value: str) -> AllocatorPolicy:
    return dataclasses.replace(policy, per_process_memory_fraction=_fraction(key, value))


def _read_throw(policy: AllocatorPolicy, key: str, value: str) -> AllocatorPolicy:
    return dataclasses.replace(policy, throw_on_cudamalloc_oom=_flag(key, value))


def _read_backend(policy: AllocatorPolicy, key: str, value: str) -> AllocatorPolicy:
    if value != "native":
        _refuse(key, value, "native, the only CUDA allocator that memplan models")
    return policy


_READERS: Mapping[str, Callable[[AllocatorPolicy, str, str], AllocatorPolicy]] = {
    "backend": _read_backend,
    "expandable_segments": _read_expandable,
    "garbage_collection_threshold": _read_garbage_collection,
    "large_segment_size_mb": _read_large_segment,
    "max_non_split_rounding_mb": _read_non_split_rounding,
    "max_split_size_mb": _read_max_split,
    "per_process_memory_fraction": _read_memory_fraction,
    "roundup_power2_divisions": _read_divisions,
    "throw_on_cudamalloc_oom": _read_throw,
}
