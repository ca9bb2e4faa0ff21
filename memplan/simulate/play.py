"""Plays a workload's steps on one allocator and notes every step's figures."""

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING

from memplan.errors import MemplanError
from memplan.replay.blocks import Block
from memplan.simulate.family import Family, Stretch
from memplan.simulate.metered import Simulated, calls_of
from memplan.simulate.records import DeviceCalls, StepFigures, Workload

if TYPE_CHECKING:
    from memplan.replay.records import OutOfMemory


class FullError(Exception):
    """The device cannot serve a request; the step that was playing is lost."""


class Player:
    """One allocator going through a workload's steps.

    Args:
        allocator: Empty.
        begin: Told of every stretch before it is played, with the family it belongs to.
    """

    def __init__(self, allocator: Simulated, begin: Callable[[Family, Stretch], None] | None = None) -> None:
        self.steps: list[StepFigures] = []
        """Figures of the steps played or, after ``settled_at``, known."""
        self.settled_at: int | None = None
        """Steps played until the state repeated."""
        self.failure: OutOfMemory | None = None
        """The request that the device could not serve."""
        self._allocator = allocator
        self._begin = begin
        self._live: dict[int, Block] = {}
        self._passed: dict[Hashable, Block] = {}
        self._served = 0

    def run(self, workload: Workload) -> None:
        """Play all steps, or up to the one for which the device is too small."""
        try:
            self._warm_up(workload)
            self._repeat(workload)
        except FullError:
            self.failure = self._allocator.failure

    def _warm_up(self, workload: Workload) -> None:
        """Set-up and the steps before the one that repeats, all in the family of the first length."""
        family, fitting = workload.families.of(workload.lengths[0])
        self._play(family, family.set_up, fitting, fitting)
        for stretch, length in zip(family.warm_up, workload.lengths, strict=False):
            fitting = min(max(length, family.shortest), family.longest)
            self.steps.append(self._play(family, stretch, fitting, length))
        if len(self.steps) == len(family.warm_up):
            self._passed = {carried.label: self._live[carried.enters] for carried in family.carried}
        self._live.clear()

    def _repeat(self, workload: Workload) -> None:
        lengths, seen = workload.lengths, dict[int, int]()
        same = len(set(lengths[len(self.steps) :])) == 1
        while len(self.steps) < len(lengths):
            self.steps.append(self._step(workload, lengths[len(self.steps)]))
            if same:
                state = self._state()
                if state in seen:
                    self._fill(len(lengths), seen[state])
                seen[state] = len(self.steps)

    def _state(self) -> int:
        names = dict(enumerate(self._passed.values()))
        # The states themselves take megabytes each; two of them meeting in 64 bits is no more likely than a broken bit.
        return hash(self._allocator.fingerprint(names))

    def _fill(self, total: int, since: int) -> None:
        """What followed the state when it was there before follows it again, and again."""
        self.settled_at = len(self.steps)
        cycle = self.steps[since:]
        while len(self.steps) < total:
            self.steps += cycle[: total - len(self.steps)]

    def _step(self, workload: Workload, length: int) -> StepFigures:
        family, fitting = workload.families.of(length)
        sizes = family.sizes_at(fitting)
        self._enter(family, sizes)
        figures = self._play(family, family.step, fitting, length, sizes)
        self._passed = {carried.label: self._live.pop(carried.leaves) for carried in family.carried}
        self._live.clear()
        return figures

    def _enter(self, family: Family, sizes: Sequence[int]) -> None:
        """Hand what the step before left over to this one; families may leave different things behind."""
        left, self._passed = self._passed, {}
        for carried in family.carried:
            block = left.pop(carried.label, None)
            self._live[carried.enters] = block or self._allocate(sizes[carried.size], carried.stream)
        for block in left.values():
            self._allocator.free(block)

    def _allocate(self, nbytes: int, stream: int) -> Block:
        block = self._allocator.allocate(nbytes, stream)
        if block is None:
            raise FullError
        return block

    def _play(
        self, family: Family, stretch: Stretch, fitting: int, length: int, sizes: Sequence[int] = ()
    ) -> StepFigures:
        """One stretch. This loop is what a simulation spends its time in, so names are local and peaks kept inline."""
        sizes = sizes or family.sizes_at(fitting)
        if self._begin is not None:
            self._begin(family, stretch)
        allocator, live = self._allocator, self._live
        allocate, free = allocator.allocate, allocator.free
        before = calls_of(allocator, self._served) if self.steps else DeviceCalls()
        peak_requested, peak_allocated, peak_reserved = allocator.requested, allocator.allocated, allocator.reserved
        requested_at, allocated_at = peak_requested, peak_allocated
        try:
            for is_free, key, size, stream in stretch:
                if is_free:
                    free(live.pop(key))
                    continue
                block = allocate(sizes[size], stream)
                if block is None:
                    raise FullError
                live[key] = block
                allocated, reserved = allocator.allocated, allocator.reserved
                if allocated > peak_allocated:  # noqa: PLR1730 - max() costs a call per request
                    peak_allocated = allocated
                if allocator.requested > peak_requested:  # noqa: PLR1730
                    peak_requested = allocator.requested
                if reserved > peak_reserved or (reserved == peak_reserved and allocated > allocated_at):
                    peak_reserved, allocated_at, requested_at = reserved, allocated, allocator.requested
        except KeyError as missing:
            raise MemplanError(f"a step frees allocation {missing}, which is not alive") from None
        self._served += sum(not call.is_free for call in stretch)
        return StepFigures(
            length=length,
            peak_requested=peak_requested,
            peak_allocated=peak_allocated,
            peak_reserved=peak_reserved,
            requested_at_peak=requested_at,
            allocated_at_peak=allocated_at,
            end_reserved=allocator.reserved,
            largest_free=allocator.largest_free(),
            calls=calls_of(allocator, self._served).since(before),
        )
