"""The same allocations and frees under another allocator policy.

What is assumed: what was alive when the history began is allocated first, in the order of its addresses, by an
allocator that holds nothing yet. The real one had a past, so the policy that the process ran with is replayed in the
same way: policies are compared with that, not with the recording.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from memplan.replay.policy import AllocatorPolicy
from memplan.replay.records import DEFAULT_POOL, MemoryProfile, Request
from memplan.replay.replay import replay
from memplan.snapshot.records import DeviceSnapshot, SnapshotEvent
from memplan.snapshot.start_state import blocks_before, pools_of_allocations
from memplan.snapshot.state import OutOfMemoryEvent

CANDIDATES = ("expandable_segments:True", "max_split_size_mb:512", "roundup_power2_divisions:8")
"""Tried unasked where memory is fragmented: the options that PyTorch's own documentation names against it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """What a policy would have made of a history."""

    conf: str
    """The policy, as in ``PYTORCH_CUDA_ALLOC_CONF``; empty for PyTorch's defaults."""
    profile: MemoryProfile
    """Peaks, without a limit."""
    survives: bool | None
    """Would the requests that failed have been served, on as much memory as there was? None where none failed."""

    @property
    def slack(self) -> float:
        """Share of the reserved peak that was never in use at once."""
        return 1 - self.profile.peak_active / self.profile.peak_reserved if self.profile.peak_reserved else 0.0


def what_if(
    snapshot: DeviceSnapshot, policy: AllocatorPolicy, conf: str, *, failures: tuple[OutOfMemoryEvent, ...] = ()
) -> WhatIf:
    """Replay a history under another policy.

    Requests that failed are made again: served and freed at once.
    """
    requests = tuple(_requests(snapshot, policy))
    survives = None
    if failures:
        # What it had and what was left is the most that the process could have had.
        most = max(failure.reserved + failure.device_free for failure in failures)
        survives = replay(requests, policy=policy, limit_bytes=most).out_of_memory is None
    return WhatIf(conf=conf, profile=replay(requests, policy=policy), survives=survives)


def _requests(snapshot: DeviceSnapshot, policy: AllocatorPolicy) -> Iterator[Request]:
    """The stream, with keys in order of allocation."""
    before = blocks_before(snapshot, policy)
    streams = _streams_before(snapshot)
    pool_of = pools_of_allocations(snapshot)
    live: dict[int, int] = {}
    for key, address in enumerate(sorted(before)):
        live[address] = key
        first = SnapshotEvent("alloc", address, before[address].requested, streams[address])
        yield from _within(pool_of(first), Request("alloc", key, first.nbytes, first.stream))
    key = len(live)
    for event in snapshot.events:
        match event.action:
            case "alloc":
                if event.address in live:
                    # The history has lost a free.
                    yield Request("free", live.pop(event.address), 0, 0)
                live[event.address] = key
                yield from _within(pool_of(event), Request("alloc", key, event.nbytes, event.stream))
                key += 1
            case "free_completed" if event.address in live:
                yield Request("free", live.pop(event.address), 0, 0)
            case "oom":
                yield Request("alloc", key, event.nbytes, event.stream)
                yield Request("free", key, 0, 0)
                key += 1
            case _:
                pass


def _within(pool: int, request: Request) -> Iterator[Request]:
    """The request, between entering and leaving its private pool if it has one."""
    if pool == DEFAULT_POOL:
        yield request
    else:
        yield from (Request("pool_begin", pool, 0, 0), request, Request("pool_end", pool, 0, 0))


def _streams_before(snapshot: DeviceSnapshot) -> dict[int, int]:
    """Address → stream of what was alive when the history began."""
    streams = {block.address: segment.stream for segment in snapshot.layout.segments for block in segment.blocks}
    for event in reversed(snapshot.events):
        if event.action == "free_completed":
            streams[event.address] = event.stream
    return streams
