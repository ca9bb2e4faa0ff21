"""Traces that measure the options: the unplanned step first, then steps whose blocks have options in force."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from memplan.errors import MemplanError, UsageError
from memplan.lifetime.roofline import Roofline
from memplan.plan.checkpoint.blocks.as_plan import plan_of
from memplan.plan.checkpoint.blocks.probe.cut import cut, cut_like
from memplan.plan.checkpoint.blocks.probe.kinds import is_chain, kinds_of
from memplan.plan.checkpoint.blocks.probe.menu import OptionCandidate, menu
from memplan.plan.checkpoint.blocks.probe.read import StepReading, read
from memplan.plan.checkpoint.blocks.probe.tracer import Tracer
from memplan.plan.checkpoint.blocks.probe.traffic import Probe
from memplan.tracing.records import Trace

SMALL_SHARE = 0.05
"""Kinds of blocks that keep less than this share of what all blocks keep get no selective options: they could bring
little, and a kind of few blocks needs as many traces as it has options."""

OWN = "run again by checkpointing of their own, beside which the plan stands (switch it off to plan them anew)"
_GRADIENTS = {"aten.relu": "aten.threshold_backward"}
"""Op → its gradient, where that has not its name (torch/tools/autograd/derivatives.yaml)."""
LEAST_SHARE = 0.01
"""Modules that stand alone and keep less than this share are left alone: no budget is met by a hundredth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probing:
    """The traces that measure the options of a job's blocks."""

    probes: tuple[Probe, ...]
    """The unplanned step first."""
    kinds: tuple[int, ...]
    """The kind of each block."""
    menus: tuple[tuple[OptionCandidate, ...], ...]
    """The options of each kind."""
    notes: tuple[str, ...] = ()
    """What could not be offered, each a sentence."""


def probe(
    tracer: Tracer,
    unplanned: Trace,
    roofline: Roofline,
    *,
    offload: bool,
    progress: Callable[[str], None] = lambda _: None,
) -> Probing:
    """Measure every option of every kind of block.

    Raises:
        UsageError: No block can be planned.
    """
    base = _worth_planning(unplanned, tracer)
    if not base.runs:
        raise UsageError("none of the blocks runs forward and backward in the step", hint=_others(unplanned, tracer))
    rows = [name for name in base.cut.modules if name not in tracer.alone]
    if rows and tracer.called_alike(rows) and not tracer.called_alike(base.cut.modules):
        row = read(unplanned, cut(unplanned, rows))
        if is_chain(row):
            # Beside repeated blocks, whose segments save more, nobody asked for what stands alone.
            found = _probed(tracer, row, roofline, offload=offload, progress=progress)
            return replace(found, notes=(*found.notes, f"not planned: {_alone(base, tracer)} (called otherwise)"))
    try:
        return _probed(tracer, base, roofline, offload=offload, progress=progress)
    except MemplanError as error:
        if not rows or len(rows) == len(base.cut.modules):
            raise
        # Beside repeated blocks nobody asked for what stands alone: what cannot run again is left as it is.
        found = _probed(tracer, read(unplanned, cut(unplanned, rows)), roofline, offload=offload, progress=progress)
        return replace(found, notes=(*found.notes, f"not planned: {_alone(base, tracer)} ({error.what})"))


def _others(unplanned: Trace, tracer: Tracer) -> str:
    """What to do where no block can be planned: the modules that can, or another step."""
    from memplan.runtime.checkpoint.blocks import listed

    if names := cut(unplanned, tracer.modules).modules:
        return f"name others: --blocks NAME, of {listed(names)}"
    return (
        "a program's step begins with its first optimizer's: write it as train_step(model, optimizer, batch) in a file"
    )


def _alone(base: StepReading, tracer: Tracer) -> str:
    return ", ".join(name for name in base.cut.modules if name in tracer.alone)


def _probed(
    tracer: Tracer, base: StepReading, roofline: Roofline, *, offload: bool, progress: Callable[[str], None]
) -> Probing:
    first = Probe(reading=base, options=(0,) * len(base.runs))
    kinds = kinds_of(base)
    menus = _menus(base, kinds, roofline, selective=True, offload=offload)
    own = tuple(own_checkpointing(base))
    notes = (f"{OWN}: {', '.join(own)}",) if own else ()
    try:
        found = _measured(tracer, first, kinds, menus, progress)
        return replace(found, notes=notes)
    except MemplanError as error:
        if not any(option.saved for options in menus for option in options):
            raise
        # Who calls a block twice in a row, or otherwise each time, cannot name the calls of its ops.
        plain = _menus(base, kinds, roofline, selective=False, offload=offload)
        found = _measured(tracer, first, kinds, plain, progress)
        return replace(found, notes=(*notes, f"no block keeps the results of single ops: {error.what}"))


def _worth_planning(unplanned: Trace, tracer: Tracer) -> StepReading:
    """The step cut at the blocks, without those that stand alone beside repeated ones and keep little."""
    base = read(unplanned, cut(unplanned, tracer.blocks))
    if tracer.alone.issuperset(base.cut.modules):
        return base
    kept = {name: _kept(base, index) for index, name in enumerate(base.cut.modules)}
    least = LEAST_SHARE * sum(kept.values())
    little = {name for name in tracer.alone if kept.get(name, 0) < least}
    return read(unplanned, cut(unplanned, [name for name in tracer.blocks if name not in little])) if little else base


def own_checkpointing(base: StepReading) -> Iterator[str]:
    """Blocks that the unplanned step itself runs again in backward.

    There an op of their forward stands beside its own gradient (``gelu`` beside ``gelu_backward``), which nothing else
    does but views (the gradient of a padded sequence takes slices).
    """
    ops = base.trace.ops
    for name, runs in zip(base.cut.modules, base.runs, strict=True):
        stretch = base.cut.stretches[runs[0].backward]
        making = (op for op in ops[stretch.first_op : stretch.end_op] if not set(op.writes) <= set(op.reads))
        names = {op.name.rpartition(".")[0] for op in making}
        if any(each.startswith(_GRADIENTS.get(other, f"{other}_backward")) for each in names for other in names):
            yield name


def _measured(
    tracer: Tracer,
    first: Probe,
    kinds: Sequence[int],
    menus: Sequence[tuple[OptionCandidate, ...]],
    progress: Callable[[str], None],
) -> Probing:
    probes = [first]
    wanted = assignments(kinds, [len(options) for options in menus])
    for number, options in enumerate(wanted):
        progress(f"measuring options, trace {number + 1} of {len(wanted)}")
        probes.append(planned_probe(tracer, first, kinds, menus, options))
    return Probing(probes=tuple(probes), kinds=tuple(kinds), menus=tuple(menus))


def planned_probe(
    tracer: Tracer,
    base: Probe,
    kinds: Sequence[int],
    menus: Sequence[Sequence[OptionCandidate]],
    options: Sequence[int],
) -> Probe:
    """Trace the step with options in force, cut like the unplanned one."""
    chosen = [menus[kind][option] for kind, option in zip(kinds, options, strict=True)]
    trace = tracer.trace(plan_of(base.reading.cut.modules, chosen))
    return Probe(reading=read(trace, cut_like(trace, base.reading.cut)), options=tuple(options))


def _menus(
    base: StepReading, kinds: Sequence[int], roofline: Roofline, *, selective: bool, offload: bool
) -> list[tuple[OptionCandidate, ...]]:
    kept = [_kept(base, block) for block in range(len(kinds))]
    menus: list[tuple[OptionCandidate, ...]] = []
    for kind in range(max(kinds) + 1):
        members = [block for block, other in enumerate(kinds) if other == kind]
        share = sum(kept[block] for block in members) / max(1, sum(kept))
        model = members[len(members) // 2]
        menus.append(
            menu(base, base.runs[model][0], roofline, selective=selective and share >= SMALL_SHARE, offload=offload)
        )
    return menus


def _kept(base: StepReading, block: int) -> int:
    return sum(base.lives[storage].nbytes for run in base.runs[block] for storage in run.results.values())


def assignments(kinds: Sequence[int], counts: Sequence[int]) -> list[tuple[int, ...]]:
    """Options of all blocks in each probing trace; every option but 0, which the unplanned step shows, comes somewhere.

    Blocks of one kind have different options in one trace: a kind of many blocks is done in one.

    ``counts`` says how many options each kind has.
    """
    members: dict[int, list[int]] = defaultdict(list)
    for block, kind in enumerate(kinds):
        # Inner blocks first: they are what the others are taken to be like.
        members[kind].append(block)
    order = {kind: [*found[1:-1], found[0], *found[1:][-1:]] for kind, found in members.items()}
    needed = max((-(-(counts[kind] - 1) // len(found)) for kind, found in order.items()), default=0)
    traces: list[tuple[int, ...]] = []
    for trace in range(needed):
        options = [0] * len(kinds)
        for kind, found in order.items():
            for place, block in enumerate(found):
                options[block] = 1 + (trace * len(found) + place) % (counts[kind] - 1)
        traces.append(tuple(options))
    return traces
