"""The memory-time curve that is reported: device peaks, consistent with all traced plans."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

from memplan.plan.checkpoint.blocks.answer.records import ParetoPoint
from memplan.plan.checkpoint.blocks.prove.records import Proof, TracedPlan
from memplan.plan.checkpoint.blocks.solve.curve import CurvePoint
from memplan.units import Bytes


def anchored(points: Sequence[CurvePoint], proof: Proof) -> tuple[ParetoPoint, ...]:
    """Put a curve of live bytes and the traced plans on one axis of device peaks.

    What was traced stands where it was traced. What the allocator loses on another choice is interpolated between the
    traced ones. Where that choice then would beat the proved plan in both, or be smaller than the smallest that was
    traced, it is left out.

    Args:
        points: The curve in live bytes; empty: none is wanted.
        proof: What was traced.

    Returns:
        Points with rising peaks and falling times; the proved plan is one of them.
    """
    if not points:
        return ()
    unplanned, seen = proof.found[0], {traced.choice for traced in proof.found}
    step = unplanned.seconds or 1.0

    def point(traced: TracedPlan) -> ParetoPoint:
        extra = max(0.0, traced.seconds - unplanned.seconds)
        return ParetoPoint(peak_bytes=Bytes(traced.device_bytes), overhead_ratio=extra / step)

    def estimate(choice: CurvePoint) -> ParetoPoint:
        nbytes = choice.peak_bytes + _between(lost, choice.peak_bytes)
        return ParetoPoint(peak_bytes=Bytes(nbytes), overhead_ratio=choice.seconds / step)

    lost = sorted({max(traced.live): traced.lost_bytes for traced in proof.found}.items())
    candidates = [*map(point, proof.found), *(estimate(each) for each in points if each.choice not in seen)]
    plan, least = point(proof.traced), min(traced.device_bytes for traced in proof.found)
    others = [each for each in candidates if each.peak_bytes >= least and _trades(each, plan)]
    return tuple(_front([plan, *others]))


def _between(known: Sequence[tuple[int, int]], at: int) -> int:
    """The value at a place by linear interpolation between known ones (place, value), sorted; level at the ends."""
    after = bisect_left(known, (at,))
    if after in {0, len(known)}:
        return known[min(after, len(known) - 1)][1]
    (left, low), (right, high) = known[after - 1 : after + 1]
    return low + (high - low) * (at - left) // (right - left)


def _trades(point: ParetoPoint, other: ParetoPoint) -> bool:
    """Is it better in one and worse in the other?"""
    return (point.peak_bytes - other.peak_bytes) * (point.overhead_ratio - other.overhead_ratio) < 0


def _front(points: Iterable[ParetoPoint]) -> Iterator[ParetoPoint]:
    """Points that no other beats, by peak."""
    least: float | None = None
    for point in sorted(points, key=lambda each: (each.peak_bytes, each.overhead_ratio)):
        if least is None or point.overhead_ratio < least:
            least = point.overhead_ratio
            yield point
