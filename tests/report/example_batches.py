"""Answers of ``batch``, made by hand."""

from dataclasses import replace

from memplan.measure.records import TailRisk, Verdict
from memplan.plan.batch.records import BatchAnswer, BatchPoint, BatchTail, BatchTurn
from memplan.units import GIB, Bytes


def answer() -> BatchAnswer:
    points = ((2, 5, True), (5, 11, False), (11, 22, True), (12, 25, True))
    curve = tuple(
        BatchPoint(value=value, device_bytes=Bytes(gib * GIB), fits=gib < 24, traced=traced)
        for value, gib, traced in points
    )
    return BatchAnswer(
        variable="batch_size", value=11, device_bytes=Bytes(22 * GIB), next_device_bytes=Bytes(25 * GIB),
        limit_bytes=Bytes(24 * GIB), ended="exact", traced=(2, 4, 11, 12), differing=0, seconds=3.0, curve=curve,
        turns=(
            BatchTurn(value=12, verdict=Verdict.TIGHT, device_bytes=Bytes(25 * GIB), traced=True),
            BatchTurn(value=14, verdict=Verdict.OOM, device_bytes=Bytes(28 * GIB), traced=False),
        ),
    )  # fmt: skip


NOTHING = replace(answer(), value=0, ended="none", device_bytes=Bytes(30 * GIB), curve=answer().curve[-1:], turns=())

REFUSED = replace(
    answer(), ended="refused", next_device_bytes=None, refused="IndexError: 12", curve=answer().curve[:-1], turns=()
)

_RISK = TailRisk(
    lengths="uniform:1-9", longest=9, steps=1000, seed=0, chance=0.25, low_chance=0.2, high_chance=0.3,
    least_chance=0.0, most_chance=1.0, device_bytes=23 * GIB, runs=300, played_steps=200_000,
)  # fmt: skip
DRAWN = replace(answer(), tails=(BatchTail(value=11, risk=_RISK), BatchTail(value=10, risk=None)))
