"""What ``memplan monitor`` shows while the command runs: some rows of fixed width, made anew for each check."""

from collections.abc import Iterator

from rich.text import Text

from memplan.report.draw.layout import SEPARATOR, bar, bounded, spread
from memplan.runtime.meters.records import DeviceReading
from memplan.runtime.monitor.records import Check, Health, Level
from memplan.text import shorten
from memplan.units import format_bytes

ROWS = 4
"""A headline, up to two devices, and the host."""
STYLES = {Level.NORMAL: "green", Level.WARNING: "yellow", Level.CRITICAL: "red", Level.EMERGENCY: "bold red reverse"}
SYMBOLS = {Level.NORMAL: "✓", Level.WARNING: "!", Level.CRITICAL: "✗", Level.EMERGENCY: "✗"}
_BAR = 16
"""Cells of a bar."""


def render(check: Check, *, seconds: float, width: int = 80) -> list[Text]:
    """Write a check, so many seconds after the start, as exactly ``ROWS`` rows of styled text."""
    width = bounded(width)
    lines = [_headline(check, seconds, width), *_devices(check, width), _host(check)]
    rows = [*lines, *[Text("")] * ROWS][:ROWS]
    for row in rows:
        row.truncate(width, overflow="ellipsis")
    return rows


def duration(seconds: float) -> str:
    """Seconds as people say them: ``12 s``, ``3 m 05 s``, ``2 h 10 m``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} m {whole % 60:02} s" if whole < 3600 else f"{whole // 3600} h {whole // 60 % 60:02} m"


def _headline(check: Check, seconds: float, width: int) -> Text:
    state = (f" {SYMBOLS[check.level]} {check.level.word} ", STYLES[check.level])
    step = f"step {check.step}{SEPARATOR}" if check.step is not None else ""
    why = f"{SEPARATOR}{check.recommendations[0].code}" if check.level and check.recommendations else ""
    left = Text.assemble(("memplan ", "dim"), state, why)
    return spread(left, Text(f"{step}{duration(seconds)}", style="dim"), width)


def _devices(check: Check, width: int) -> Iterator[Text]:
    """The fullest two, in their order."""
    pairs = list(zip(check.reading.devices, check.devices, strict=True))
    shown = sorted(pairs, key=lambda pair: -pair[1].utilisation)[: ROWS - 2]
    left_out = len(pairs) - len(shown)
    for device, health in (pair for pair in pairs if pair in shown):
        more = f"  (+{left_out} more)" if left_out else ""
        yield _device(device, health, more, width)


def _device(device: DeviceReading, health: Health, more: str, width: int) -> Text:
    name = device.device if health.rank is None else f"{device.device} r{health.rank}"
    # What all processes hold of the host's memory stands in the host's row.
    taken = health.demand if device.resident is None else device.resident
    items = [f"{format_bytes(taken)} of {format_bytes(health.limit)}"]
    if device.allocated is not None:
        items.append(f"alloc {format_bytes(device.allocated)}")
    if health.fragmentation is not None:
        items.append(f"frag {100 * health.fragmentation:.0f} %")
    if health.measured is not None and health.predicted:
        items.append(f"{100 * health.measured / health.predicted:.0f} % of plan")
    share = taken / health.limit if health.limit else 0.0
    return Text.assemble(_bar(name, health, share), shorten(SEPARATOR.join(items) + more, width - _BAR - 12))


def _host(check: Check) -> Text:
    host = check.reading.host
    items = [f"{format_bytes(host.available)} left of {format_bytes(host.total)}", f"run {format_bytes(host.resident)}"]
    return Text.assemble(_bar("host", check.host, check.host.utilisation), SEPARATOR.join(items))


def _bar(name: str, health: Health, share: float) -> Text:
    filled = bar(round(8 * _BAR * min(1.0, share)))
    return Text.assemble((f"{shorten(name, 9):<9} ", "dim"), (f"{filled:<{_BAR}}", STYLES[health.level]), "  ")
