"""Runs to choose among, made by hand."""

from memplan.replay.records import OutOfMemory
from memplan.simulate.records import DeviceCalls, PolicyRun, StepFigures
from memplan.units import GIB, Bytes


def run_of(name: str, conf: str, reserved: int, requested: int = GIB, failed: int | None = None) -> PolicyRun:
    step = StepFigures(
        length=0,
        peak_requested=requested,
        peak_allocated=requested,
        peak_reserved=reserved,
        requested_at_peak=requested,
        allocated_at_peak=requested,
        end_reserved=reserved,
        largest_free=0,
        calls=DeviceCalls(),
    )
    full = OutOfMemory(rounded=Bytes(1), wanted=Bytes(1), allocated=Bytes(1), reserved=Bytes(1), stream=0)
    return PolicyRun(
        name=name,
        conf=conf,
        steps=(step,),
        settled_at=None,
        out_of_memory=full if failed else None,
        failed_step=failed,
        limited=False,
        floor=None,
        notes=(),
        seconds=0.0,
    )


NATIVE, EXPANDABLE = ("native", ""), ("expandable", "expandable_segments:True")
