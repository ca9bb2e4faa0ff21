"""The judgement: a reading, what came before, a plan and thresholds in; levels and reasons out. It reads nothing."""

from collections.abc import Sequence

from memplan.findings.records import SEVERITIES, Finding
from memplan.runtime.meters.records import DeviceReading, Reading
from memplan.runtime.monitor.device import device_health, finding, host_health, with_reasons
from memplan.runtime.monitor.records import Check, Health, Level, RegionUse, RunPlan, Thresholds
from memplan.runtime.monitor.situation import Situation, Watched, called, level_before
from memplan.runtime.monitor.trend import windows
from memplan.units import format_bytes

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
    """What stands in the way of a comparison, beside a plan for another device (MM009)."""
    uncounted = any(device.device == "cpu" and device.allocated is None for device in reading.devices)
    if plan is None or plan.gpu != "cpu" or not uncounted:
        return ()
    return ("CPU tensors are not counted, so that nothing is held against the plan",)


def beside_each_other(devices: Sequence[Health], situation: Situation) -> list[Health]:
    """Devices, judged alone, with a word on the fullest where it holds much more, and on ranks that are behind."""
    found = list(devices)
    if reason := _unevenness(found, situation):
        found = _told(found, *reason)
    for behind, reason_of in _stragglers(found, situation):
        found = _told(found, behind, reason_of)
    return found


def _told(devices: Sequence[Health], of: Health, reason: Finding) -> list[Health]:
    return [
        with_reasons(each, [*each.reasons, reason]) if (each.device, each.rank) == (of.device, of.rank) else each
        for each in devices
    ]


def _unevenness(devices: Sequence[Health], situation: Situation) -> tuple[Health, Finding] | None:
    cards = [each for each in devices if each.device != "cpu" and each.limit]
    if len(cards) > 1:
        return _uneven_cards(cards, situation)
    return _uneven_on_host(devices, situation)


def _uneven_cards(cards: Sequence[Health], situation: Situation) -> tuple[Health, Finding] | None:
    most, least = (choose(cards, key=lambda each: each.utilisation) for choose in (max, min))
    limits = situation.thresholds
    apart = most.utilisation - least.utilisation
    if apart < limits.imbalance - (limits.release if _was_uneven(situation.last) else 0):
        return None
    holds = [f"{called(each.device, each.rank)} {format_bytes(each.demand)}" for each in (most, least)]
    spare = sum(each.headroom for each in cards) // len(cards)
    even = f"; spread evenly, each would have {format_bytes(spare)} left, not {format_bytes(most.headroom)}"
    sentence = f"needs differ by {100 * apart:.0f} % of a device: {holds[0]}, {holds[1]}{even if spare > 0 else ''}"
    return most, finding("MM007", Level.WARNING, sentence)


def _uneven_on_host(devices: Sequence[Health], situation: Situation) -> tuple[Health, Finding] | None:
    """Ranks that share the host: the fullest against the emptiest, by what each holds itself."""
    held = {
        health.rank: (_held(read), health)
        for health, read in zip(devices, situation.reading.devices, strict=True)
        if health.rank is not None and health.device == "cpu"
    }
    if len(held) < 2:
        return None
    limits = situation.thresholds
    (least, emptiest), (most, fullest) = (choose(held.values(), key=lambda each: each[0]) for choose in (min, max))
    share = limits.imbalance - (limits.release if _was_uneven(situation.last) else 0)
    if most - least < max(limits.imbalance_bytes, share * most):
        return None
    even = sum(nbytes for nbytes, _ in held.values()) // len(held)
    sentence = (
        f"rank {fullest.rank} holds {format_bytes(most)}, rank {emptiest.rank} {format_bytes(least)}; "
        f"spread evenly, each would hold {format_bytes(even)}"
    )
    return fullest, finding("MM007", Level.WARNING, sentence)


def _held(device: DeviceReading) -> int:
    """What a rank itself holds of the host: its tensors where they are counted, else its resident memory."""
    if device.allocated is None:
        return device.resident or 0
    return max(device.allocated, device.peak_allocated or 0)


def _was_uneven(last: Check | None) -> bool:
    return last is not None and any(level_before(each, "MM007") for each in last.devices)


def _stragglers(devices: Sequence[Health], situation: Situation) -> list[tuple[Health, Finding]]:
    """Ranks that have not come yet to where the first one was two checks ago: no difference of reading times."""
    ranked = [each for each in devices if each.rank is not None and each.step is not None]
    if len(ranked) < 2 or len(situation.history) < 2:
        return []
    first = max(ranked, key=lambda each: each.step or 0)
    earlier = next((each for each in situation.history[-2].devices if each.rank == first.rank), None)
    if earlier is None or earlier.step is None:
        return []
    behind = [
        each for each in ranked if (each.step or 0) < min(earlier.step, (first.step or 0) - situation.thresholds.lag)
    ]
    return [(each, finding("MM010", Level.NORMAL, _lag(each, first))) for each in behind]


def _lag(behind: Health, first: Health) -> str:
    steps = (first.step or 0) - (behind.step or 0)
    full = f"; {100 * behind.utilisation:.0f} % of its device is in use" if behind.limit else ""
    return f"rank {behind.rank} is {steps} steps behind rank {first.rank}{full}"
