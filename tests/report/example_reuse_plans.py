"""Answers of ``reuse-plan``, made by hand."""

from memplan.plan.reuse.answer_records import ReuseAnswer, StepContext
from memplan.plan.reuse.records import (
    ArenaBuffer,
    ArenaPlacement,
    FeasiblePlacement,
    InfeasiblePlacement,
    OptimalPlacement,
    PlacementTimedOut,
    Problem,
    Result,
)
from memplan.units import Bytes

BUFFERS = (
    ArenaBuffer(name="a", start=0, end=10, size=4096),
    ArenaBuffer(name="b", start=0, end=5, size=2048, gaps=((2, 3),)),
    ArenaBuffer(name="c", start=5, end=10, size=2048),
    ArenaBuffer(name="d<&>", start=4, end=6, size=512),
)


PLACEMENT = ArenaPlacement(offsets=(0, 4096, 4096, 6144), height=Bytes(6656))


AROUND = StepContext(
    device="h100-80g",
    labels=("activation", "gradient", "temporary", "workspace"),
    owners=("layers.0 aten.mm.default", "b", "c", "<script>"),
    repetitions=1,
    persistent_bytes=Bytes(10_000),
    outside_bytes=Bytes(0),
    reserved_bytes=Bytes(20_971_520),
    step="train · batch 1 · fp32",
    options={"batch_size": "1"},
    assumptions=("the step repeats",),
)


RESULTS: dict[str, Result] = {
    "optimal": OptimalPlacement(placement=PLACEMENT, method="size, lowest gap"),
    "feasible": FeasiblePlacement(placement=PLACEMENT, method="size, lowest gap", bound=Bytes(6144)),
    "infeasible": InfeasiblePlacement(reason="6,656 bytes are alive at moment 4", bound=Bytes(6656)),
    "timed_out": PlacementTimedOut(best=PLACEMENT, bound=Bytes(6144)),
}


def answer(
    outcome: str = "optimal", *, around: StepContext | None = AROUND, capacity: int | None = None
) -> ReuseAnswer:
    return ReuseAnswer(
        target="examples/model.py",
        kind="step",
        problem=Problem(buffers=BUFFERS, capacity=capacity),
        result=RESULTS[outcome],
        surroundings=around,
        read_seconds=1.0,
        solve_seconds=0.25,
        memplan_version="0.1.0",
    )
