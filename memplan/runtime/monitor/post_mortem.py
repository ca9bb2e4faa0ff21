"""Why a run ended for lack of memory, from what is known of its end. Nothing is read here."""

import signal
from collections.abc import Sequence

from memplan.runtime.meters.records import DeviceReading
from memplan.runtime.monitor.outcome import Ending, PostMortem
from memplan.runtime.monitor.records import Check, Health, RunPlan
from memplan.units import GIB, MIB, format_bytes

UNEXPLAINED_KILL = "MM106"
"""The rule of a SIGKILL that no count of the kernel explains: memory may have nothing to do with it."""
LAST_CHECKS = 8
"""Checks before the end that are shown."""
_CUDA = ("OutOfMemoryError", "CUDA out of memory", "CUDA error: out of memory")
_HOST = ("DefaultCPUAllocator", "MemoryError", "Cannot allocate memory", "bad_alloc")
"""What exceptions of failed allocations say: torch/csrc/Exceptions, c10/core/impl/alloc_cpu.cpp, errno, C++."""
_CONTEXT = GIB
"""What a CUDA context and its libraries take, where no plan says: more than any measured profile has."""
_SEGMENT = 20 * MIB
"""A request may take a segment of so much (``kLargeBuffer``, c10/cuda/CUDACachingAllocator.h)."""


def post_mortem(ending: Ending, history: Sequence[Check], plan: RunPlan | None) -> PostMortem | None:
    """Explain an end by the last checks, oldest first; None if it was a good one, or no matter of memory."""
    found = _cause(ending, history, plan) if ending.code else None
    if found is None:
        return None
    code, sentence = found
    return PostMortem(
        code=code,
        sentence=sentence,
        prediction=_prediction(code, ending, history[-1] if history else None, plan),
        snapshot=str(ending.oom.facts.get("snapshot", "")) if ending.oom else "",
        last=tuple(history[-LAST_CHECKS:]),
    )


def _cause(ending: Ending, history: Sequence[Check], plan: RunPlan | None) -> tuple[str, str] | None:
    if any(word in ending.why for word in _CUDA):
        return _refused(ending, plan)
    if any(word in ending.why for word in _HOST):
        return "MM104", _first_line(ending.why)
    if ending.oom_kills:
        killed = "a process was" if ending.oom_kills == 1 else f"{ending.oom_kills} processes were"
        return "MM105", f"{killed} killed by the kernel for lack of memory; {_host(history)}"
    if ending.code == -signal.SIGKILL:
        return UNEXPLAINED_KILL, f"the command was killed (SIGKILL); {_host(history)}"
    # A process that ends without a word after its allocator failed, such as a rank under a launcher.
    return _refused(ending, plan) if ending.oom and not ending.why else None


def _refused(ending: Ending, plan: RunPlan | None) -> tuple[str, str]:
    """Which of four reasons a CUDA allocation failed for."""
    oom = ending.oom
    device = _device(oom.facts.get("device"), oom.reading.devices) if oom and oom.reading else None
    if oom is None or device is None or device.reserved is None or device.allocated is None:
        return "MM101", _first_line(ending.why)
    asked, free = int(oom.facts.get("asked", 0)), int(oom.facts.get("device_free", 0))
    beside = max(0, device.used - device.reserved)
    context = plan.outside if plan and plan.gpu != "cpu" else _CONTEXT
    sentence = (
        f"{format_bytes(asked)} refused on {device.device}: {format_bytes(device.allocated)} allocated, "
        f"{format_bytes(device.reserved)} reserved, {format_bytes(beside)} beside, {format_bytes(free)} free "
        f"of {format_bytes(device.total)}"
    )
    if asked + _SEGMENT <= free:
        return "MM107", sentence
    # Nor would pieces have been enough that fall short of a segment together with what is free.
    if asked + _SEGMENT <= device.reserved - device.allocated + free:
        return "MM102", sentence
    # Without others there would have been room: what lies beside is then more than a context.
    if device.allocated + asked + _SEGMENT + context <= device.total:
        return "MM103", sentence
    return "MM101", sentence


def _device(index: object, devices: Sequence[DeviceReading]) -> DeviceReading | None:
    return next((device for device in devices if device.device == f"cuda:{index}"), None)


def _prediction(code: str, ending: Ending, last: Check | None, plan: RunPlan | None) -> str:
    if plan is None:
        return "nothing was predicted: memplan estimate TARGET --gpu NAME -f json=plan.json, and --plan plan.json"
    peak = f"a peak of {format_bytes(plan.device)}, {format_bytes(plan.high)} at most"
    if plan.verdict == "oom" and code in {"MM101", "MM102"}:
        return f"the plan foretold it: {peak}, where {plan.gpu} has {format_bytes(plan.usable)}"
    compared = [health for health in last.devices if health.drift is not None] if last else []
    if not compared:
        return f"nothing was measured that can be held against the plan ({peak})"
    worst = max(compared, key=lambda health: health.drift or 0)
    return _against(worst, _needed(ending), peak)


def _needed(ending: Ending) -> int:
    """Bytes of live blocks that the process would have had, with the request that failed."""
    oom = ending.oom
    device = _device(oom.facts.get("device"), oom.reading.devices) if oom and oom.reading else None
    return int(oom.facts.get("asked", 0)) + (device.allocated or 0) if oom and device else 0


def _against(worst: Health, needed: int, peak: str) -> str:
    measured, high = worst.measured or 0, worst.predicted_high or 0
    foretold = f"at most {format_bytes(high)} {worst.figure} were foretold"
    if measured > high:
        found = f"{format_bytes(measured)} {worst.figure} on {worst.device}"
        return f"the prediction failed: {found}, where {foretold} ({peak})"
    if needed > high:
        return f"the prediction failed: {format_bytes(needed)} were needed, where {foretold} ({peak})"
    return f"the prediction held up to the last check: {format_bytes(measured)} {worst.figure}, where {foretold}"


def _host(history: Sequence[Check]) -> str:
    if not history:
        return "nothing had been read before"
    host = history[-1].reading.host
    had = f"{format_bytes(host.available)} of {format_bytes(host.total)} were left"
    return f"at the last check its processes held {format_bytes(host.resident)}, and {had}"


def _first_line(text: str) -> str:
    return text.splitlines()[0] if text else "the allocator failed"
