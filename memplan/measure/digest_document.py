"""A digest as plain data and back: the ``timeline`` of an estimate's JSON, columns of integers to keep it small."""

from collections.abc import Mapping, Sequence
from typing import Any

from memplan.errors import UsageError
from memplan.measure.digest_records import (
    Curve,
    DigestBlock,
    DigestBuffer,
    DigestSegment,
    HistoryDigest,
    Holder,
    Span,
)


def timeline_document(digest: HistoryDigest) -> dict[str, Any]:
    """A digest as plain data; ``free`` blocks have owner -1."""
    return {
        "events": digest.events,
        "peak_event": digest.peak_event,
        "reserved_peak_event": digest.reserved_peak_event,
        "phases": [span._asdict() for span in digest.spans],
        "curve": {
            "event": list(digest.curve.events),
            "allocated_bytes": list(digest.curve.allocated),
            "reserved_bytes": list(digest.curve.reserved),
            "categories": {name: list(held) for name, held in digest.curve.categories.items()},
        },
        "owners": _columns(Holder._fields, digest.holders),
        "buffers": _columns(_BUFFER, digest.buffers),
        "buffers_left_out": digest.buffers_left_out,
        "segments": [
            {
                "stream": segment.stream,
                "small": segment.small,
                "expandable": segment.expandable,
                "blocks": _columns(_BLOCK, segment.blocks),
            }
            for segment in digest.segments
        ],
    }


_BUFFER = ("owner", "bytes", "start", "end")
_BLOCK = ("owner", "bytes", "requested_bytes")


def read_timeline(plain: Mapping[str, Any], where: str | None = None) -> HistoryDigest:
    """A digest from plain data.

    Args:
        plain: What ``timeline_document`` makes.
        where: The file, for errors.

    Raises:
        UsageError: It is not of that form.
    """
    try:
        return _digest(plain)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"this is no timeline that memplan wrote: {error!r}", where=where) from error


def _digest(plain: Mapping[str, Any]) -> HistoryDigest:
    curve = plain["curve"]
    return HistoryDigest(
        events=plain["events"],
        peak_event=plain["peak_event"],
        reserved_peak_event=plain["reserved_peak_event"],
        spans=tuple(Span(**span) for span in plain["phases"]),
        curve=Curve(
            events=tuple(curve["event"]),
            allocated=tuple(curve["allocated_bytes"]),
            reserved=tuple(curve["reserved_bytes"]),
            categories={name: tuple(held) for name, held in curve["categories"].items()},
        ),
        holders=tuple(Holder(*row) for row in _rows(plain["owners"], Holder._fields)),
        buffers=tuple(DigestBuffer(*row) for row in _rows(plain["buffers"], _BUFFER)),
        buffers_left_out=plain["buffers_left_out"],
        segments=tuple(
            DigestSegment(
                stream=segment["stream"],
                small=segment["small"],
                expandable=segment["expandable"],
                blocks=tuple(DigestBlock(*row) for row in _rows(segment["blocks"], _BLOCK)),
            )
            for segment in plain["segments"]
        ),
    )


def _columns(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, list[Any]]:
    return {name: [row[index] for row in rows] for index, name in enumerate(names)}


def _rows(columns: Mapping[str, Sequence[Any]], names: Sequence[str]) -> list[tuple[Any, ...]]:
    return list(zip(*(columns[name] for name in names), strict=True))
