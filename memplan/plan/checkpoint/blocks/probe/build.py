"""Probes → the block-level problem.

What a block takes under an option is read off the probes in which it, or another block of its kind, had the option. The
unplanned step calibrates the rest: ``fixed_bytes`` is what makes the formula of ``records`` give exactly its curve.
"""

from collections.abc import Sequence

from memplan.lifetime.roofline import Roofline
from memplan.plan.checkpoint.blocks.probe.figures import Figures, Ruler, true_peaks
from memplan.plan.checkpoint.blocks.probe.kinds import is_chain, position_name
from memplan.plan.checkpoint.blocks.probe.menu import OptionCandidate
from memplan.plan.checkpoint.blocks.probe.read import rounding
from memplan.plan.checkpoint.blocks.probe.traffic import PassedTensor, Probe, Role, roles, traffic
from memplan.plan.checkpoint.blocks.problem.memory import position_bytes, with_peaks
from memplan.plan.checkpoint.blocks.problem.records import (
    BlockChoice,
    BlockProblem,
    Interface,
    ModuleBlock,
    Option,
    Position,
)
from memplan.runtime.checkpoint.records import Action
from memplan.units import Bytes, StorageId

_STATE = "torch.get_rng_state"


def build_problem(
    probes: Sequence[Probe],
    kinds: Sequence[int],
    menus: Sequence[Sequence[OptionCandidate]],
    roofline: Roofline,
    *,
    host_link_bandwidth: float = 0.0,
) -> BlockProblem:
    """Put the problem together.

    Probes are traced steps with the same stretches, the unplanned one first; every option of every kind of block is in
    force somewhere, and the first candidate of each kind is ``keep``. The bandwidth to the host is in bytes per second;
    0: no offloading.
    """
    return _Assembly(probes, kinds, menus, roofline).problem(host_link_bandwidth)


def position_stretches(probes: Sequence[Probe]) -> tuple[int, ...]:
    """The stretches that are positions: all but those between blocks in which nothing ever happens."""
    busy = {
        index
        for probe in probes
        for index, each in enumerate(probe.reading.cut.stretches)
        if each.block is not None or each.end_op > each.first_op or each.end_event > each.first_event
    }
    return tuple(sorted(busy))


class _Assembly:
    def __init__(
        self,
        probes: Sequence[Probe],
        kinds: Sequence[int],
        menus: Sequence[Sequence[OptionCandidate]],
        roofline: Roofline,
    ) -> None:
        self._probes, self._kinds, self._menus, self._roofline = probes, kinds, menus, roofline
        self._base = probes[0].reading
        self._found = traffic(probes, kinds)
        self._ruler = Ruler(probes, self._found, roofline)
        self._stretches = position_stretches(probes)
        self._place = {stretch: index for index, stretch in enumerate(self._stretches)}
        self._interface = {storage: index for index, storage in enumerate(self._found.passed)}

    def problem(self, host_link_bandwidth: float) -> BlockProblem:
        step = self._base.trace.steps[-1]
        ops = self._base.trace.ops[step.first_op : step.end_op]
        problem = BlockProblem(
            positions=tuple(self._position(stretch) for stretch in self._stretches),
            blocks=tuple(self._block(index) for index in range(len(self._kinds))),
            interfaces=tuple(self._interface_record(each) for each in self._found.passed.values()),
            chain=is_chain(self._base),
            step_seconds=self._roofline.total(ops),
            host_link_bandwidth=host_link_bandwidth,
            state_bytes=max(map(self._state, self._probes)),
        )
        unplanned = BlockChoice(options=(0,) * len(self._kinds))
        calibrated = with_peaks(problem, unplanned, [self._ruler.peak(0, stretch) for stretch in self._stretches])
        for probe in self._probes[1:]:
            calibrated = self._raised(calibrated, probe)
        return calibrated

    def _raised(self, problem: BlockProblem, probe: Probe) -> BlockProblem:
        """The problem with what a probe has more than it says: arguments that are held and never read, leftovers."""
        choice, peaks = BlockChoice(options=probe.options), true_peaks(probe)
        said = position_bytes(problem, choice)
        most = [max(peaks[stretch], formula) for stretch, formula in zip(self._stretches, said, strict=True)]
        return with_peaks(problem, choice, most)

    def _state(self, probe: Probe) -> int:
        """Bytes of the random generator's state, where a trace has it on the device."""
        trace, size = probe.reading.trace, rounding(probe.reading.trace)
        found = (trace.storages[storage] for op in trace.ops if op.name == _STATE for storage in op.writes)
        return max((size(each.nbytes) for each in found if each.place == "device"), default=0)

    def _position(self, index: int) -> Position:
        stretch = self._base.cut.stretches[index]
        ops = self._base.trace.ops[stretch.first_op : stretch.end_op]
        return Position(
            name=position_name(self._base.trace, self._base.cut, index),
            phase=stretch.phase,
            block=stretch.block,
            fixed_bytes=Bytes(0),
            seconds=self._roofline.total(ops),
        )

    def _interface_record(self, passed: PassedTensor) -> Interface:
        return Interface(
            nbytes=Bytes(passed.nbytes),
            born=self._at_or_before(passed.born),
            forward_end=self._at_or_before(passed.needed),
            micro_batch=passed.run,
        )

    def _at_or_before(self, stretch: int) -> int:
        """The position of a stretch; of the one before where nothing happens in it."""
        while stretch not in self._place:
            stretch -= 1
        return self._place[stretch]

    def _block(self, index: int) -> ModuleBlock:
        kind = self._kinds[index]
        return ModuleBlock(
            module=self._base.cut.modules[index],
            kind=kind,
            spans=tuple((self._place[run.forward], self._place[run.backward]) for run in self._base.runs[index]),
            options=tuple(self._option(index, option) for option in range(len(self._menus[kind]))),
        )

    def _option(self, block: int, option: int) -> Option:
        candidate = self._menus[self._kinds[block]][option]
        probe, model = self._measured(block, option)
        ours = [self._ruler.figures(0, block, run) for run in self._base.runs[block]]
        before = [self._ruler.figures(0, model, run) for run in self._base.runs[model]]
        after = [self._ruler.figures(probe, model, run) for run in self._probes[probe].reading.runs[model]]
        pairs = list(zip(before, after, strict=True))
        is_offloaded = candidate.action is Action.OFFLOAD
        moved = max(0, *(new.moved - old.moved for old, new in pairs)) if is_offloaded else 0
        return Option(
            action=candidate.action,
            saved=candidate.saved,
            kept_bytes=_shifted(ours, pairs, "kept"),
            forward_peak_bytes=_shifted(ours, pairs, "forward"),
            backward_peak_bytes=_shifted(ours, pairs, "backward"),
            seconds=max(0.0, sum(new.seconds - old.seconds for old, new in pairs)),
            holds=self._holds(block, option),
            offloaded_bytes=moved,
        )

    def _measured(self, block: int, option: int) -> tuple[int, int]:
        """A probe and a block of the kind that had the option in it: the block itself if it did, else an inner one."""
        kind = self._kinds[block]
        alike = [index for index, other in enumerate(self._kinds) if other == kind]
        # The first and the last of a row are rarely like the others: they come last.
        inner = [block, *alike[1:-1], alike[0], alike[-1]]
        return next(
            (probe, model)
            for model in inner
            for probe, each in enumerate(self._probes)
            if each.options[model] == option
        )

    def _holds(self, block: int, option: int) -> tuple[int, ...]:
        held: frozenset[Role] = self._found.holds.get((self._kinds[block], option), frozenset())
        storages: dict[StorageId, None] = {}
        for run in self._base.runs[block]:
            storages.update((storage, None) for role, storage in roles(run, self._found.shared[block]) if role in held)
        return tuple(sorted(self._interface[storage] for storage in storages if storage in self._interface))


def _shifted(ours: Sequence[Figures], pairs: Sequence[tuple[Figures, Figures]], field: str) -> Bytes:
    """A block's own figure without a plan, and what the option made of it in the block that was measured."""
    own = max(getattr(each, field) for each in ours)
    return Bytes(max(0, own + max(getattr(new, field) - getattr(old, field) for old, new in pairs)))
