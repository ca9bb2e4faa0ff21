"""Blocks that several streams use: a freed one comes back once all of them have caught up.

    record_stream(x, 1)   free x          synchronize(1)   next allocation
    ────┼────────────────────┼─────────────────┼────────────────┼──────────►
     x  │      live          │            pending               │   free

On a GPU events tell how far a stream has come, and time decides. A replay has no clock: here a stream has caught up
when the requests say so (``synchronize``), or when the allocator itself waits, before it flushes its cache. An event is
recorded when a block is freed. One on a stream without new work since its last ``synchronize`` is complete at once;
work is what a request names: an allocation on that stream, or ``record_stream`` with it. So requests without any
``synchronize`` give the most that a GPU could hold back, and one after every op the least; a real run lies between.

Rules after ``recordStream``, ``insert_events``, ``process_events``, ``synchronize_and_free_events`` and
``insert_events_deferred_until_no_capture`` in ``c10/cuda/CUDACachingAllocator.cpp`` (torch 2.13).
"""

from collections import deque
from collections.abc import Mapping

from memplan.replay.blocks import Block
from memplan.replay.records import ALL_STREAMS


class _Event:
    """The end of a stream's work at the moment when a block was freed."""

    __slots__ = ("block", "complete", "stream")

    def __init__(self, block: Block, stream: int, complete: bool) -> None:
        self.block = block
        self.stream = stream
        self.complete = complete


class SharedBlocks:
    """Who uses which block, and which freed ones wait for whom.

    ``one_queue``: events come back in order across all streams, as in the host's allocator, not in order within each.
    """

    def __init__(self, *, one_queue: bool = False) -> None:
        self.uses: dict[Block, dict[int, bool]] = {}
        """Block → other streams that use it, each with: was that recorded during a capture? (``stream_uses``)."""
        self.waiting: dict[Block, int] = {}
        """Freed block → events that it waits for (``event_count``); 0 while a capture defers them."""
        self._one_queue = one_queue
        self._queues: dict[int, deque[_Event]] = {}
        self._deferred: list[Block] = []
        # Streams without new work since they were synchronized.
        self._idle: set[int] = set()
        self._news = False

    @property
    def quiet(self) -> bool:
        """Is there nothing that the next allocation could change?"""
        return not (self._queues or self._deferred or self._idle)

    def record(self, block: Block, stream: int, *, capturing: bool) -> None:
        """Another stream uses a live block; its own stream needs no waiting for."""
        self._idle.discard(stream)
        if stream != block.pool.stream:
            uses = self.uses.setdefault(block, {})
            uses[stream] = uses.get(stream, False) or capturing

    def hold(self, block: Block, *, capturing: bool) -> None:
        """Keep a freed block until the streams that use it have caught up; a capture cannot ask, so it defers that."""
        self.waiting[block] = 0
        if capturing:
            self._deferred.append(block)
            self._news = True
        else:
            self._insert_events(block)

    def hold_unknown(self, block: Block) -> None:
        """Keep a block that waits for streams nobody wrote down: only waiting for all of them brings it back."""
        self.uses[block] = {ALL_STREAMS: False}
        self.hold(block, capturing=False)

    def work_on(self, stream: int) -> None:
        """The stream gets new work."""
        self._idle.discard(stream)

    def synchronize(self, stream: int) -> None:
        """All that a stream was given so far is done; or all streams."""
        used = {other for uses in self.uses.values() for other in uses}
        self._idle |= used if stream == ALL_STREAMS else used & {stream}
        for queue in self._queues.values():
            for event in queue:
                if stream in {event.stream, ALL_STREAMS}:
                    event.complete = self._news = True

    def completed(self) -> list[Block]:
        """Blocks that wait for nothing any more: each queue up to its first event that is not complete."""
        if not self._news:
            return []
        self._news = False
        freed = self._insert_deferred_events()
        for name, queue in list(self._queues.items()):
            while queue and queue[0].complete:
                freed += self._one_less(queue.popleft().block)
            if not queue:
                del self._queues[name]
        return freed

    def wait(self, owner: int | None = None) -> list[Block]:
        """Let the streams catch up with all blocks, or with those of one private pool, which are then free."""
        freed = self._insert_deferred_events()
        for name, queue in list(self._queues.items()):
            kept = deque(event for event in queue if owner is not None and event.block.pool.owner != owner)
            for event in queue:
                if owner is None or event.block.pool.owner == owner:
                    freed += self._one_less(event.block)
            if kept:
                self._queues[name] = kept
            else:
                del self._queues[name]
        return freed

    def fingerprint(self, where: Mapping[Block, tuple[int, int]]) -> tuple[object, ...]:
        """What decides its future, with blocks by their place."""
        return (
            tuple(sorted((where[block], tuple(sorted(uses.items()))) for block, uses in self.uses.items())),
            tuple(
                (name, tuple((where[event.block], event.stream, event.complete) for event in queue))
                for name, queue in sorted(self._queues.items())
            ),
            tuple(sorted(where[block] for block in self._deferred)),
            tuple(sorted(self._idle)),
        )

    def _insert_events(self, block: Block) -> None:
        uses = self.uses.pop(block)
        for stream in uses:
            complete = stream in self._idle
            self._news |= complete
            name = ALL_STREAMS if self._one_queue else stream
            self._queues.setdefault(name, deque()).append(_Event(block, stream, complete))
        self.waiting[block] = len(uses)

    def _insert_deferred_events(self) -> list[Block]:
        """After a capture: what was used during it only is free, for its streams have been joined since."""
        freed = []
        for block in self._deferred:
            self.uses[block] = {stream: False for stream, captured in self.uses[block].items() if not captured}
            self._insert_events(block)
            if not self.waiting[block]:
                del self.waiting[block]
                freed.append(block)
        self._deferred.clear()
        return freed

    def _one_less(self, block: Block) -> list[Block]:
        self.waiting[block] -= 1
        if self.waiting[block]:
            return []
        del self.waiting[block]
        return [block]
