"""Random block-level problems, a plain reading of their memory formula, and enumeration of every flat choice."""

import itertools
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from memplan.plan.checkpoint.blocks.problem.records import (
    BlockChoice,
    BlockProblem,
    Interface,
    ModuleBlock,
    Option,
    Position,
)
from memplan.runtime.checkpoint.records import Action
from memplan.units import Bytes

SIZES = st.integers(0, 12)


@dataclass
class Shape:
    """What a random problem may contain."""

    blocks: tuple[int, int] = (1, 4)
    options: int = 3
    skips: bool = True
    batches: int = 2
    offload: bool = False
    selective: bool = True
    interleaved: bool = False
    """All micro-batches run forward before the last of them runs backward, as a module that runs several times does."""
    rising: bool = False
    """Steady bytes never fall, as in a step whose gradients come one after another."""
    alike: bool = False
    """All blocks of one kind, and the same tensors held by all under each option."""


@st.composite
def block_problems(draw, shape: Shape | None = None) -> BlockProblem:
    shape = shape or Shape()
    count = draw(st.integers(*shape.blocks))
    batches = draw(st.integers(1, shape.batches))
    rows = _layout(draw, count, batches, interleaved=shape.interleaved)
    spans = [[[-1, -1] for _ in range(batches)] for _ in range(count)]
    for at, (block, phase, batch) in enumerate(rows):
        if block is not None:
            spans[block][batch][phase == "backward"] = at
    interfaces = _interfaces(draw, shape, rows, spans)
    kinds = [0 if shape.alike else draw(st.integers(0, 1)) for _ in range(count)]
    menus = {kind: _menu(draw, shape) for kind in set(kinds)}
    steady = [draw(SIZES) for _ in rows]
    blocks = tuple(
        ModuleBlock(
            module=f"layers.{k}",
            kind=kinds[k],
            spans=tuple((a, b) for a, b in spans[k]),
            options=tuple(
                _holding(draw, option, k, interfaces, spans, alike=shape.alike) for option in menus[kinds[k]]
            ),
        )
        for k in range(count)
    )
    return BlockProblem(
        positions=tuple(
            Position(
                name=f"{phase} {block} #{batch}",
                phase=phase,
                block=block,
                fixed_bytes=Bytes(fixed),
                seconds=float(draw(st.integers(0, 8))),
            )
            for (block, phase, batch), fixed in zip(rows, sorted(steady) if shape.rising else steady, strict=True)
        ),
        blocks=blocks,
        interfaces=tuple(interfaces),
        chain=all(interface.forward_end <= _next(interface, spans) for interface in interfaces),
        step_seconds=10.0,
        host_link_bandwidth=draw(st.sampled_from([0.5, 1.0, 3.0])) if shape.offload else 0.0,
        host_bytes=draw(st.sampled_from([0, 20])) if shape.offload else 0,
    )


def _layout(draw, count: int, batches: int, *, interleaved: bool) -> list[tuple[int | None, str, int]]:
    """Rows (block, phase, micro-batch), with a stretch between blocks here and there, at both ends always."""
    rows: list[tuple[int | None, str, int]] = [(None, "forward", 0)]
    passes = [(batch, phase) for batch in range(batches) for phase in ("forward", "backward")]
    if interleaved:
        passes.sort(key=lambda each: each[0] if each[1] == "forward" else 2 * batches - each[0])
    for batch, phase in passes:
        for block in range(count) if phase == "forward" else reversed(range(count)):
            rows.append((block, phase, batch))
            if draw(st.booleans()):
                rows.append((None, phase, batch))
    return [*rows, (None, "optimizer", 0)]


def _interfaces(draw, shape: Shape, rows, spans) -> list[Interface]:
    count, found = len(spans), []
    links = [(k, k + 1) for k in range(-1, count)]
    if shape.skips:
        links += draw(
            st.lists(st.sampled_from([(a, b) for a in range(-1, count) for b in range(a + 1, count)]), max_size=2)
        )
    for source, user in links:
        nbytes = 2 if shape.alike else draw(st.integers(1, 8))
        for batch in range(len(spans[0])):
            born = spans[source][batch][0] if source >= 0 else max(0, spans[0][batch][0] - 1)
            # The last result is needed where something lies between forward and backward.
            end = spans[user][batch][0] if user < count else born + (rows[born + 1][0] is None)
            found.append(Interface(nbytes=Bytes(nbytes), born=born, forward_end=end, micro_batch=batch))
    return found


def _next(interface: Interface, spans) -> int:
    """Position of the forward that follows the one which makes the tensor (or anything, at the ends)."""
    forwards = [spans[k][interface.micro_batch][0] for k in range(len(spans))]
    later = [forward for forward in forwards if forward > interface.born]
    return later[0] if later else interface.forward_end


def _menu(draw, shape: Shape) -> list[Option]:
    kept, own = draw(st.integers(1, 12)), draw(SIZES)
    base = {"saved": (), "holds": ()}
    menu = [
        Option(
            action=Action.KEEP,
            kept_bytes=kept,
            forward_peak_bytes=kept + own,
            backward_peak_bytes=own,
            seconds=0.0,
            **base,
        ),
        Option(
            action=Action.CHECKPOINT,
            kept_bytes=draw(st.integers(0, 2)),
            forward_peak_bytes=draw(SIZES),
            backward_peak_bytes=kept + draw(SIZES),
            seconds=float(draw(st.integers(1, 6))),
            **base,
        ),
    ]
    menu += [
        Option(
            action=Action.SELECTIVE,
            kept_bytes=draw(st.integers(0, 12)),
            forward_peak_bytes=draw(SIZES),
            backward_peak_bytes=draw(SIZES),
            seconds=draw(st.integers(0, 12)) / 2,
            **base,
        )
        for _ in range(draw(st.integers(0, shape.options - 2)) if shape.selective else 0)
    ]
    if shape.offload:
        menu.append(
            Option(
                action=Action.OFFLOAD,
                kept_bytes=0,
                forward_peak_bytes=kept + own,
                backward_peak_bytes=own + kept,
                seconds=0.0,
                offloaded_bytes=kept,
                **base,
            )
        )
    return menu


def _holding(draw, option: Option, block: int, interfaces: list[Interface], spans, *, alike: bool) -> Option:
    """The option, holding all inputs if checkpointed, else some of them and some of its results."""
    holds = []
    for index, interface in enumerate(interfaces):
        forward = spans[block][interface.micro_batch][0]
        if interface.forward_end == forward and interface.born < forward:
            if option.action is not Action.KEEP or (not alike and draw(st.booleans())):
                holds.append(index)
        elif not alike and interface.born == forward and option.action is Action.KEEP and draw(st.booleans()):
            holds.append(index)
    fields = {name: getattr(option, name) for name in Option.__slots__}
    return Option(**{**fields, "holds": tuple(holds)})


def with_states(data, problem: BlockProblem) -> BlockProblem:
    """The problem with states of the random generator, which checkpoints then were measured to keep and to take."""
    least = min(min(b.options[1].kept_bytes, b.options[1].forward_peak_bytes) for b in problem.blocks)
    return replace(problem, state_bytes=Bytes(data.draw(st.integers(0, least))))


def formula_bytes(problem: BlockProblem, options: tuple[int, ...]) -> list[int]:
    """The formula of ``records``, term by term, for a flat choice without offloading."""
    chosen = [block.options[option] for block, option in zip(problem.blocks, options, strict=True)]
    found = []
    for p, position in enumerate(problem.positions):
        total = position.fixed_bytes
        for block, option in zip(problem.blocks, chosen, strict=True):
            total += option.kept_bytes * sum(forward < p <= backward for forward, backward in block.spans)
        for index, tensor in enumerate(problem.interfaces):
            ends = [
                b.spans[tensor.micro_batch][1] for b, o in zip(problem.blocks, chosen, strict=True) if index in o.holds
            ]
            total += tensor.nbytes * (tensor.born < p <= max([tensor.forward_end, *ends]))
        if position.block is not None:
            option = chosen[position.block]
            total += option.backward_peak_bytes if position.phase == "backward" else option.forward_peak_bytes
        found.append(total)
    return found


def flat_choices(problem: BlockProblem) -> list[tuple[float, int, BlockChoice]]:
    """Every flat choice with its seconds and its peak by the formula."""
    menus = [range(len(block.options)) for block in problem.blocks]
    found = []
    for options in itertools.product(*menus):
        seconds = sum(block.options[o].seconds for block, o in zip(problem.blocks, options, strict=True))
        found.append((seconds, max(formula_bytes(problem, options)), BlockChoice(options=options)))
    return found


@st.composite
def nested_choices(draw, problem: BlockProblem) -> BlockChoice:
    """A choice whose segments nest; inside them blocks keep or checkpoint (options 0 and 1)."""
    segments: list[tuple[int, int]] = []
    if problem.chain:
        split_at = sorted(
            set(draw(st.lists(st.integers(0, len(problem.blocks)), max_size=3))) | {0, len(problem.blocks)}
        )
        for a, b in itertools.pairwise(split_at):
            _nest(draw, a, b, segments)
    covered = {k for first, end in segments for k in range(first, end)}
    options = tuple(
        draw(st.integers(0, 1 if k in covered else len(block.options) - 1)) for k, block in enumerate(problem.blocks)
    )
    return BlockChoice(options=options, segments=tuple(segments))


def _nest(draw, first: int, end: int, segments: list[tuple[int, int]]) -> None:
    if end - first < 2 or not draw(st.booleans()):
        return
    segments.append((first, end))
    cuts = sorted(set(draw(st.lists(st.integers(first, end), max_size=2))) | {first, end})
    if len(cuts) > 2:
        for a, b in itertools.pairwise(cuts):
            _nest(draw, a, b, segments)


def plain_option(action, kept, forward, backward, seconds, holds):
    return Option(
        action=action,
        kept_bytes=kept,
        forward_peak_bytes=forward,
        backward_peak_bytes=backward,
        seconds=seconds,
        holds=holds,
    )


def chain(count: int) -> BlockProblem:
    """Blocks that keep 10, pass on 1, need 2 more in forward and 3 in backward; one forward is a second."""
    order = [*range(count), *reversed(range(count))]
    positions = tuple(
        Position(
            name=f"{'forward' if at < count else 'backward'} of {block}",
            phase="forward" if at < count else "backward",
            block=block,
            fixed_bytes=100,
            seconds=1.0,
        )
        for at, block in enumerate(order)
    )
    interfaces = tuple(Interface(nbytes=1, born=k, forward_end=k + 1) for k in range(count - 1))
    blocks = tuple(
        ModuleBlock(
            module=f"{k}",
            kind=0,
            spans=((k, 2 * count - 1 - k),),
            options=(
                plain_option(Action.KEEP, 10, 13, 3, 0.0, (k - 1,) if k else ()),
                plain_option(Action.CHECKPOINT, 0, 4, 14, 1.0, (k - 1,) if k else ()),
            ),
        )
        for k in range(count)
    )
    return BlockProblem(positions=positions, blocks=blocks, interfaces=interfaces, chain=True, step_seconds=3.0 * count)
