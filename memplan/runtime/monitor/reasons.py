"""Why a device is not well: one function for each kind of reason."""

from collections.abc import Iterator

from memplan.findings.records import Finding
from memplan.findings.rules import RULES
from memplan.runtime.monitor.against_plan import mismatch
from memplan.runtime.monitor.records import Health, Level
from memplan.runtime.monitor.situation import Situation, Watched, called, level_before, level_for
from memplan.units import format_bytes

_HELD = 0.9
"""Share of a threshold in bytes at which a reason that was there ends."""


def reasons(made: Health, watched: Watched, situation: Situation) -> Iterator[Finding]:
    """All reasons that one device gives; its health is made but for reasons and level."""
    before = watched.health_in(situation.last)
    for look in (_fullness, _drift, _growth, _fragmentation, _retries, _foreign):
        yield from look(made, watched, situation, before)


def _fullness(made: Health, watched: Watched, situation: Situation, before: Health | None) -> Iterator[Finding]:
    if made.device == "cpu":
        return  # Its memory is the host's.
    level = level_for(made.utilisation, level_before(before, "MM001"), situation.thresholds)
    needs = "needs"
    if watched.device.reserved is None:
        # The allocator's cache fills a device without harm, and the driver cannot tell it from what is alive.
        level, needs = min(level, Level.WARNING), "has in use, caches included,"
    share = f"{format_bytes(made.demand)} of {format_bytes(made.limit)} ({100 * made.utilisation:.0f} %)"
    if level:
        yield finding("MM001", level, f"{_name(made)} {needs} {share}")


def _drift(made: Health, watched: Watched, situation: Situation, before: Health | None) -> Iterator[Finding]:
    del before  # Peaks only rise.
    other = mismatch(watched.device, situation.plan)
    if other:
        yield finding("MM009", Level.NORMAL, other)
    elif made.drift is not None and made.drift > situation.thresholds.drift:
        peak = f"{format_bytes(made.measured or 0)} {made.figure}"
        yield _warning(
            "MM003", f"{_name(made)} peaked at {peak}, {format_bytes(made.drift)} above the plan's upper end"
        )


def _growth(made: Health, watched: Watched, situation: Situation, before: Health | None) -> Iterator[Finding]:
    del watched
    trend = made.trend
    soon = situation.thresholds.steps_until_full * (2 if level_before(before, "MM004") else 1)
    if trend is not None and trend.until_full is not None and trend.until_full < soon:
        pace = f"{format_bytes(round(trend.per_step))} a {trend.by}"
        yield _warning("MM004", f"{_name(made)} grows by {pace}: full after {trend.until_full:.0f} {trend.by}s")


def _fragmentation(made: Health, watched: Watched, situation: Situation, before: Health | None) -> Iterator[Finding]:
    limits = situation.thresholds
    begins = limits.fragmentation - (limits.release if level_before(before, "MM005") else 0)
    if made.fragmentation is not None and made.fragmentation >= begins:
        stuck = f"{format_bytes(watched.device.inactive or 0)} of {format_bytes(watched.device.reserved or 0)} reserved"
        yield _warning("MM005", f"{_name(made)} is fragmented: {stuck} lie free beside live blocks")


def _retries(made: Health, watched: Watched, situation: Situation, before: Health | None) -> Iterator[Finding]:
    del before  # The first check of the window is what holds it.
    earlier = watched.reading_in(situation.history[0] if situation.history else None)
    times = watched.device.retries - earlier.retries if earlier else 0
    if times > 0:
        often = f"{times} time{'s' if times > 1 else ''}"
        yield _warning(
            "MM006", f"{_name(made)}: the allocator freed its whole cache to serve a request, {often} of late"
        )


def _foreign(made: Health, watched: Watched, situation: Situation, before: Health | None) -> Iterator[Finding]:
    device, plan = watched.device, situation.plan
    if plan is None or device.reserved is None or mismatch(device, plan) or made.device == "cpu":
        return
    foreign = device.used - device.reserved - plan.outside
    if foreign >= situation.thresholds.foreign * (_HELD if level_before(before, "MM008") else 1):
        what = f"{format_bytes(foreign)} in use are neither this process's tensors nor its predicted context"
        yield _warning("MM008", f"{_name(made)}: {what}")


def finding(code: str, level: Level, message: str) -> Finding:
    """Return a reason for a level."""
    return Finding(code=code, severity=level.severity, message=message, fix=RULES[code].remedy)


def _warning(code: str, message: str) -> Finding:
    return finding(code, Level.WARNING, message)


def _name(made: Health) -> str:
    return called(made.device, made.rank)
