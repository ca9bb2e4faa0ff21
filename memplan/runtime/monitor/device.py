"""The health of one device, and of the host: one function for each kind of reason why it is not well."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from memplan.findings.records import SEVERITIES, Finding
from memplan.findings.rules import RULES
from memplan.runtime.meters.records import DeviceReading, Reading
from memplan.runtime.monitor.records import Check, Health, Level, Trend
from memplan.runtime.monitor.situation import Situation, Watched, called, comparison, level_before, level_for, mismatch
from memplan.runtime.monitor.trend import Point, growth
from memplan.units import format_bytes

HOST = "host"
_HELD = 0.9
"""Share of a threshold in bytes at which a reason that was there ends."""


def device_health(situation: Situation, watched: Watched) -> Health:
    """Judge one device of the reading."""
    device = watched.device
    compared = comparison(device, situation.plan, watched.health_in(situation.last))
    made = Health(
        device=device.device,
        name=device.name,
        rank=watched.rank,
        limit=device.total,
        demand=demand(device),
        fragmentation=device.fragmentation,
        figure=compared.figure,
        measured=compared.measured,
        predicted=compared.predicted,
        predicted_high=compared.high,
        trend=_trend(situation, watched),
        step=watched.step,
    )
    return with_reasons(made, reasons(made, watched, situation))


def demand(device: DeviceReading) -> int:
    """Bytes of a device that cannot be had otherwise.

    The allocator gives whole free segments back before it fails, so that they do not count. Its peak does: memory is
    read between steps, and the next step comes.
    """
    if device.allocated is None or device.reserved is None:
        return device.used
    beside = max(0, device.used - device.reserved)
    return beside + max(device.allocated + (device.inactive or 0), device.peak_allocated or 0)


def host_health(situation: Situation) -> Health:
    """Judge the host's memory."""
    reading, last = situation.reading.host, situation.last
    made = Health(device=HOST, limit=reading.total, demand=reading.total - reading.available)
    level = level_for(made.utilisation, level_before(last.host if last else None, "MM002"), situation.thresholds)
    sentence = f"the host has {format_bytes(reading.available)} left of {format_bytes(reading.total)}"
    return with_reasons(made, [finding("MM002", level, sentence)] if level else [])


def _trend(situation: Situation, watched: Watched) -> Trend | None:
    device, now = watched.device, situation.reading
    if device.allocated is None and device.device == "cpu" and situation.step is None:
        return None  # Resident memory grows with every import and every page that is touched first.
    here = (Point(situation.step, now.seconds), _growing(device, now))
    chosen = [[*_points(window, watched), here] for window in situation.windows]
    return growth(chosen, device.total - demand(device))


def _points(window: Sequence[Check], watched: Watched) -> Iterator[tuple[Point, int]]:
    for check in window:
        earlier = watched.reading_in(check)
        if earlier is not None:
            yield Point(check.step, check.reading.seconds), _growing(earlier, check.reading)


def _growing(device: DeviceReading, reading: Reading) -> int:
    """The figure that a trend is of: live blocks; else what is next to them."""
    if device.allocated is not None:
        return device.allocated
    return reading.host.resident if device.device == "cpu" else device.used


def with_reasons(made: Health, why: Iterable[Finding]) -> Health:
    """A health with these reasons, worst first, and the level that they raise."""
    ordered = tuple(sorted(why, key=lambda each: SEVERITIES.index(each.severity)))
    return replace(made, reasons=ordered, level=Level.of(ordered[0].severity) if ordered else Level.NORMAL)


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
