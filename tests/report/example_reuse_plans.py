"""Answers of ``reuse-plan``, made by hand."""

from memplan.plan.reuse.answer_records import ReuseAnswer, Surroundings
from memplan.plan.reuse.records import Buffer, Feasible, Infeasible, Optimal, Placement, Problem, Result, TimedOut
from memplan.units import Bytes

BUFFERS = (
    Buffer(name="a", start=0, end=10, size=4096),
    Buffer(name="b", start=0, end=5, size=2048, gaps=((2, 3),)),
    Buffer(name="c", start=5, end=10, size=2048),
    Buffer(name="d<&>", start=4, end=6, size=512),
)


PLACEMENT = Placement(offsets=(0, 4096, 4096, 6144), height=Bytes(6656))


AROUND = Surroundings(
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
    "optimal": Optimal(placement=PLACEMENT, method="size, lowest gap"),
    "feasible": Feasible(placement=PLACEMENT, method="size, lowest gap", bound=Bytes(6144)),
    "infeasible": Infeasible(reason="6,656 bytes are alive at moment 4", bound=Bytes(6656)),
    "timed_out": TimedOut(best=PLACEMENT, bound=Bytes(6144)),
}


def answer(
    outcome: str = "optimal", *, around: Surroundings | None = AROUND, capacity: int | None = None
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
