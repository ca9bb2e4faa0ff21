"""PyTorch's CPU allocations as ``torch.profiler`` reports them; it needs no compiler, but slows a step down.

oneDNN's scratchpads and reordered tensors pass through PyTorch's allocator too; memory of other libraries does not.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from torch.profiler import ProfilerActivity, profile

from memplan.files.output import without_output


class ProfiledEvent(NamedTuple):
    """One allocation or free."""

    nanoseconds: int
    """When, on the profiler's clock."""
    address: int
    """Where."""
    nbytes: int
    """How much; negative for a free."""
    around: tuple[str, ...]
    """Names of the profiler's ranges around it, outermost first."""


class ProfiledRange(NamedTuple):
    """One range of ``record_function``."""

    name: str
    """As it was called."""
    start: int
    """When it began, in nanoseconds on the profiler's clock."""
    end: int
    """When it ended."""


class Profiled(NamedTuple):
    """A profiled run."""

    events: list[ProfiledEvent]
    """In order of time."""
    ranges: list[ProfiledRange]
    """Those asked for, in order of their beginning."""

    @property
    def starts(self) -> list[int]:
        """When each range began."""
        return [each.start for each in self.ranges]

    @property
    def ends(self) -> list[int]:
        """When each range ended, in order."""
        return sorted(each.end for each in self.ranges)


class Profiler:
    """Starts and ends the profiling of a run."""

    def __init__(self) -> None:
        self._profile = profile(activities=[ProfilerActivity.CPU], profile_memory=True)

    def start(self) -> None:
        """Begin."""
        with without_output(2):  # Some builds announce start and stop there, from C++.
            self._profile.start()

    def finish(self, wanted: Callable[[str], bool]) -> Profiled:
        """End, and collect what was seen of ranges with wanted names."""
        with without_output(2):
            self._profile.stop()
        results: Any = self._profile.profiler.kineto_results  # type: ignore[union-attr]  # there is one by now
        found = [
            ProfiledRange(event.name(), event.start_ns(), event.start_ns() + event.duration_ns())
            for event in results.events()
            if wanted(event.name())
        ]
        return Profiled(
            # The walk is not in order of time; the sort is stable, so equal times keep the profiler's own sequence.
            events=sorted(_allocations(results.experimental_event_tree()), key=lambda event: event.nanoseconds),
            ranges=sorted(found, key=lambda each: each.start),
        )


def _allocations(roots: list[Any]) -> Iterator[ProfiledEvent]:
    """Every allocator event in a tree of profiler events."""
    stack: list[tuple[Any, tuple[str, ...]]] = [(root, ()) for root in roots]
    while stack:
        node, around = stack.pop()
        if str(node.tag).endswith("Allocation"):
            fields = node.typed[1]
            yield ProfiledEvent(node.start_time_ns, fields.ptr, fields.alloc_size, around)
        else:
            stack.extend((child, (*around, node.name)) for child in node.children)
