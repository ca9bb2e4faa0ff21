"""The JSON report of ``memplan reuse-plan``."""

from collections.abc import Mapping
from typing import NamedTuple

from memplan.contract.document import Document, head
from memplan.contract.table import Table
from memplan.plan.reuse.answer_records import MethodOutcome, ReuseAnswer
from memplan.plan.reuse.records import ArenaBuffer


class PlacedBuffer(NamedTuple):
    """One buffer, and where it goes."""

    buffer: ArenaBuffer
    """What needs a place."""
    offset_bytes: int | None
    """Where it lies; null where nothing was placed."""
    label: str
    """What it holds, or the first own frame that asked for it; empty where nobody says."""
    owner: str
    """Module and op, or source line; empty where nobody says."""


def _buffers(answer: ReuseAnswer) -> tuple[PlacedBuffer, ...]:
    """In the order of their file or trace."""
    placement, around = answer.placement, answer.surroundings
    return tuple(
        PlacedBuffer(
            buffer=buffer,
            offset_bytes=None if placement is None else placement.offsets[index],
            label=around.labels[index] if around else "",
            owner=around.owners[index] if around else "",
        )
        for index, buffer in enumerate(answer.problem.buffers)
    )


def _options(answer: ReuseAnswer) -> Mapping[str, str]:
    """Every option that is not at its default."""
    return answer.surroundings.options if answer.surroundings else {}


def _steps(answer: ReuseAnswer) -> int:
    """How many steps in a row are planned."""
    return answer.surroundings.repetitions if answer.surroundings else 1


def _assumptions(answer: ReuseAnswer) -> tuple[str, ...]:
    """Decisions that change the answer."""
    return answer.surroundings.assumptions if answer.surroundings else ()


DOCUMENT = Document(
    name="reuse-plan",
    root=ReuseAnswer,
    tables={
        ReuseAnswer: Table(
            keys={
                **head("reuse-plan"),
                "source": "kind",
                "result": "outcome",
                "fits": "fits",
                "method": "method",
                "capacity_bytes": "problem.capacity",
                "height_bytes": "placement.height",
                "lower_bound_bytes": "bound_bytes",
                "total_bytes": "total_bytes",
                "buffers": _buffers,
                "reason": "reason",
                "device": "surroundings.device",
                "step": "surroundings.step",
                "options": _options,
                "steps": _steps,
                "reserved_peak_bytes": "surroundings.reserved_bytes",
                "persistent_bytes": "surroundings.persistent_bytes",
                "other_streams_bytes": "surroundings.outside_bytes",
                "assumptions": _assumptions,
                "methods": "methods",
                "solve_seconds": "solve_seconds",
                "timings": {"read_seconds": "read_seconds", "solve_seconds": "solve_seconds"},
                "versions": {"memplan": "memplan_version"},
            },
            omit=("result",),
        ),
        MethodOutcome: Table(
            keys={
                "method": "name",
                "result": "outcome",
                "height_bytes": "height_bytes",
                "lower_bound_bytes": "bound_bytes",
                "seconds": "seconds",
                "refusal": "refusal",
                "note": "note",
            },
            omit=("result",),
        ),
        PlacedBuffer: Table(spread=("buffer",)),
        ArenaBuffer: Table(keys={"id": "name", "start": "start", "end": "end", "size_bytes": "size"}, rest=False),
    },
)
render = DOCUMENT.render
