"""Answers of ``batch``, made by hand."""

from dataclasses import replace

from memplan.measure.records import Verdict
from memplan.plan.batch.records import BatchAnswer, BatchPoint, BatchTurn
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
