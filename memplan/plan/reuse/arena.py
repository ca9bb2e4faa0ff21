"""From a recorded step to an arena that runs it."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from memplan.errors import MemplanError
from memplan.plan.reuse.compose import DEFAULT_TIME_LIMIT
from memplan.plan.reuse.from_requests import stretch_of
from memplan.plan.reuse.records import (
    ArenaBuffer,
    ArenaPlacement,
    FeasiblePlacement,
    OptimalPlacement,
    Problem,
)
from memplan.replay.records import Request
from memplan.runtime.arena.records import CPU_ALIGNMENT, ArenaPlan, StepRecording

if TYPE_CHECKING:
    import torch

    from memplan.runtime.arena.arena import Arena
    from memplan.runtime.arena.graph import GraphArena


def plan_arena(step: Callable[[], object], *, time_limit: float = DEFAULT_TIME_LIMIT) -> "Arena":
    """Run a step once on the CPU, and plan an arena for all that it allocates and gives back.

    Args:
        step: Runs one step of a training or inference program, the same way each time.
        time_limit: Seconds for the solvers.

    Returns:
        The arena: ``with arena: step()`` runs the step in it.

    Raises:
        MemplanError: There is no C++ compiler, or another arena is in use.
    """
    from memplan.runtime.arena.arena import Arena, record

    return Arena(plan_recording(record(step), time_limit=time_limit))


def plan_recording(recording: StepRecording, *, time_limit: float = DEFAULT_TIME_LIMIT) -> ArenaPlan:
    """Place what a recorded step allocates and gives back; what outlives the step is left to PyTorch."""
    given_back = {key for key, nbytes in recording.events if nbytes < 0}
    sizes = {key: nbytes for key, nbytes in recording.events if nbytes >= 0}
    requests = [
        Request("free" if nbytes < 0 else "alloc", key, max(0, nbytes), 0)
        for key, nbytes in recording.events
        if key in given_back
    ]
    stretch = stretch_of((), requests, alignment=CPU_ALIGNMENT)
    placement = _placed(stretch.problem, time_limit)
    offsets = dict(zip(stretch.keys, placement.offsets, strict=True))
    return ArenaPlan(
        sizes=tuple(sizes[key] for key in sorted(sizes)),
        offsets=tuple(offsets.get(key) for key in sorted(sizes)),
        height=placement.height,
    )


def plan_graph(
    model: "torch.nn.Module",
    *inputs: "torch.Tensor",
    time_limit: float = DEFAULT_TIME_LIMIT,
    guard: bool = False,
    **named: "torch.Tensor",
) -> "GraphArena":
    """Capture a model's inference graph, and place its intermediates in one arena.

    Args:
        model: In ``eval()`` mode; its forward must export (``torch.export``).
        inputs: Example inputs; their shapes are the graph's.
        time_limit: Seconds for the solvers.
        guard: Check at run time that nobody overwrites what is still needed; slow.
        named: Example inputs by name.

    Returns:
        A callable that takes tensors like the example's, in their order, and returns what the model returns.

    Raises:
        UsageError: The model is in training mode or does not export; it writes into its inputs, makes shapes of values,
            or has sparse or lazily conjugated results.
    """
    from memplan.runtime.arena.capture import capture
    from memplan.runtime.arena.graph import ALIGNMENT, GraphArena

    captured = capture(model, inputs, named)
    buffers = tuple(
        ArenaBuffer(
            name=str(buffer.root),
            start=buffer.start,
            end=buffer.end,
            size=-(-buffer.nbytes // ALIGNMENT) * ALIGNMENT,
        )
        for buffer in captured.buffers
    )
    placement = _placed(Problem(buffers=buffers), time_limit)
    offsets = {buffer.root: offset for buffer, offset in zip(captured.buffers, placement.offsets, strict=True)}
    return GraphArena(captured, offsets, placement.height, guard=guard)


def _placed(problem: Problem, time_limit: float) -> ArenaPlacement:
    from memplan.plan.reuse import portfolio

    found = portfolio.solve(problem, time_limit=time_limit)
    if not isinstance(found, OptimalPlacement | FeasiblePlacement):
        raise MemplanError("no placement was found without a capacity: please report it")
    return found.placement
