"""A real snapshot's history as a placement problem."""

from pathlib import Path

from memplan.plan.reuse.answer_records import Gathered, StepContext
from memplan.plan.reuse.from_requests import ALIGNMENT, stretch_of
from memplan.snapshot.frames import PlaceKind, place_of
from memplan.snapshot.policy import recorded_policy
from memplan.snapshot.read import load_snapshot
from memplan.snapshot.records import Frame
from memplan.snapshot.requests import device_with_history, history_requests
from memplan.snapshot.timeline import timeline
from memplan.units import Bytes


def gather_snapshot(path: Path, capacity: int | None = None) -> Gathered:
    """Read a snapshot and make a problem of what its history allocates and frees.

    Raises:
        UsageError: The file is no snapshot, or it holds no history.
    """
    snapshot = load_snapshot(path)
    device = device_with_history(snapshot, path)
    found = history_requests(device)
    stretch = stretch_of(found.before, found.history, alignment=ALIGNMENT, capacity=capacity)
    curves = timeline(device, recorded_policy(snapshot.settings).policy)
    stacks = [found.frames.get(key, ()) for key in stretch.keys]
    return Gathered(
        problem=stretch.problem,
        surroundings=StepContext(
            device=f"device {device.device}",
            labels=tuple(_kind(stack) for stack in stacks),
            owners=tuple(_place(stack) for stack in stacks),
            repetitions=stretch.repetitions,
            persistent_bytes=stretch.persistent_bytes,
            outside_bytes=stretch.outside_bytes,
            reserved_bytes=Bytes(max(curves.reserved)),
            step="",
            options={},
            assumptions=(f"the history's {len(device.events):,} events are one stretch, which is not repeated",),
        ),
    )


def _kind(stack: tuple[Frame, ...]) -> str:
    return "backward" if place_of(stack).kind is PlaceKind.BACKWARD else "other"


def _place(stack: tuple[Frame, ...]) -> str:
    place = place_of(stack)
    line = f" {place.file}:{place.line}" if place.file else ""
    return f"{place.name}{line}".strip()
