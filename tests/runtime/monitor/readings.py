"""Readings and plans, made up: what CUDA's counters and the driver would say."""

from dataclasses import replace

from memplan.runtime.meters.records import DeviceReading, HostReading, Reading
from memplan.runtime.monitor.judge import DEFAULTS, judge
from memplan.runtime.monitor.records import Check, RunPlan, Thresholds
from memplan.units import GIB

TOTAL = 80 * GIB
HOST = HostReading(resident=2 * GIB, available=100 * GIB, total=128 * GIB, swap_used=0)


def card(index: int = 0, **changes: object) -> DeviceReading:
    """A card of 80 GiB with 10 GiB of live blocks in 12 GiB of segments, and 1 GiB beside them."""
    made = DeviceReading(
        device=f"cuda:{index}",
        name="Card",
        uuid=f"GPU-{index}",
        allocated=10 * GIB,
        requested=10 * GIB,
        reserved=12 * GIB,
        inactive=GIB,
        peak_allocated=11 * GIB,
        peak_reserved=12 * GIB,
        used=13 * GIB,
        total=TOTAL,
    )
    return replace(made, **changes)


def from_outside(index: int = 0, used: int = 13 * GIB) -> DeviceReading:
    """The same card as the driver sees it."""
    unknown = dict.fromkeys(("allocated", "requested", "reserved", "inactive", "peak_allocated", "peak_reserved"))
    return card(index, used=used, **unknown)


def filled(share: float, **changes: object) -> DeviceReading:
    """A card whose live blocks and context take this share of it."""
    allocated = round(share * TOTAL) - GIB
    full = {"allocated": allocated, "reserved": allocated, "peak_allocated": allocated, "peak_reserved": allocated}
    return card(**{**full, "inactive": 0, "used": allocated + GIB, **changes})


def reading(*devices: DeviceReading, seconds: float = 0.0, host: HostReading = HOST) -> Reading:
    return Reading(seconds=seconds, devices=devices or (card(),), host=host)


def plan(**changes: object) -> RunPlan:
    """13 GiB of which 12 are segments, 14 at most."""
    made = RunPlan(
        target="model.py",
        gpu="h100-80g",
        verdict="fits",
        total=TOTAL,
        usable=TOTAL - GIB,
        allocated=11 * GIB,
        reserved=12 * GIB,
        device=13 * GIB,
        low=12 * GIB,
        high=14 * GIB,
        phase="backward",
        module="layers.3",
        breakdown={"parameter": 13 * GIB},
        curve=None,
    )
    return replace(made, **changes)


def judged(
    devices: list[DeviceReading], *, plan: RunPlan | None = None, thresholds: Thresholds = DEFAULTS, steps: bool = True
) -> list[Check]:
    """One check after another, each of one device, a second and a step apart."""
    history: list[Check] = []
    for number, device in enumerate(devices):
        step = number if steps else None
        history.append(judge(reading(device, seconds=float(number)), history, plan, thresholds, step=step))
    return history


def codes(check: Check) -> set[str]:
    return {reason.code for health in (*check.devices, check.host) for reason in health.reasons}
