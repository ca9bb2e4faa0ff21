"""A trace at any batch size (or length): what a few traces of the same op sequence say of all others.

batch    2       4                        37
traces   ●───────●───────────────────────► every storage's bytes, every op's FLOPs and traffic, by polynomials
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

from memplan.lifetime.sizes import Polynomial, Size, fit
from memplan.tracing.records import Op, Storage, Trace
from memplan.units import Bytes

LINE_POINTS = 2
"""Points of the line that stands in where no polynomial of a low degree goes through all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFamily:
    """Traces that differ in sizes alone, by the value of one option."""

    traces: Mapping[int, Trace]
    """Value → trace; at least one, ascending."""

    def at(self, value: int) -> Trace:
        """The trace at a value: the recorded one, or the one that the sizes promise (without a graph)."""
        if value in self.traces:
            return self.traces[value]
        nearest = self.traces[min(self.traces, key=lambda known: abs(known - value))]
        curves = _Curves(tuple(self.traces), value)
        members = tuple(self.traces.values())
        storages = tuple(
            _resized(nearest.storages[index], curves, alike)
            for index, alike in enumerate(zip(*(trace.storages for trace in members), strict=True))
        )
        ops = tuple(
            _recounted(nearest.ops[index], curves, alike)
            for index, alike in enumerate(zip(*(trace.ops for trace in members), strict=True))
        )
        return replace(nearest, storages=storages, ops=ops, graph=None, constants={})


def families(traces: Mapping[int, Trace]) -> tuple[TraceFamily, ...]:
    """Traces put together where they run the same ops and make the same requests.

    Each family is in order of the option's value; they come by their smallest.
    """
    groups: list[tuple[Hashable, dict[int, Trace]]] = []
    for value in sorted(traces):
        shape = _shape(traces[value])
        found = next((members for other, members in groups if other == shape), None)
        if found is None:
            groups.append((shape, {value: traces[value]}))
        else:
            found[value] = traces[value]
    return tuple(TraceFamily(traces=members) for _, members in groups)


def differing(promised: Trace, truth: Trace) -> int:
    """Storages whose bytes differ; all of them where the traces do not even run the same ops."""
    if _shape(promised) != _shape(truth):
        return len(truth.storages)
    return sum(
        (mine.nbytes, mine.most_bytes) != (true.nbytes, true.most_bytes)
        for mine, true in zip(promised.storages, truth.storages, strict=True)
    )


def _shape(trace: Trace) -> Hashable:
    """All that must be alike for sizes to follow from a value."""
    return (
        trace.events,
        trace.steps,
        trace.repeats,
        tuple(op.name for op in trace.ops),
        tuple((each.place, each.stream, each.role, each.most_bytes is None) for each in trace.storages),
    )


class _Curves:
    """Figures at the known values → the figure at another; few differ, so each curve is found once."""

    def __init__(self, values: tuple[int, ...], wanted: int) -> None:
        self._values, self._wanted = values, wanted
        self._found: dict[tuple[int, ...], int] = {}

    def at(self, figures: tuple[int, ...]) -> int:
        if figures not in self._found:
            self._found[figures] = _curve(self._values, figures).at(self._wanted)
        return self._found[figures]


def _curve(values: Sequence[int], figures: Sequence[int]) -> Size:
    """The polynomial through all points, or the line through the last two where it would be a wild one."""
    curve = fit(dict(zip(values, figures, strict=True)), spare=0)[0]
    if isinstance(curve, Polynomial):
        return curve
    return fit(dict(zip(values[-LINE_POINTS:], figures[-LINE_POINTS:], strict=True)), spare=0)[0]


def _resized(storage: Storage, curves: _Curves, alike: Sequence[Storage]) -> Storage:
    sizes = tuple(each.nbytes for each in alike)
    if len(set(sizes)) == 1 and storage.most_bytes is None:
        return storage
    most = None if storage.most_bytes is None else Bytes(curves.at(tuple(each.most_bytes or 0 for each in alike)))
    return replace(storage, nbytes=Bytes(curves.at(sizes)), most_bytes=most)


def _recounted(op: Op, curves: _Curves, alike: Sequence[Op]) -> Op:
    flops, moved = tuple(each.flops for each in alike), tuple(each.bytes_moved for each in alike)
    if len({*zip(flops, moved, strict=True)}) == 1:
        return op
    return replace(op, flops=curves.at(flops), bytes_moved=Bytes(curves.at(moved)))
