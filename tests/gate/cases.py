"""Policies, places and growth made by hand, for the gate's tests."""

from dataclasses import replace
from pathlib import Path

from memplan.findings.records import Place
from memplan.gate.judge import Case
from memplan.gate.place import Places
from memplan.measure.records import Estimate, Owner, Verdict
from memplan.project.records import Policy
from tests.report.example_estimates import FITS, H100

PLACES = Places(folder=Path(), table=Place(file="memplan.toml", line=7))


def sized(device: int, *, low: int | None = None, high: int | None = None, usable: int = 100_000) -> Estimate:
    """An estimate with this peak, interval and usable memory, and the verdict that follows from them."""
    high = device if high is None else high
    verdict = Verdict.OOM if device > usable else Verdict.TIGHT if high > usable else Verdict.FITS
    peak = replace(FITS.peak, device_bytes=device, low_bytes=device if low is None else low, high_bytes=high)
    return replace(FITS, verdict=verdict, peak=peak, gpu=replace(H100, usable_bytes=usable), advice=())


def owning(*owners: tuple[str, str, str, int]) -> Estimate:
    """An estimate with these owners: module, source, category, bytes."""
    made = tuple(Owner(module=each[0], source=each[1], category=each[2], bytes=each[3]) for each in owners)
    return replace(FITS, owners=made)


def case(estimate: Estimate | None, policy: Policy | None = None, **further: object) -> Case:
    fields = {"job": "llama", "policy": policy or Policy(), "places": PLACES, "estimate": estimate}
    return Case(**(fields | further))
