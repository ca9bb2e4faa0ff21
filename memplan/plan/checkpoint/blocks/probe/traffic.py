"""Tensors between blocks: which there are, who needs them in backward under which option, and until when they live.

A probe names its storages afresh. They are told to be the same by role: the n-th argument of a block's run, or what a
certain call of a certain op makes in it. The unplanned step's storages lend their ids to all.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from memplan.plan.checkpoint.blocks.probe.read import BlockRun, Creation, StepReading
from memplan.units import StorageId

Role = int | Creation
"""What a tensor is to a block's run: index of the argument, or what makes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A traced step and the options that its blocks had."""

    reading: StepReading
    """The step."""
    options: tuple[int, ...]
    """Index into each block's menu."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedTensor:
    """A tensor between blocks, under the id that it has in the unplanned step."""

    storage: StorageId
    """That id."""
    nbytes: int
    """As the allocator rounds."""
    born: int
    """Stretch that makes it."""
    needed: int
    """Last stretch up to which it lives whoever holds it."""
    possible: int
    """Last stretch up to which it may live under any choice."""
    run: int
    """Which run of its blocks it belongs to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """All that blocks pass on."""

    passed: Mapping[StorageId, PassedTensor]
    """Tensors whose life depends on the choice."""
    shared: tuple[frozenset[Creation], ...]
    """For each block, the results of its forward that are no matter of its own."""
    names: tuple[Mapping[StorageId, StorageId], ...]
    """For each probe: its id → the unplanned step's, of all that blocks pass on."""
    holds: Mapping[tuple[int, int], frozenset[Role]]
    """(Kind, option) → what a block of the kind needs in its backward."""
    ends: tuple[Mapping[StorageId, int], ...]
    """For each probe, by the unplanned step's id: the last stretch in which the formula counts the tensor."""


def traffic(probes: Sequence[Probe], kinds: Sequence[int]) -> Traffic:
    """Find out what blocks pass on, from probes that are all cut at the same blocks, the unplanned one first."""
    shared = _shared(probes, kinds)
    names = tuple(_names(probes[0].reading, probe.reading, shared) for probe in probes)
    holds = _Holds(probes, kinds, names)
    needed = holds.needed()
    passed = {
        storage: each
        for storage, each in _passed(probes[0].reading, holds, needed).items()
        if each.possible > each.needed
    }
    ends = tuple(
        {name: max(needed[name], held.get(name, -1)) for name in passed}
        for held in (holds.ends(probe, known) for probe, known in zip(probes, names, strict=True))
    )
    return Traffic(passed=passed, shared=shared, names=names, holds=holds.of_kind, ends=ends)


def _shared(probes: Sequence[Probe], kinds: Sequence[int]) -> tuple[frozenset[Creation], ...]:
    """Results used outside their block's run, or gone between its forward and its backward, in any probe."""
    found: dict[int, set[Creation]] = defaultdict(set)
    for probe in probes:
        reading = probe.reading
        for block, runs in enumerate(reading.runs):
            for run in runs:
                own = {run.forward, run.backward}
                found[kinds[block]].update(
                    made
                    for made, storage in run.results.items()
                    if reading.uses.get(storage, frozenset()) - own or reading.lives[storage].died < run.backward
                )
    return tuple(frozenset(found[kind]) for kind in kinds)


def _names(
    base: StepReading, reading: StepReading, shared: Sequence[frozenset[Creation]]
) -> dict[StorageId, StorageId]:
    names: dict[StorageId, StorageId] = {}
    for block, (ours, theirs) in enumerate(zip(base.runs, reading.runs, strict=True)):
        for mine, other in zip(ours, theirs, strict=True):
            results = shared[block] & mine.results.keys() & other.results.keys()
            names.update((other.results[made], mine.results[made]) for made in results)
            for here, there in zip(mine.arguments, other.arguments, strict=False):
                names.setdefault(there, here)
    return names


def roles(run: BlockRun, shared: frozenset[Creation]) -> Iterator[tuple[Role, StorageId]]:
    """Yield the storages that a run shares with others, by role."""
    yield from enumerate(run.arguments)
    yield from ((made, storage) for made, storage in run.results.items() if made in shared)


class _Holds:
    """The tensors that blocks need in their backward, by kind and option, as the probes show them."""

    def __init__(
        self, probes: Sequence[Probe], kinds: Sequence[int], names: Sequence[Mapping[StorageId, StorageId]]
    ) -> None:
        self._probes, self._kinds, self._names = probes, kinds, names
        found: dict[tuple[int, int], set[Role]] = defaultdict(set)
        for probe, known in zip(probes, names, strict=True):
            for block, run, role, storage in self._roles(probe, known):
                if run.backward in probe.reading.uses.get(storage, ()) or self._dies_there(probe, run, storage):
                    found[kinds[block], probe.options[block]].add(role)
        self.of_kind = {key: frozenset(held) for key, held in found.items()}

    def _roles(
        self, probe: Probe, known: Mapping[StorageId, StorageId]
    ) -> Iterator[tuple[int, BlockRun, Role, StorageId]]:
        for block, runs in enumerate(probe.reading.runs):
            for run in runs:
                made = frozenset(made for made, storage in run.results.items() if storage in known)
                for role, storage in roles(run, made):
                    yield block, run, role, storage

    @staticmethod
    def _dies_there(probe: Probe, run: BlockRun, storage: StorageId) -> bool:
        """Saved tensors that are never read die with their autograd node."""
        return probe.reading.lives[storage].died == run.backward

    def ends(self, probe: Probe, known: Mapping[StorageId, StorageId]) -> dict[StorageId, int]:
        """Last stretch of the last holder's backward in a probe, by the unplanned step's id."""
        ends: dict[StorageId, int] = {}
        for block, run, role, storage in self._roles(probe, known):
            if role in self.of_kind.get((self._kinds[block], probe.options[block]), ()):
                ends[known[storage]] = max(ends.get(known[storage], -1), run.backward)
        return ends

    def possible(self) -> dict[StorageId, int]:
        """Last stretch up to which any option of any block may hold each tensor."""
        every: dict[int, set[Role]] = defaultdict(set)
        for (kind, _), held in self.of_kind.items():
            every[kind] |= held
        ends: dict[StorageId, int] = {}
        for block, run, role, storage in self._roles(self._probes[0], self._names[0]):
            if role in every[self._kinds[block]]:
                ends[storage] = max(ends.get(storage, -1), run.backward)
        return ends

    def needed(self) -> dict[StorageId, int]:
        """Last stretch up to which each tensor lives though no block holds it."""
        needed: dict[StorageId, int] = {}
        for probe, known in zip(self._probes, self._names, strict=True):
            reading, ends = probe.reading, self.ends(probe, known)
            for storage, name in known.items():
                uses = [index for index in reading.uses.get(storage, ()) if not _is_block_backward(reading, index)]
                whole = _last_whole(reading, storage)
                # A death that no holder explains: a variable of the loop or of the model's forward held it.
                unexplained = whole if reading.lives[storage].died > ends.get(name, -1) else -1
                needed[name] = max(needed.get(name, -1), *uses, unexplained)
        return needed


def _last_whole(reading: StepReading, storage: StorageId) -> int:
    """The last stretch that a storage lives through; a gap that only frees it goes on without it."""
    life, count = reading.lives[storage], len(reading.cut.stretches)
    if life.died == count:
        return count - 1
    stretch = reading.cut.stretches[life.died]
    goes_on = stretch.block is None and life.died_op < stretch.end_op - 1
    return life.died - 1 if goes_on and life.died not in reading.uses.get(storage, ()) else life.died


def _is_block_backward(reading: StepReading, index: int) -> bool:
    stretch = reading.cut.stretches[index]
    return stretch.block is not None and stretch.phase == "backward"


def _passed(base: StepReading, holds: _Holds, needed: Mapping[StorageId, int]) -> dict[StorageId, PassedTensor]:
    first_run: dict[StorageId, int] = {}
    for runs in base.runs:
        for index, run in enumerate(runs):
            for storage in (*run.arguments, *run.results.values()):
                first_run[storage] = min(first_run.get(storage, index), index)
    return {
        storage: PassedTensor(
            storage=storage,
            nbytes=base.lives[storage].nbytes,
            born=base.lives[storage].born,
            needed=needed[storage],
            possible=end,
            run=first_run[storage],
        )
        for storage, end in holds.possible().items()
    }
