"""Reads ``PYTORCH_CUDA_ALLOC_CONF`` as PyTorch does, with errors that name the key.

Rules after ``c10/core/AllocatorConfig.h`` and ``c10/cuda/CUDAAllocatorConfig.h`` (torch 2.13): the order of the options
does not matter, and the last of several with one key counts. PyTorch reads ``20MB`` as 20 and ``0.8x`` as 0.8; what
looks so much like a slip is refused here.
"""

import dataclasses
import difflib
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from memplan.errors import UsageError
from memplan.replay.conf_divisions import parse_divisions
from memplan.replay.conf_values import RefusedValueError, flag, fraction, mebibytes, power_of_two
from memplan.replay.policy import MIN_LARGE_ALLOCATION, AllocatorPolicy
from memplan.units import MIB

MAX_REGISTER_THREADS = 128
"""Most threads that ``pinned_num_register_threads`` may ask for (``pinned_max_register_threads``)."""


class _Option(NamedTuple):
    """One option that is modelled."""

    field: str
    """Field of the policy that it sets; ``pinned.`` before one of the host's."""
    read: Callable[[str], object]
    """Reads its value."""


class _Ignored(NamedTuple):
    """One option that is real, but not modelled."""

    read: Callable[[str], object]
    """Reads its value."""
    effect: str = ""
    """What a replay therefore leaves out; empty if it moves no byte."""


def _threshold(value: str) -> float:
    number = fraction(value)
    if number in {0.0, 1.0}:
        raise RefusedValueError("between 0 and 1, both excluded")
    return number


def _backend(value: str) -> str:
    if value != "native":
        raise RefusedValueError("native, the only CUDA allocator that memplan models")
    return value


def _register_threads(value: str) -> int:
    threads = power_of_two(value)
    if threads > MAX_REGISTER_THREADS:
        raise RefusedValueError(f"at most {MAX_REGISTER_THREADS}")
    return threads


def _anything(value: str) -> str:
    if not value:
        raise RefusedValueError("a value")
    return value


_OPTIONS: Mapping[str, _Option] = {
    "expandable_segments": _Option("expandable_segments", flag),
    "garbage_collection_threshold": _Option("garbage_collection_threshold", _threshold),
    "large_segment_size_mb": _Option("large_segment_size", mebibytes(MIN_LARGE_ALLOCATION // MIB + 1)),
    "max_non_split_rounding_mb": _Option("max_non_split_rounding", mebibytes(0)),
    "max_split_size_mb": _Option("max_split_size", mebibytes(0)),
    "per_process_memory_fraction": _Option("per_process_memory_fraction", fraction),
    "pinned_max_cached_size_mb": _Option("pinned.max_cached_size", mebibytes(0)),
    "pinned_max_round_threshold_mb": _Option("pinned.max_round_threshold", mebibytes(0)),
    "pinned_reserve_segment_size_mb": _Option("pinned.reserve_segment_size", mebibytes(1)),
    "roundup_power2_divisions": _Option("roundup_power2_divisions", parse_divisions),
    "throw_on_cudamalloc_oom": _Option("throw_on_cudamalloc_oom", flag),
}
"""All options that decide what is reserved, alphabetically."""

_IGNORED: Mapping[str, _Ignored] = {
    "backend": _Ignored(_backend),
    "expandable_segments_handle_type": _Ignored(_anything),
    "expandable_segments_reserve": _Ignored(_anything, "address space kept for expandable segments (after torch 2.13)"),
    "expandable_segments_reserve_by_class": _Ignored(
        _anything, "address space kept for expandable segments by class (after torch 2.13)"
    ),
    "graph_capture_record_stream_reuse": _Ignored(
        flag, "reuse, within a CUDA graph's capture, of blocks that several streams use"
    ),
    "pinned_free_catch_all": _Ignored(flag),
    "pinned_num_register_threads": _Ignored(_register_threads),
    "pinned_use_background_threads": _Ignored(flag, "when exactly freed pinned memory comes back"),
    "pinned_use_cuda_host_register": _Ignored(flag),
    "pinned_use_hip_host_register": _Ignored(flag),
    "release_lock_on_cudamalloc": _Ignored(flag),
    "release_lock_on_hipmalloc": _Ignored(flag),
}
"""Real options that a replay does without."""


def parse_conf(text: str) -> AllocatorPolicy:
    """Read the value of ``PYTORCH_CUDA_ALLOC_CONF`` or ``PYTORCH_ALLOC_CONF``.

    Args:
        text: ``key:value`` pairs separated by commas, e.g.
            ``expandable_segments:True,roundup_power2_divisions:[256:2,>:4]``.

    Returns:
        The policy. Real options without an influence on it are accepted; see ``not_modelled``.

    Raises:
        UsageError: A key is unknown, or its value is one that PyTorch 2.13 refuses or memplan does not model. All that
            is wrong is told at once.
    """
    settings, problems = _read(text)
    policy = _policy(settings)
    least = policy.large_segment_size
    problems += [
        (key, f"{key} must be at least large_segment_size_mb, {least // MIB}, not '{value // MIB}'")
        for key, value in settings
        if key in {"max_split_size_mb", "max_non_split_rounding_mb"} and value < least
    ]
    if problems:
        raise _refusal(problems)
    return policy


def not_modelled(text: str) -> tuple[str, ...]:
    """What the options ask for that no replay shows, one sentence each."""
    set_keys = {key: value for key, value in _items(text) if key in _IGNORED and value != "False"}
    return tuple(f"{key}: {_IGNORED[key].effect}" for key in sorted(set_keys) if _IGNORED[key].effect)


def _items(text: str) -> list[tuple[str, str]]:
    """Keys and values, cut at commas outside brackets. Like PyTorch, this lets a comma at the end pass."""
    bare = "".join(text.split()).removesuffix(",")
    pairs = (item.partition(":") for item in re.split(r",(?![^\[]*\])", bare)) if bare else ()
    return [(key, value) for key, _, value in pairs]


def _read(text: str) -> tuple[list[tuple[str, Any]], list[tuple[str, str]]]:
    """Modelled options with their values, and what is wrong: key and complaint."""
    settings: list[tuple[str, Any]] = []
    problems: list[tuple[str, str]] = []
    for key, value in _items(text):
        known = _OPTIONS.get(key) or _IGNORED.get(key)
        if known is None:
            problems.append((key, f"'{key}' is not an option of the CUDA allocator"))
            continue
        try:
            read = known.read(value)
        except RefusedValueError as refused:
            problems.append((key, f"{key} must be {refused}, not '{value}'"))
            continue
        if key in _OPTIONS:
            settings.append((key, read))
    return settings, problems


def _policy(settings: list[tuple[str, Any]]) -> AllocatorPolicy:
    values = {_OPTIONS[key].field: value for key, value in settings}
    own = {field: value for field, value in values.items() if "." not in field}
    pinned = {field.partition(".")[2]: value for field, value in values.items() if "." in field}
    standard = AllocatorPolicy()
    return dataclasses.replace(standard, **own, pinned=dataclasses.replace(standard.pinned, **pinned))


def _refusal(problems: list[tuple[str, str]]) -> UsageError:
    keys = ", ".join(f"'{key}'" for key, _ in problems)
    unknown = [key for key, _ in problems if key not in _OPTIONS and key not in _IGNORED]
    return UsageError(
        "; ".join(complaint for _, complaint in problems),
        where=f"allocator option{'s' if len(problems) > 1 else ''} {keys}",
        hint="; ".join(_suggestion(key) for key in unknown) or None,
    )


def _suggestion(key: str) -> str:
    near = difflib.get_close_matches(key, [*_OPTIONS, *_IGNORED], n=1)
    return f"did you mean {near[0]}?" if near else f"options with an effect here: {', '.join(_OPTIONS)}"
