"""A recorded history in the shape that pages draw: a curve by place in the program, and the allocator at its end."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from memplan.measure.digest_records import Curve, DigestBlock, DigestSegment, HistoryDigest, Holder
from memplan.report.places import name_of, source_of
from memplan.snapshot.analysis import SnapshotAnalysis
from memplan.snapshot.frames import CodePlace, place_of
from memplan.snapshot.records import DeviceSnapshot
from memplan.snapshot.timeline import held_by_place, segments_now

SAMPLES: Final = 500
"""Moments of the curve at most; each is the highest of its stretch."""
NAMED: Final = 8
"""Places that have a colour of their own: those that ever hold most."""
OTHERS: Final = "place-others"
"""The category of all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacesDigest:
    """A history by place."""

    history: HistoryDigest
    """Its categories are places: ``place-0`` and so on, and ``OTHERS``."""
    labels: Mapping[str, str]
    """Category → what the place is called."""


def digest(snapshot: DeviceSnapshot, analysis: SnapshotAnalysis) -> PlacesDigest:
    """Sample a history and name its largest places."""
    curves = analysis.curves
    stretches = list(_stretches(len(curves.allocated)))
    moments = [max(stretch, key=curves.allocated.__getitem__) for stretch in stretches]
    held = list(held_by_place(snapshot, analysis.policy.policy, analysis.replay, moments))
    named = _largest(held)
    holders = _Holders(named)
    segments = tuple(_segments(snapshot, holders)) if analysis.caching else ()
    history = HistoryDigest(
        events=len(curves.allocated),
        peak_event=curves.peak,
        reserved_peak_event=curves.reserved_peak,
        spans=(),
        curve=Curve(
            events=tuple(moments),
            allocated=tuple(curves.allocated[moment] for moment in moments),
            reserved=tuple(max(curves.reserved[index] for index in stretch) for stretch in stretches),
            categories=_by_category(held, named),
        ),
        holders=tuple(holders.all),
        buffers=(),
        buffers_left_out=0,
        segments=segments,
    )
    labels = {f"place-{number}": " ".join(_words(place)) for number, place in enumerate(named)}
    return PlacesDigest(history=history, labels=labels | {OTHERS: "all others"})


def _stretches(count: int) -> Iterator[range]:
    parts = min(count, SAMPLES)
    return (range(part * count // parts, (part + 1) * count // parts) for part in range(parts))


def _largest(held: Iterable[Counter[CodePlace]]) -> list[CodePlace]:
    """Places by the most that each ever holds."""
    most: Counter[CodePlace] = Counter()
    for moment in held:
        most |= moment
    return [place for place, _ in most.most_common(NAMED)]


def _by_category(held: Sequence[Counter[CodePlace]], named: Sequence[CodePlace]) -> dict[str, tuple[int, ...]]:
    found = {f"place-{number}": tuple(moment[place] for moment in held) for number, place in enumerate(named)}
    others = tuple(moment.total() - sum(moment[place] for place in named) for moment in held)
    return found | {OTHERS: others}


class _Holders:
    """Places of blocks, each once."""

    def __init__(self, named: Sequence[CodePlace]) -> None:
        self._category = {place: f"place-{number}" for number, place in enumerate(named)}
        self._index: dict[CodePlace, int] = {}
        self.all: list[Holder] = []

    def of(self, place: CodePlace) -> int:
        """The index of a place among all."""
        if place not in self._index:
            self._index[place] = len(self.all)
            category = self._category.get(place, OTHERS)
            self.all.append(Holder(module=name_of(place), source=source_of(place), name="", category=category))
        return self._index[place]


def _segments(snapshot: DeviceSnapshot, holders: _Holders) -> Iterator[DigestSegment]:
    for segment, blocks in segments_now(snapshot):
        yield DigestSegment(
            stream=segment.stream,
            small=segment.small,
            expandable=segment.expandable,
            blocks=tuple(
                DigestBlock(
                    holder=-1 if held is None else holders.of(place_of(held.frames)),
                    nbytes=block.size,
                    requested=block.requested,
                )
                for block, held in blocks
            ),
        )


def _words(place: CodePlace) -> Iterator[str]:
    yield from filter(None, (source_of(place), name_of(place)))
