"""The books of a recording: who is in which region, and what each has seen.

A counter of bytes has one peak, which regions that overlap must share: whoever reads it lets it begin anew, and tells
what it was to the innermost region of every thread. A region that ends tells the one around it, so that no peak is lost
and none is told twice.
"""

from collections.abc import Callable
from threading import RLock, get_ident
from time import monotonic_ns
from typing import NamedTuple

from memplan.runtime.profile.records import Border, Region, Sample


class CounterReading(NamedTuple):
    """One look at the counters; their peak begins anew with it."""

    allocated: int
    """Bytes alive."""
    peak: int
    """Most alive at once since the look before, at least ``allocated``."""
    total: int | None = None
    """Sum of all requests so far; None where nobody counts."""
    allocations: int | None = None
    """How many requests so far."""


class _Node:
    """All calls of one region so far."""

    __slots__ = (
        "allocations", "calls", "children", "delta", "errors", "growth", "index", "nanoseconds", "outer", "own", "peak",
        "total",
    )  # fmt: skip

    def __init__(self, outer: "_Node | None", index: int) -> None:
        self.outer, self.index = outer, index
        self.children: dict[str, _Node] = {}
        self.calls = self.errors = self.delta = self.peak = self.growth = 0
        self.total: int | None = 0
        self.allocations: int | None = 0
        self.nanoseconds = self.own = 0


class _Frame:
    """A region that somebody is in."""

    __slots__ = ("handle", "inside", "node", "peak", "start", "started")

    def __init__(self, handle: object, node: _Node, start: CounterReading, started: int) -> None:
        self.handle, self.node, self.start, self.started = handle, node, start, started
        self.peak = start.allocated
        self.inside = 0
        """Nanoseconds spent in regions inside of it."""


class RegionLedger:
    """The books. Safe to use from several threads; each has its own stack of regions.

    The recording began at a moment of ``time.monotonic_ns``. ``take`` looks at the counters, under a lock. ``thread``
    gives the number of the calling thread, as events have it; None keeps no log of borders. ``pin`` is told of every
    moment in that log.
    """

    def __init__(
        self,
        take: Callable[[], CounterReading],
        began: int,
        *,
        thread: Callable[[], int] | None = None,
        pin: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._take, self._began, self._thread, self._pin = take, began, thread, pin
        # A finalizer may run, and enter a region, while it is held.
        self._lock = RLock()
        self._roots: dict[str, _Node] = {}
        self._nodes: list[tuple[tuple[str, ...], _Node]] = []
        self._stacks: dict[int, list[_Frame]] = {}
        self._unsampled = 0
        self.peak = 0
        """Most alive at once so far."""
        self.log: list[Border] = []
        """Borders so far."""
        self.crossed = 0
        """How many."""
        self.nanoseconds = 0
        """What crossing them took."""

    def enter(self, handle: object, name: str) -> None:
        """The calling thread enters a region of a name; the handle is what will leave it again."""
        with self._lock:
            came = monotonic_ns()
            taken = self._look()
            stack = self._stacks.setdefault(get_ident(), [])
            node = self._node(stack[-1].node if stack else None, name)
            # The region's time begins, and what it takes to get there ends, only now.
            at = monotonic_ns()
            stack.append(_Frame(handle, node, taken, at))
            if self._thread is not None:
                self._note(at, self._thread(), node.index)
            self.crossed += 1
            self.nanoseconds += at - came

    def leave(self, handle: object, *, failed: bool = False) -> None:
        """The calling thread leaves a region, and with it any that it is still in inside of that one.

        Where the handle is in no region of the thread, nothing happens.
        """
        with self._lock:
            at = monotonic_ns()
            stack = self._stacks.get(get_ident())
            if not stack or (stack[-1].handle is not handle and all(frame.handle is not handle for frame in stack)):
                return
            taken, left = self._look(), None
            while left is not handle:
                left = self._close(stack, taken, at, failed=failed).handle
            if not stack:
                del self._stacks[get_ident()]
            if self._thread is not None:
                self._note(at, self._thread(), stack[-1].node.index if stack else -1)
            self.crossed += 1
            self.nanoseconds += monotonic_ns() - at

    def sample(self) -> Sample:
        """Look between borders."""
        with self._lock:
            taken = self._look()
            peak, self._unsampled = self._unsampled, taken.allocated
            return Sample(monotonic_ns() - self._began, taken.allocated, peak)

    def end(self) -> None:
        """Close whatever is still open, of all threads."""
        with self._lock:
            taken, at = self._look(), monotonic_ns()
            for stack in self._stacks.values():
                while stack:
                    self._close(stack, taken, at, failed=False)
            self._stacks.clear()

    def regions(self) -> tuple[Region, ...]:
        """What has been seen of regions that have ended at least once, in the order in which they first began."""
        with self._lock:
            ended = [(path, node) for path, node in self._nodes if node.calls]
        return tuple(
            Region(
                path=path,
                calls=node.calls,
                errors=node.errors,
                delta_bytes=node.delta,
                peak_bytes=node.peak,
                growth_bytes=node.growth,
                total_bytes=node.total,
                allocations=node.allocations,
                seconds=node.nanoseconds / 1e9,
                self_seconds=node.own / 1e9,
            )
            for path, node in ended
        )

    def _look(self) -> CounterReading:
        taken = self._take()
        peak = taken.peak
        self.peak = max(self.peak, peak)
        self._unsampled = max(self._unsampled, peak)
        for stack in self._stacks.values():
            if stack and stack[-1].peak < peak:
                stack[-1].peak = peak
        return taken

    def _node(self, outer: _Node | None, name: str) -> _Node:
        siblings = outer.children if outer else self._roots
        node = siblings.get(name)
        if node is None:
            node = siblings[name] = _Node(outer, len(self._nodes))
            self._nodes.append(((*(self._nodes[outer.index][0] if outer else ()), name), node))
        return node

    def _note(self, at: int, thread: int, region: int) -> None:
        moment = at - self._began
        self._pin(moment)
        self.log.append(Border(moment, thread, region))

    def _close(self, stack: list[_Frame], taken: CounterReading, at: int, *, failed: bool) -> _Frame:
        frame = stack.pop()
        node, start, lasted = frame.node, frame.start, at - frame.started
        if stack:
            stack[-1].peak = max(stack[-1].peak, frame.peak)
            stack[-1].inside += lasted
        node.calls += 1
        node.errors += failed
        node.delta += taken.allocated - start.allocated
        node.peak = max(node.peak, frame.peak)
        node.growth = max(node.growth, frame.peak - start.allocated)
        node.total = _more(node.total, start.total, taken.total)
        node.allocations = _more(node.allocations, start.allocations, taken.allocations)
        node.nanoseconds += lasted
        node.own += lasted - frame.inside
        return frame


def _more(so_far: int | None, start: int | None, end: int | None) -> int | None:
    return None if so_far is None or start is None or end is None else so_far + end - start
