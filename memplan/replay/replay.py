"""Plays streams of requests to an allocator and keeps the peaks; repeats the last step until nothing changes any more.

How a step repeats. Its requests name allocations by key. Some keys it frees were born before it: what the previous step
left behind. ``rename`` says which allocation takes whose place once the step is over:

    prefix            step, as traced             step again                  rename = {g1: g2}
    ───────────┐┌─────────────────────────┐┌─────────────────────────┐
     alloc g1  ││ free g1  …  alloc g2    ││ free g1  …  alloc g2    │
               ││      g1: from the       ││      g1: now the        │
               ││      prefix             ││      g2 of last time    │

After every repetition each key ``old`` in ``rename`` stands for what ``rename[old]`` stood for, all at once; so a value
that lives for two steps is a chain, ``{a: b, b: c}``. What is born in the step, still alive at its end and nobody's
successor stays for ever, once more in every repetition.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from memplan.errors import MemplanError
from memplan.replay.blocks import Block
from memplan.replay.caching import CachingAllocator
from memplan.replay.cpu import NoCaching, PlainAllocator
from memplan.replay.expandable import ExpandableAllocator
from memplan.replay.pinned import PinnedAllocator
from memplan.replay.policy import AllocatorPolicy, PinnedPolicy
from memplan.replay.records import MemoryProfile, OutOfMemory, Request
from memplan.units import Bytes

Policy = AllocatorPolicy | PinnedPolicy | NoCaching
"""How a device hands out memory."""
MAX_STEPS = 64
"""Default for how often a step is repeated at most; small traced models settle within 2 to 36 repetitions."""


class Allocator(Protocol):
    """What a replay needs of an allocator. One that is no ``StreamAllocator`` is not told of the other requests."""

    requested: int
    failure: OutOfMemory | None
    retries: int

    @property
    def allocated(self) -> int:
        """Bytes in live blocks."""

    @property
    def reserved(self) -> int:
        """Bytes in segments."""

    @property
    def segments(self) -> int:
        """Number of segments."""

    def allocate(self, nbytes: int, stream: int) -> Block | None:
        """Serve a request; None, with ``failure`` set, if that is impossible."""

    def free(self, block: Block) -> None:
        """Take a live block back."""

    def fingerprint(self, live: Mapping[int, Block]) -> tuple[object, ...]:
        """What decides its future, with the live blocks that will be freed by name."""


@runtime_checkable
class StreamAllocator(Allocator, Protocol):
    """An allocator that knows streams and pools."""

    pending: int

    def perform(self, request: Request, block: Block | None) -> None:
        """Serve a request other than an allocation or a free; ``block`` is the live one that it names, if any."""


def make_allocator(policy: Policy, *, limit_bytes: int | None = None, device_bytes: int | None = None) -> Allocator:
    """An empty allocator.

    Args:
        policy: Its options: the device's, the host's for pinned memory, or ``NoCaching()`` for memory straight from the
            system.
        limit_bytes: Memory that the device can give it in all; None for no limit.
        device_bytes: The device's total memory, where it differs from ``limit_bytes``: the CUDA context takes some.
    """
    if isinstance(policy, NoCaching):
        return PlainAllocator(limit_bytes=limit_bytes)
    if isinstance(policy, PinnedPolicy):
        return PinnedAllocator(policy, limit_bytes=limit_bytes)
    kind = ExpandableAllocator if policy.expandable_segments else CachingAllocator
    return kind(policy, limit_bytes=limit_bytes, device_bytes=device_bytes)


def replay(
    requests: Sequence[Request],
    *,
    policy: Policy,
    limit_bytes: int | None = None,
    device_bytes: int | None = None,
) -> MemoryProfile:
    """Play a stream once.

    Args:
        requests: What a program asks for, in order.
        policy: The allocator's options, or ``NoCaching()``.
        limit_bytes: Memory that the device can give the allocator; None for no limit.
        device_bytes: The device's total memory, where it differs from ``limit_bytes``.

    Returns:
        Peaks and end state; ``out_of_memory`` is set if the device was full, and the replay ended there.

    Raises:
        MemplanError: The stream frees what is not alive.
    """
    run = _Run(make_allocator(policy, limit_bytes=limit_bytes, device_bytes=device_bytes))
    return run.profile(steps=1, settled=run.play(requests))


def replay_steps(
    prefix: Sequence[Request],
    step: Sequence[Request],
    rename: Mapping[int, int],
    *,
    policy: Policy,
    limit_bytes: int | None = None,
    device_bytes: int | None = None,
    max_steps: int = MAX_STEPS,
) -> MemoryProfile:
    """Play ``prefix``, then ``step`` until the allocator's state repeats; the module page has a picture.

    Event indices in the result count on through the repetitions: index ``i`` beyond the prefix is event
    ``(i - len(prefix)) % len(step)`` of the step.

    Args:
        prefix: Set-up and all steps before the last, e.g. from ``memplan.replay.stream.request_stream``.
        step: The last step.
        rename: Key freed in the step but born before it → key that stands in its place after one more repetition.
        policy: The allocator's options, or ``NoCaching()``.
        limit_bytes: Memory that the device can give the allocator; None for no limit.
        device_bytes: The device's total memory, where it differs from ``limit_bytes``.
        max_steps: Most repetitions, at least 1.

    Returns:
        Peaks over everything played; ``steps_replayed`` counts the repetitions of ``step``.

    Raises:
        ValueError: ``rename`` does not close the step: a key it needs is missing, dead or used twice.
        MemplanError: The stream frees what is not alive.
    """
    _check_rename(prefix, step, rename)
    run = _Run(make_allocator(policy, limit_bytes=limit_bytes, device_bytes=device_bytes))
    if not run.play(prefix):
        return run.profile(steps=0, settled=False)
    seen = {run.fingerprint(rename)}
    for count in range(1, max_steps + 1):
        if not run.play(step):
            return run.profile(steps=count, settled=False)
        run.apply(rename)
        state = run.fingerprint(rename)
        if state in seen:
            return run.profile(steps=count, settled=True)
        seen.add(state)
    return run.profile(steps=max_steps, settled=False)


class _Run:
    """One replay in progress."""

    def __init__(self, allocator: Allocator) -> None:
        self.allocator = allocator
        self.streams = allocator if isinstance(allocator, StreamAllocator) else None
        self.shared = False
        self.live: dict[int, Block] = {}
        self.played = 0
        self.peak_requested = self.peak_allocated = self.peak_active = self.peak_reserved = 0
        self.allocated_at = self.peak_at = -1
        self.allocated_at_peak = self.requested_at_peak = self.pending_at_peak = 0
        self.out_of_memory: OutOfMemory | None = None

    def play(self, requests: Sequence[Request]) -> bool:
        """Play a stretch; False if the device was full."""
        index = self.played
        self.played += len(requests)
        # This loop is what a replay spends its time in, so names are local and peaks are kept inline.
        allocator, live = self.allocator, self.live
        allocate, free = allocator.allocate, allocator.free
        for index, (action, key, nbytes, stream) in enumerate(requests, index):  # noqa: B020 - counts on
            if action == "free":
                freed = live.pop(key, None)
                if freed is None:
                    raise _not_alive(index, key)
                free(freed)
                continue
            if action != "alloc":
                self._perform(index, Request(action, key, nbytes, stream))
                continue
            block = allocate(nbytes, stream)
            if block is None:
                return self._fail(index)
            live[key] = block
            if allocator.allocated > self.peak_allocated:
                self.peak_allocated, self.allocated_at = allocator.allocated, index
            self.peak_requested = max(self.peak_requested, allocator.requested)
            reserved = allocator.reserved
            if reserved > self.peak_reserved or (
                reserved == self.peak_reserved and allocator.allocated > self.allocated_at_peak
            ):
                self.peak_reserved, self.peak_at = reserved, index
                self.allocated_at_peak, self.requested_at_peak = allocator.allocated, allocator.requested
                self.pending_at_peak = self.pending
            if self.shared:
                self.peak_active = max(self.peak_active, allocator.allocated + self.pending)
        return True

    @property
    def pending(self) -> int:
        return self.streams.pending if self.streams is not None else 0

    def _perform(self, index: int, request: Request) -> None:
        named = request.action == "record_stream"
        block = self.live.get(request.key) if named else None
        if named and block is None:
            raise _not_alive(index, request.key)
        self.shared = True
        if self.streams is not None:
            self.streams.perform(request, block)

    def _fail(self, index: int) -> bool:
        if self.allocator.failure is not None:
            self.out_of_memory = dataclasses.replace(self.allocator.failure, event=index)
        return False

    def apply(self, rename: Mapping[int, int]) -> None:
        """Let every key stand for what its successor stood for."""
        moved = {old: self.live[new] for old, new in rename.items()}
        for new in rename.values():
            del self.live[new]
        self.live.update(moved)

    def fingerprint(self, rename: Mapping[int, int]) -> tuple[object, ...]:
        return self.allocator.fingerprint({old: self.live[old] for old in rename})

    def profile(self, *, steps: int, settled: bool) -> MemoryProfile:
        return MemoryProfile(
            peak_requested=Bytes(self.peak_requested),
            peak_allocated=Bytes(self.peak_allocated),
            peak_reserved=Bytes(self.peak_reserved),
            peak_allocated_at=self.allocated_at,
            peak_at=self.peak_at,
            allocated_at_peak=Bytes(self.allocated_at_peak),
            requested_at_peak=Bytes(self.requested_at_peak),
            end_reserved=Bytes(self.allocator.reserved),
            steps_replayed=steps,
            segments=self.allocator.segments,
            settled=settled,
            retries=self.allocator.retries,
            out_of_memory=self.out_of_memory,
            pending_at_peak=Bytes(self.pending_at_peak),
            # Before the first request about streams both are the same.
            peak_active=Bytes(max(self.peak_active, self.peak_allocated)),
        )


def _not_alive(index: int, key: int) -> MemplanError:
    return MemplanError(f"event {index} names allocation {key}, which is not alive")


def _survivors(requests: Sequence[Request], alive: frozenset[int] = frozenset()) -> frozenset[int]:
    """Keys alive after a stretch."""
    keys = set(alive)
    for request in requests:
        if request.action == "alloc":
            keys.add(request.key)
        elif request.action == "free":
            keys.discard(request.key)
    return frozenset(keys)


def _carried_in(step: Sequence[Request]) -> frozenset[int]:
    """Keys that a step frees and did not allocate."""
    born: set[int] = set()
    carried: set[int] = set()
    for request in step:
        if request.action == "alloc":
            born.add(request.key)
        elif request.action == "free" and request.key not in born:
            carried.add(request.key)
    return frozenset(carried)


def _check_rename(prefix: Sequence[Request], step: Sequence[Request], rename: Mapping[int, int]) -> None:
    before = _survivors(prefix)
    after = _survivors(step, before)
    olds, news = frozenset(rename), frozenset(rename.values())
    complaints = (
        (_carried_in(step) - olds, "the step frees keys {} from before it that `rename` does not replace"),
        (olds - before, "`rename` replaces keys {} that are not alive when the step begins"),
        (news - after, "`rename` puts keys {} in place of others, but they are not alive when the step ends"),
        ((olds & after) - news, "`rename` replaces keys {} that are alive when the step ends and would be lost"),
    )
    for keys, complaint in complaints:
        if keys:
            raise ValueError(complaint.format(sorted(keys)[:5]))
    if len(news) < len(rename):
        raise ValueError("`rename` puts one key in place of several")
