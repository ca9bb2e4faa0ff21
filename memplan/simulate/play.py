"""Plays a workload's steps on one allocator and notes every step's figures."""

from collections.abc import Callable, Hashable, Sequence
from typing import Protocol

from memplan.replay.allocator import Allocator
from memplan.replay.blocks import Block, Pool
from memplan.replay.observer import Observer
from memplan.replay.play import Player
from memplan.replay.records import OutOfMemory
from memplan.simulate.family import Family, Stretch
from memplan.simulate.records import DeviceCalls, StepFigures, Workload


class Simulated(Allocator, Protocol):
    """What a simulation needs of an allocator beside what a replay does."""

    @property
    def moved_bytes(self) -> int:
        """Bytes of live blocks moved."""

    def largest_free(self) -> int:
        """Largest block to be had without the device's help."""


class DeviceTraffic(Observer):
    """Counts what an allocator asks of the device."""

    def __init__(self) -> None:
        self.allocations = 0
        """``cudaMalloc`` calls."""
        self.frees = 0
        """``cudaFree`` calls."""
        self.maps = 0
        """Units mapped."""
        self.unmaps = 0
        """Units unmapped."""

    def map(self, pool: Pool, address: int, nbytes: int) -> None:  # noqa: ARG002 - counts only
        """Count a segment, or the units of a part of one."""
        if pool.unit:
            self.maps += nbytes // pool.unit
        else:
            self.allocations += 1

    def unmap(self, pool: Pool, address: int, nbytes: int) -> None:  # noqa: ARG002 - counts only
        """Count a segment, or the units of a part of one."""
        if pool.unit:
            self.unmaps += nbytes // pool.unit
        else:
            self.frees += 1


class FullError(Exception):
    """The device cannot serve a request; the step that was playing is lost."""


class StepPlayer:
    """One allocator going through a workload's steps.

    ``begin`` is told of every stretch before it is played, with the family it belongs to.
    """

    def __init__(self, allocator: Simulated, begin: Callable[[Family, Stretch], None] | None = None) -> None:
        self.steps: list[StepFigures] = []
        """Figures of the steps played or, after ``settled_at``, known."""
        self.settled_at: int | None = None
        """Steps played until the state repeated."""
        self._allocator = allocator
        self._traffic = DeviceTraffic()
        self._player = Player(allocator, (self._traffic,))
        self._live = self._player.live
        self._begin = begin
        self._passed: dict[Hashable, Block] = {}
        self._served = 0

    @property
    def failure(self) -> OutOfMemory | None:
        """The request that the device could not serve."""
        return self._allocator.failure

    def run(self, workload: Workload) -> None:
        """Play all steps, or up to the one for which the device is too small."""
        try:
            self._warm_up(workload)
            self._repeat(workload)
        except FullError:
            return

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
        """One stretch."""
        sizes = sizes or family.sizes_at(fitting)
        if self._begin is not None:
            self._begin(family, stretch)
        player, before = self._player, self._calls() if self.steps else DeviceCalls()
        player.forget_peaks()
        if not player.play([(action, key, sizes[size], stream) for action, key, size, stream in stretch]):
            raise FullError
        self._served += [call.action for call in stretch].count("alloc")
        return StepFigures(
            length=length,
            peak_requested=player.peak_requested,
            peak_allocated=player.peak_allocated,
            peak_reserved=player.peak_reserved,
            requested_at_peak=player.requested_at_peak,
            allocated_at_peak=player.allocated_at_peak,
            end_reserved=self._allocator.reserved,
            largest_free=self._allocator.largest_free(),
            calls=self._calls().since(before),
        )

    def _calls(self) -> DeviceCalls:
        """All that the allocator did so far."""
        traffic = self._traffic
        return DeviceCalls(
            requests=self._served,
            allocations=traffic.allocations,
            frees=traffic.frees,
            maps=traffic.maps,
            unmaps=traffic.unmaps,
            retries=self._allocator.retries,
            moved_bytes=self._allocator.moved_bytes,
        )
