"""Reads off traced steps what blocks take: bytes kept, peaks, time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from memplan.lifetime.roofline import Roofline
from memplan.plan.checkpoint.blocks.probe.read import BlockRun, rounding
from memplan.plan.checkpoint.blocks.probe.traffic import Probe, Traffic
from memplan.units import StorageId

_EMPTY = "aten.empty.memory_format"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Memory and time of one run of a block."""

    kept: int
    """Own bytes between forward and backward."""
    forward: int
    """Peak of its forward above its start, in bytes."""
    backward: int
    """Peak of its backward above its start, in bytes."""
    seconds: float
    """Roofline time of both."""
    moved: int
    """Bytes of empty tensors that its backward makes."""


class Ruler:
    """Measures probes, the unplanned one first."""

    def __init__(self, probes: Sequence[Probe], found: Traffic, roofline: Roofline) -> None:
        self._probes, self._found, self._roofline = probes, found, roofline
        self._peaks = [list(self._stretch_peaks(index)) for index in range(len(probes))]

    def peak(self, probe: int, stretch: int) -> int:
        """Most bytes alive in a stretch, were no tensor freed there that may live on under another choice."""
        start, above = self._peaks[probe][stretch]
        return start + above

    def figures(self, probe: int, block: int, run: BlockRun) -> Figures:
        """Return memory and time of one run of a block in one probe."""
        reading, shared = self._probes[probe].reading, self._found.shared[block]
        own = [reading.lives[storage] for made, storage in run.results.items() if made not in shared]
        stretches = [reading.cut.stretches[index] for index in (run.forward, run.backward)]
        ops = [op for each in stretches for op in reading.trace.ops[each.first_op : each.end_op]]
        return Figures(
            kept=sum(life.nbytes for life in own if life.died >= run.backward),
            forward=self._peaks[probe][run.forward][1],
            backward=self._peaks[probe][run.backward][1],
            seconds=self._roofline.total(ops),
            moved=self._moved(probe, run),
        )

    def _moved(self, probe: int, run: BlockRun) -> int:
        """Bytes that a run's backward makes room for with nothing computed in them.

        A traced host gives back empty tensors. Where the block itself asks for some, it does so without a plan, too.
        """
        trace, stretch = self._probes[probe].reading.trace, self._probes[probe].reading.cut.stretches[run.backward]
        return sum(
            trace.storages[event.storage].nbytes
            for event in trace.events[stretch.first_event : stretch.end_event]
            if event.action == "alloc" and trace.ops[event.op].name == _EMPTY
        )

    def _stretch_peaks(self, index: int) -> Iterator[tuple[int, int]]:
        """Bytes alive at the start of each stretch, and the most above that within it."""
        reading, deferred = self._probes[index].reading, self._deferred(index)
        lives, live = reading.lives, alive_before(self._probes[index])
        for stretch in reading.cut.stretches:
            start, above, most = live, 0, 0
            for action, storage, _ in reading.trace.events[stretch.first_event : stretch.end_event]:
                if storage not in lives:
                    continue
                change = lives[storage].nbytes if action == "alloc" else -lives[storage].nbytes
                live += change
                above += 0 if change < 0 and storage in deferred else change
                most = max(most, above)
            yield start, most

    def _deferred(self, index: int) -> frozenset[StorageId]:
        """Storages of a probe whose death does not count where it happens: under another choice they live on."""
        lives, passed, ends = self._probes[index].reading.lives, self._found.passed, self._found.ends[index]
        return frozenset(
            storage
            for storage, name in self._found.names[index].items()
            if name in passed and lives[storage].died < passed[name].possible and lives[storage].died <= ends[name]
        )


def alive_before(probe: Probe) -> int:
    """Device bytes alive before the last step's first event."""
    trace, size = probe.reading.trace, rounding(probe.reading.trace)
    live = 0
    for action, storage, _ in trace.events[: trace.steps[-1].first_event]:
        if trace.storages[storage].place == "device":
            live += size(trace.storages[storage].nbytes) * (1 if action == "alloc" else -1)
    return live


def true_peaks(probe: Probe) -> list[int]:
    """Most device bytes alive in each stretch of a probe, in block sizes; nothing deferred."""
    reading, live = probe.reading, alive_before(probe)
    peaks: list[int] = []
    for stretch in reading.cut.stretches:
        most = live
        for action, storage, _ in reading.trace.events[stretch.first_event : stretch.end_event]:
            if storage in reading.lives:
                live += reading.lives[storage].nbytes * (1 if action == "alloc" else -1)
                most = max(most, live)
        peaks.append(most)
    return peaks
