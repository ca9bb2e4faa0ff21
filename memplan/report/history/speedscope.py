"""A memory history for https://www.speedscope.app: two profiles whose unit is bytes (its file format, sampled).

One shows what is alive at the peak, by stack: its "Left Heavy" view is a flame graph of memory. The other shows the
allocations of the history in order, each as wide as its bytes.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from memplan.report.history.figures import Allocation, StackReader, allocations, label, moments
from memplan.snapshot.recorded_frames import Stack
from memplan.snapshot.records import DeviceSnapshot, Frame, Snapshot

SCHEMA: Final = "https://www.speedscope.app/file-format-schema.json"
"""What names the format; speedscope tells files by it."""
_UNRECORDED: Final = Frame("??", 0, "allocated before the history began")


def render(snapshot: Snapshot, *, name: str) -> str:
    """Write a real snapshot, or a recording, as a speedscope file: JSON text with a name for its title."""
    table = _FrameTable()
    profiles = [profile for device in snapshot.devices for profile in _profiles(device, table)]
    content = {
        "$schema": SCHEMA,
        "exporter": "memplan",
        "name": name,
        "activeProfileIndex": 0,
        "shared": {"frames": table.frames},
        "profiles": profiles,
    }
    return json.dumps(content, separators=(",", ":"))


def _profiles(device: DeviceSnapshot, table: "_FrameTable") -> list[dict[str, Any]]:
    of = f"device {device.device}: "
    found = allocations(device)
    born = [each for each in found if each.begin >= 0]
    return [
        _sampled(of + "alive at the peak of requested bytes", _alive_at_peak(device, found), table, categories=True),
        # Categories alternate from one allocation to the next: as the outermost level they would tear phases apart.
        _sampled(of + "allocations in order", born, table, categories=False),
    ]


def _alive_at_peak(device: DeviceSnapshot, found: Iterable[Allocation]) -> list[Allocation]:
    totals = [moment.requested for moment in moments(device)]
    peak = max(range(len(totals)), key=totals.__getitem__, default=-1)
    return [each for each in found if each.begin <= peak < each.end]


def _sampled(name: str, found: Sequence[Allocation], table: "_FrameTable", *, categories: bool) -> dict[str, Any]:
    stacks = StackReader(categories=categories)
    samples: list[list[int]] = []
    weights: list[int] = []
    for each in found:
        sample = table.indices(stacks.read(each.frames) or (_UNRECORDED,))
        if samples and samples[-1] is sample:
            weights[-1] += each.nbytes
        else:
            samples.append(sample)
            weights.append(each.nbytes)
    return {
        "type": "sampled",
        "name": name,
        "unit": "bytes",
        "startValue": 0,
        "endValue": sum(weights),
        "samples": samples,
        "weights": weights,
    }


class _FrameTable:
    """The frames that both profiles share, by index."""

    def __init__(self) -> None:
        self.frames: list[dict[str, Any]] = []
        self._index: dict[Frame, int] = {}
        self._samples: dict[Stack, list[int]] = {}

    def indices(self, stack: Stack) -> list[int]:
        """A stack as indices; equal stacks give the same list."""
        sample = self._samples.get(stack)
        if sample is None:
            sample = self._samples[stack] = [self._add(frame) for frame in stack]
        return sample

    def _add(self, frame: Frame) -> int:
        index = self._index.get(frame)
        if index is None:
            index = self._index[frame] = len(self.frames)
            self.frames.append(_described(frame))
        return index


def _described(frame: Frame) -> dict[str, Any]:
    place = {"file": frame.file, "line": frame.line} if frame.line else {}
    return {"name": label(frame), **place}
