"""Checks made by hand."""

from typing import Any

from memplan.findings.records import Finding
from memplan.runtime.meters.records import DeviceReading, HostReading, Reading
from memplan.runtime.monitor.records import Check, Health, Level, RegionUse, RunPlan, Trend
from memplan.units import Bytes

GIB = 1 << 30
PLAN = RunPlan(
    target="model.py",
    gpu="H100 80GB",
    verdict="fits",
    total=Bytes(80 * GIB),
    usable=Bytes(79 * GIB),
    allocated=Bytes(50 * GIB),
    reserved=Bytes(52 * GIB),
    device=Bytes(53 * GIB),
    low=Bytes(52 * GIB),
    high=Bytes(55 * GIB),
    phase="backward",
    module="layers.3.mlp",
    breakdown={"parameter": Bytes(53 * GIB)},
    curve=None,
)
TIMES = tuple(10 * power if power < 12 else 0 for power in range(48))
SIZES = tuple(power * GIB // 16 if power < 30 else 0 for power in range(48))
TREND = Trend(per_step=1024.0, by="step", checks=40, growing=True, until_full=5000.0)
REASON = Finding(code="MM001", severity="warning", message="86 % of the memory is taken", fix="take a smaller batch")


def device(index: int = 0, **changes: Any) -> DeviceReading:
    """A card in the middle of training."""
    told: dict[str, Any] = {
        "device": f"cuda:{index}",
        "name": "NVIDIA H100 80GB HBM3",
        "uuid": f"GPU-{index:04d}",
        "allocated": 40 * GIB,
        "requested": 39 * GIB,
        "reserved": 48 * GIB,
        "inactive": 6 * GIB,
        "peak_allocated": 45 * GIB,
        "peak_reserved": 48 * GIB,
        "used": 50 * GIB,
        "total": 80 * GIB,
        "retries": 2,
        "ooms": 1,
        "times": TIMES,
        "spent": 123_456,
        "sizes": SIZES,
    }
    return DeviceReading(**told | changes)


def health(read: DeviceReading, **changes: Any) -> Health:
    """What a card's reading might mean."""
    told: dict[str, Any] = {
        "device": read.device,
        "name": read.name,
        "rank": None,
        "level": Level.WARNING,
        "reasons": (REASON,),
        "limit": read.total,
        "demand": 60 * GIB,
        "fragmentation": read.fragmentation,
        "figure": "reserved",
        "measured": read.peak_reserved,
        "predicted": PLAN.reserved,
        "predicted_high": PLAN.high - PLAN.outside,
        "trend": TREND,
    }
    return Health(**told | changes)


def check(number: int = 0, *devices: DeviceReading, seconds: float = 1_700_000_000.0, **changes: Any) -> Check:
    """One check of these devices."""
    reads = devices or (device(),)
    host = HostReading(resident=3 * GIB, available=200 * GIB, total=256 * GIB, swap_used=0)
    told: dict[str, Any] = {
        "number": number,
        "step": 10 * number,
        "reading": Reading(seconds=seconds + number, devices=reads, host=host),
        "devices": tuple(health(each) for each in reads),
        "host": host_health(),
        "level": Level.WARNING,
        "recommendations": (REASON,),
        "regions": (RegionUse(name="forward", bytes=20 * GIB), RegionUse(name="optimizer", bytes=5 * GIB)),
    }
    return Check(**told | changes)


def host_health(level: Level = Level.NORMAL) -> Health:
    """Of the host."""
    return Health(
        device="host",
        name="",
        rank=None,
        level=level,
        reasons=(),
        limit=256 * GIB,
        demand=56 * GIB,
        fragmentation=None,
        figure="",
        measured=None,
        predicted=None,
        predicted_high=None,
        trend=None,
    )
