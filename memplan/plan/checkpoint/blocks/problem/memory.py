"""Bytes at every position under a choice, as ``records`` defines them, and what the choice costs.

A segment ``[a, b)`` takes memory as non-reentrant checkpoints do, nested or not:

- *first run*: its blocks run with the forward peak of their ``checkpoint`` option and keep nothing. The segment holds
  every interface tensor from outside that its blocks hold, checkpointed or as chosen, until the end of the backward of
  block ``a``.
- *run again*: at the start of the backward of block ``b - 1``, its parts (blocks, and segments directly inside) run
  once more: a block under its own option, whose kept bytes stay until the end of its own backward; a segment inside as
  in a first run. The last part does not run if it is checkpointed or a segment: the recomputation stops early, and that
  part's own backward runs it. Of segments that end with the same block, the outermost runs first.
- *a segment inside another* has its input for as long as it runs as in a first run: who calls it holds its arguments.
- *interface tensors* made in a run again are copies. Parts of the segment hold the copies; who holds the tensor from
  outside keeps the one of the first run. A copy lives as the tensor does: while the run again needs it, then until the
  end of its last holder's backward.

- *states of the random generator*, where they are on the device: a segment keeps one as it keeps its input, but from
  its first block's forward on; so does a checkpointed block inside it. A run again takes one more.
- *time*: of a run again only the last block stops early, as it does under its ``checkpoint`` option. What all others
  make is needed by the block after them, so that they run in full.

Only ``keep`` and ``checkpoint`` work inside a segment: the other actions would save in the first run.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

from memplan.plan.checkpoint.blocks.problem.copies import backlogs, computing_seconds, fetches
from memplan.plan.checkpoint.blocks.problem.records import BlockChoice, BlockProblem, ModuleBlock, Option
from memplan.plan.checkpoint.blocks.problem.segments import SegmentPart, SegmentTree
from memplan.runtime.checkpoint.records import Action
from memplan.units import Bytes


def position_bytes(problem: BlockProblem, choice: BlockChoice) -> tuple[Bytes, ...]:
    """Most bytes alive at each position under a valid choice; runs again count where they happen."""
    return _Step(problem, choice).bytes()


def peak(problem: BlockProblem, choice: BlockChoice) -> tuple[Bytes, int]:
    """The most bytes alive in the step, and the first position that reaches them."""
    alive = position_bytes(problem, choice)
    most = max(alive)
    return most, alive.index(most)


class _Step:
    def __init__(self, problem: BlockProblem, choice: BlockChoice) -> None:
        self.problem = problem
        self.choice = choice
        self.tree = SegmentTree(problem, choice)
        self.maker = {
            (block.spans[batch][0], batch): index
            for index, block in enumerate(problem.blocks)
            for batch in range(len(block.spans))
        }
        self.held = self._held()
        self.takers = self._takers()

    def bytes(self) -> tuple[Bytes, ...]:
        staying = self._staying()
        alive = [staying[index] + self._running(index) for index in range(len(staying))]
        for batch in range(len(self.problem.blocks[0].spans) if self.choice.segments else 0):
            for segment, (_, end) in enumerate(self.choice.segments):
                at = self.problem.blocks[end - 1].spans[batch][1]
                alive[at] = max(alive[at], *self._again(segment, batch, staying[at]))
        return tuple(Bytes(size) for size in alive)

    def _held(self) -> dict[tuple[int, int | None], int]:
        """Until which position each copy (interface, segment that makes it) is held."""
        until: dict[tuple[int, int | None], int] = {}
        for part in self.tree.parts():
            for index in self._holds(part):
                interface = self.problem.interfaces[index]
                key = index, self.tree.source(part, self._maker(index))
                end = self.problem.blocks[part.first].spans[interface.micro_batch][1]
                until[key] = max(until.get(key, -1), end)
        return until

    def _takers(self) -> dict[int, list[range]]:
        """For each interface tensor the blocks of every segment that holds it."""
        takers: dict[int, list[range]] = {}
        for part in self.tree.parts():
            for index in self._holds(part) if part.segment is not None else ():
                takers.setdefault(index, []).append(range(part.first, part.end))
        return takers

    def _holds(self, part: SegmentPart) -> set[int]:
        chosen = [
            block.options[self.choice.options[part.first + offset]]
            for offset, block in enumerate(self.problem.blocks[part.first : part.end])
        ]
        if part.segment is None:
            return set(chosen[0].holds)
        blocks = self.problem.blocks[part.first : part.end]
        options = [*chosen, *(block.checkpoint_option for block in blocks)]
        inside = range(part.first, part.end)
        return {index for option in options for index in option.holds if self._maker(index) not in inside}

    def _maker(self, interface: int) -> int | None:
        record = self.problem.interfaces[interface]
        return self.maker.get((record.born, record.micro_batch))

    def _staying(self) -> list[int]:
        """Bytes alive at each position apart from what the running block takes, every run again being over."""
        change = [0] * (len(self.problem.positions) + 1)

        def stay(first: int, last: int, nbytes: int) -> None:
            if last >= first:
                change[first] += nbytes
                change[last + 1] -= nbytes

        for (index, segment), until in self.held.items():
            if segment is not None:
                interface = self.problem.interfaces[index]
                stay(self._start(segment, interface.micro_batch), until, interface.nbytes)
        for index, interface in enumerate(self.problem.interfaces):
            last = [self.problem.blocks[blocks[-1]] for blocks in self.takers.get(index, ())]
            running = [block.spans[interface.micro_batch][0] for block in last]
            until = max(interface.forward_end, self.held.get((index, None), -1), *running)
            stay(interface.born + 1, until, interface.nbytes)
        for block, option, segment in self._blocks():
            for batch, (forward, backward) in enumerate(block.spans):
                first = forward + 1 if segment is None else self._start(segment, batch)
                stay(first, backward, option.kept_bytes)
                stay(forward + 1, first - 1, self._state(option))
        for first, _ in self.choice.segments:
            for forward, backward in self.problem.blocks[first].spans:
                stay(forward, backward, self.problem.state_bytes)
        copies = backlogs(self.problem, self.choice)
        ahead = fetches(self.problem, self.choice, computing_seconds(self.problem, self.choice)).ahead
        fixed = [position.fixed_bytes for position in self.problem.positions]
        return [sum(bytes_) for bytes_ in zip(fixed, accumulate(change), copies.outward, ahead, strict=False)]

    def _blocks(self) -> Iterator[tuple[ModuleBlock, Option, int | None]]:
        for index, block in enumerate(self.problem.blocks):
            yield block, block.options[self.choice.options[index]], self.tree.innermost(index)

    def _state(self, option: Option) -> int:
        """Bytes of the random generator's state that a block inside a segment keeps from its first run on."""
        return self.problem.state_bytes if option.action is Action.CHECKPOINT else 0

    def _start(self, segment: int, batch: int) -> int:
        return self.problem.blocks[self.choice.segments[segment][1] - 1].spans[batch][1]

    def _running(self, at: int) -> int:
        position = self.problem.positions[at]
        if position.block is None:
            return 0
        block = self.problem.blocks[position.block]
        option = block.options[self.choice.options[position.block]]
        if position.phase == "backward":
            return option.backward_peak_bytes
        if self.tree.innermost(position.block) is None:
            return option.forward_peak_bytes
        # No state is kept of a block that is no call of its own.
        return block.checkpoint_option.forward_peak_bytes - self.problem.state_bytes + self._state(option)

    def _again(self, segment: int, batch: int, staying: int) -> Iterator[int]:
        """Bytes alive while each block of a segment runs again, given what stays when all runs again are over."""
        end = self.choice.segments[segment][1]
        later = [s for s in self.tree.inside(segment) if self.choice.segments[s][1] == end]
        before = staying - sum(self._made(s, batch) for s in (segment, *later))
        kept = self.problem.state_bytes
        for block in self.tree.runs_again(segment):
            record = self.problem.blocks[block]
            direct = self.tree.innermost(block) == segment
            option = record.options[self.choice.options[block]] if direct else record.checkpoint_option
            copies = sum(self._copies(segment, batch, block))
            yield before + kept + copies + option.forward_peak_bytes
            kept += option.kept_bytes if direct else 0

    def _made(self, segment: int, batch: int) -> int:
        """Bytes that a segment's run again leaves behind."""
        kept = [
            option.kept_bytes - self._state(option) for _, option, innermost in self._blocks() if innermost == segment
        ]
        copies = [
            self.problem.interfaces[index].nbytes
            for index, source in self.held
            if source == segment and self.problem.interfaces[index].micro_batch == batch
        ]
        return sum(kept) + sum(copies)

    def _copies(self, segment: int, batch: int, running: int) -> Iterator[int]:
        """Interface tensors of the segment made again before a block runs and alive while it does."""
        forward = self.problem.blocks[running].spans[batch][0]
        for index, interface in enumerate(self.problem.interfaces):
            maker = self._maker(index)
            if interface.micro_batch != batch or maker is None:
                continue
            is_taken = any(running in blocks for blocks in self.takers.get(index, ()))
            alive = forward <= interface.forward_end or (index, segment) in self.held or is_taken
            if self.choice.segments[segment][0] <= maker < running and alive:
                yield interface.nbytes


def with_peaks(problem: BlockProblem, choice: BlockChoice, peaks: Sequence[int]) -> BlockProblem:
    """The same problem with ``fixed_bytes`` such that a choice has exactly these bytes at each position."""
    said = position_bytes(problem, choice)
    positions = tuple(
        replace(position, fixed_bytes=Bytes(position.fixed_bytes + true - formula))
        for position, true, formula in zip(problem.positions, peaks, said, strict=True)
    )
    return replace(problem, positions=positions)
