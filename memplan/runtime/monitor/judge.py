"""The judgement: a reading, what came before, a plan and thresholds in; levels and reasons out. It reads nothing."""

from collections.abc import Sequence

from memplan.findings.records import SEVERITIES, Finding
from memplan.runtime.meters.records import Reading
from memplan.runtime.monitor.across import beside_each_other
from memplan.runtime.monitor.against_plan import mismatch
from memplan.runtime.monitor.device import device_health, host_health
from memplan.runtime.monitor.records import Check, Health, RegionUse, RunPlan, Thresholds
from memplan.runtime.monitor.situation import Situation, Watched
from memplan.runtime.monitor.trend import windows

DEFAULTS = Thresholds()


def judge(
    reading: Reading,
    history: Sequence[Check] = (),
    plan: RunPlan | None = None,
    thresholds: Thresholds = DEFAULTS,
    *,
    step: int | None = None,
    ranks: Sequence[int | None] = (),
    steps: Sequence[int | None] = (),
    regions: Sequence[RegionUse] = (),
) -> Check:
    """Judge one reading.

    Args:
        reading: What was read.
        history: Earlier checks, oldest first. The last one keeps levels from flapping; trends look at all of them.
        plan: What was predicted for each device.
        thresholds: Where levels begin.
        step: Optimizer step that the reading follows.
        ranks: Of the process that read each device; empty: nobody knows.
        steps: Optimizer steps of that process; empty: nobody knows.
        regions: What a profiler says of parts of the step; passed on.

    Returns:
        The check; its number follows the last one's.
    """
    number = history[-1].number + 1 if history else 0
    situation = Situation(
        number=number,
        step=step,
        reading=reading,
        history=history,
        plan=plan,
        thresholds=thresholds,
        windows=windows(history, thresholds.warm_up, stepped=step is not None),
    )
    known = ranks or [None] * len(reading.devices)
    counted = steps or [None] * len(reading.devices)
    watched = [
        Watched(index=index, device=device, rank=rank, step=own)
        for index, (device, rank, own) in enumerate(zip(reading.devices, known, counted, strict=True))
    ]
    devices = beside_each_other([device_health(situation, each) for each in watched], situation)
    host = host_health(situation)
    return Check(
        number=number,
        step=step,
        reading=reading,
        devices=tuple(devices),
        host=host,
        level=max(each.level for each in (*devices, host)),
        recommendations=_recommendations([*devices, host]),
        regions=tuple(regions),
        notes=_notes(reading, plan),
    )


def _recommendations(healths: Sequence[Health]) -> tuple[Finding, ...]:
    """The worst reason of each code, worst first."""
    reasons = sorted(
        (reason for health in healths for reason in health.reasons), key=lambda each: SEVERITIES.index(each.severity)
    )
    worst = {reason.code: reason for reason in reversed(reasons)}
    return tuple(sorted(worst.values(), key=lambda each: (SEVERITIES.index(each.severity), each.code)))


def _notes(reading: Reading, plan: RunPlan | None) -> tuple[str, ...]:
    """What stands in the way of a comparison."""
    notes = [mismatch(device, plan) for device in reading.devices]
    if plan is not None and plan.gpu == "cpu":
        uncounted = any(device.device == "cpu" and device.allocated is None for device in reading.devices)
        notes.append("CPU tensors are not counted, so that nothing is held against the plan" if uncounted else "")
    return tuple(dict.fromkeys(note for note in notes if note))
