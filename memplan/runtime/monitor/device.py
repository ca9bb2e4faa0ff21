"""The health of one device, and of the host."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from memplan.findings.records import SEVERITIES, Finding
from memplan.runtime.meters.records import DeviceReading, Reading
from memplan.runtime.monitor.against_plan import comparison
from memplan.runtime.monitor.reasons import finding, reasons
from memplan.runtime.monitor.records import Check, Health, Level, Trend
from memplan.runtime.monitor.situation import Situation, Watched, level_before, level_for
from memplan.runtime.monitor.trend import Point, growth
from memplan.units import format_bytes

HOST = "host"


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
