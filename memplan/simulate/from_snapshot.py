"""A real snapshot's history as a step that repeats.

What lives before the history is set up first. What the history frees of that must be back, and what it leaves behind
must be gone, before it can come again: blocks of equal size and stream take each other's place, in order; for the rest,
what is missing is allocated at the beginning of a repetition and what is too much freed at its end.
"""

import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from memplan.replay.records import Request
from memplan.simulate.family import TracedLength, put_together
from memplan.simulate.records import Workload
from memplan.snapshot.read import load_snapshot
from memplan.snapshot.records import DeviceSnapshot
from memplan.snapshot.requests import device_with_history, history_requests


def is_snapshot(target: str) -> bool:
    """Does a target name a snapshot file?"""
    return target.endswith((".pickle", ".pkl"))


def snapshot_workload(path: Path, steps: int) -> Workload:
    """Read a CUDA memory snapshot and make its history, repeated so often, the step of a workload.

    Raises:
        UsageError: The file is no snapshot, or it holds no history.
    """
    started = time.perf_counter()
    device = device_with_history(load_snapshot(path), path)
    traced, unmatched = repeated(device)
    remarks = [
        f"the history of device {device.device} is one step; {len(device.events):,} events are repeated {steps} times"
    ]
    if unmatched:
        remarks.append(
            f"{unmatched} blocks that the history leaves behind or takes away are put right between repetitions"
        )
    return Workload(
        target=str(path),
        families=put_together({0: traced}),
        lengths=(0,) * steps,
        assumptions=tuple(remarks),
        not_modelled=("blocks that wait for another stream after they are freed",),
        options={},
        traced_lengths=(),
        seconds=time.perf_counter() - started,
    )


def repeated(device: DeviceSnapshot) -> tuple[TracedLength, int]:
    """Streams of a history that repeats, and how many blocks had to be put right for that."""
    found = history_requests(device)
    before, step, survivors = found.before, found.history, found.survivors
    freed = {request.key for request in step if request.action == "free"}
    gone = [request for request in before if request.key in freed]
    heirs, lost, extra = _matched(gone, survivors)
    # Ends where it began: what is lost comes back first, what is too much goes last.
    renewed = {request.key: -1 - index for index, request in enumerate(lost)}
    closed = (
        *(request._replace(key=renewed[request.key]) for request in lost),
        *(request._replace(key=renewed.get(request.key, request.key)) for request in step),
        *(Request("free", request.key, 0, request.stream) for request in extra),
    )
    kept = tuple(request for request in before if request.key not in renewed)
    traced = TracedLength(
        length=0,
        set_up=kept,
        warm_up=(),
        step=closed,
        carried=tuple((index, old, new) for index, (old, new) in enumerate(heirs)),
    )
    return traced, len(lost) + len(extra)


def _matched(
    gone: Sequence[Request], survivors: Sequence[Request]
) -> tuple[list[tuple[int, int]], list[Request], list[Request]]:
    """Pairs of equal size and stream (old key, key in its place), what has no heir, and what is nobody's."""
    waiting: defaultdict[tuple[int, int], list[Request]] = defaultdict(list)
    for request in reversed(survivors):
        waiting[request.nbytes, request.stream].append(request)
    heirs: list[tuple[int, int]] = []
    lost: list[Request] = []
    for request in gone:
        alike = waiting[request.nbytes, request.stream]
        if alike:
            heirs.append((request.key, alike.pop().key))
        else:
            lost.append(request)
    return heirs, lost, [request for alike in waiting.values() for request in alike]
