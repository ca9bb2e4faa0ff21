"""A real snapshot's history as a step that repeats.

What lives before the history is set up first. What the history frees of that must be back, and what it leaves behind
must be gone, before it can come again: blocks of equal size and stream take each other's place, in order; for the rest,
what is missing is allocated at the beginning of a repetition and what is too much freed at its end.
"""

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from memplan.errors import UsageError
from memplan.replay.records import Request
from memplan.simulate.family import TracedLength, put_together
from memplan.simulate.records import Workload
from memplan.snapshot.read import load_snapshot
from memplan.snapshot.records import DeviceSnapshot, Snapshot


def is_snapshot(target: str) -> bool:
    """Does a target name a snapshot file?"""
    return target.endswith((".pickle", ".pkl"))


def snapshot_workload(path: Path, steps: int) -> Workload:
    """Read a snapshot and make its history the step of a workload.

    Args:
        path: A pickle written by ``torch.cuda.memory._dump_snapshot``.
        steps: How often it is repeated.

    Raises:
        UsageError: The file is no snapshot, or it holds no history.
    """
    started = time.perf_counter()
    device = _device(load_snapshot(path), path)
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


def _device(snapshot: Snapshot, path: Path) -> DeviceSnapshot:
    """The device with the longest history."""
    device = max(snapshot.devices, key=lambda device: len(device.events), default=None)
    if device is None or not any(event.action == "alloc" for event in device.events):
        raise UsageError(
            "this snapshot holds no history of allocations",
            where=str(path),
            hint="record one with torch.cuda.memory._record_memory_history() before the steps",
        )
    return device


def repeated(device: DeviceSnapshot) -> tuple[TracedLength, int]:
    """Streams of a history that repeats, and how many blocks had to be put right for that."""
    before, step, survivors = _requests(device)
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


def _requests(device: DeviceSnapshot) -> tuple[list[Request], list[Request], list[Request]]:
    """What lives before the history, the history, and what of it lives after; every block under a key of its own."""
    key_at: dict[int, int] = {}
    before: list[Request] = []
    step: list[Request] = []
    born: dict[int, Request] = {}
    for event in device.events:
        if event.action == "alloc":
            key = key_at[event.address] = len(before) + len(step)
            born[event.address] = Request("alloc", key, event.nbytes, event.stream)
            step.append(born[event.address])
        elif event.action == "free_completed":
            born.pop(event.address, None)
            key = key_at.pop(event.address, -1)
            if key < 0:
                key = len(before) + len(step)
                before.append(Request("alloc", key, event.nbytes, event.stream))
            step.append(Request("free", key, 0, event.stream))
    before += _untouched(device, set(key_at), len(before) + len(step))
    return before, step, list(born.values())


def _untouched(device: DeviceSnapshot, born: set[int], first_key: int) -> Iterator[Request]:
    """Blocks that live throughout."""
    key = first_key
    for segment in device.layout.segments:
        for block in segment.blocks:
            if block.state != "free" and block.address not in born:
                yield Request("alloc", key, block.requested or block.size, segment.stream)
                key += 1


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
