"""A placement as an SVG picture: offsets over time."""

from collections import defaultdict
from collections.abc import Iterator
from xml.sax.saxutils import escape

from memplan.page.colours import CATEGORIES
from memplan.plan.reuse.answer_records import ReuseAnswer
from memplan.plan.reuse.bound import stretches
from memplan.plan.reuse.records import ArenaBuffer
from memplan.report.draw.svg import BY_CATEGORY, category_class, picture
from memplan.report.labels import LABELS
from memplan.text import clean
from memplan.units import format_bytes

WIDTH, HEIGHT = 960, 540
LEFT, RIGHT, TOP, BOTTOM = 84, 16, 64, 36
"""Margins, in pixels."""
STEPS = 4
"""Grid lines between the ends of the offset axis."""
MOST_NAMED = 2000
"""Buffers that say who they are under the pointer: the largest by bytes and time."""
STYLE = (
    BY_CATEGORY
    + """  .limit { stroke: var(--bad); stroke-dasharray: 5 4 }
  .buffers { stroke: var(--ground); stroke-width: 0.4 }
"""
)
SHOWN_AS = {"backward": "gradient"}
"""Labels of joint graphs that are no categories → the category in whose colour they are drawn."""


def class_of(label: str) -> str:
    """The class of a buffer by its label: a category, or what stands for none."""
    return category_class(SHOWN_AS.get(label, label))


def render(answer: ReuseAnswer, *, alone: bool = True) -> str:
    """Draw a placement as an SVG document, ``alone`` or for a page; without one only the axes are drawn."""
    parts = _Picture(answer).parts()
    return picture(_title(answer), parts, size=(WIDTH, HEIGHT), left=LEFT, style=STYLE, alone=alone)


def _title(answer: ReuseAnswer) -> str:
    height = f", {format_bytes(answer.placement.height)}" if answer.placement else ""
    return clean(f"{answer.target}: one arena{height}, bound {format_bytes(answer.bound_bytes)}")


class _Picture:
    """An answer in pixels."""

    def __init__(self, answer: ReuseAnswer) -> None:
        self._answer = answer
        buffers, placement = answer.problem.buffers, answer.placement
        self._offsets = placement.offsets if placement else (0,) * len(buffers)
        self._labels = answer.surroundings.labels if answer.surroundings else ("",) * len(buffers)
        self._first = min((buffer.start for buffer in buffers), default=0)
        self._moments = max(1, max((buffer.end for buffer in buffers), default=1) - self._first)
        self._top = max(1, placement.height if placement else 0, answer.problem.capacity or 0)

    def parts(self) -> Iterator[str]:
        """Grid, legend, buffers, capacity."""
        yield from self._grid()
        yield from self._legend()
        if self._answer.placement:
            yield from self._buffers()
        if (capacity := self._answer.problem.capacity) is not None:
            y = self._y(capacity)
            yield f'<line class="limit" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'

    def _grid(self) -> Iterator[str]:
        for step in range(STEPS + 1):
            offset = self._top * step // STEPS
            y = self._y(offset)
            yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            yield f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{format_bytes(offset)}</text>'
        yield f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 12}" text-anchor="middle">time</text>'

    def _legend(self) -> Iterator[str]:
        x = LEFT
        for label in [label for label in (*CATEGORIES, *SHOWN_AS) if label in set(self._labels)]:
            words = LABELS.get(label, label)
            yield f'<rect x="{x}" y="40" width="11" height="11" class="{class_of(label)}"/>'
            yield f'<text x="{x + 16}" y="50">{words}</text>'
            x += 32 + 8 * len(words)

    def _buffers(self) -> Iterator[str]:
        buffers = self._answer.problem.buffers
        by_area = sorted(
            (index for index, buffer in enumerate(buffers) if buffer.size),
            key=lambda index: -buffers[index].size * (buffers[index].end - buffers[index].start),
        )
        yield '<g class="buffers">'
        small: defaultdict[str, list[str]] = defaultdict(list)
        for index in by_area[MOST_NAMED:]:
            small[self._labels[index]].append(self._path(buffers[index], self._offsets[index]))
        for label, paths in small.items():
            yield f'<path class="{class_of(label)}" d="{"".join(paths)}"/>'
        for index in by_area[:MOST_NAMED]:
            path = self._path(buffers[index], self._offsets[index])
            kind = class_of(self._labels[index])
            yield f'<path class="{kind}" d="{path}"><title>{escape(self._words(index))}</title></path>'
        yield "</g>"

    def _words(self, index: int) -> str:
        buffer, around = self._answer.problem.buffers[index], self._answer.surroundings
        owner = f"{around.owners[index]}, " if around else ""
        return clean(f"{owner}{format_bytes(buffer.size)} at {self._offsets[index]:,}, {buffer.start} to {buffer.end}")

    def _path(self, buffer: ArenaBuffer, offset: int) -> str:
        y, tall = self._y(offset + buffer.size), self._y(offset) - self._y(offset + buffer.size)
        return "".join(
            f"M{self._x(start):.2f} {y:.2f}h{self._x(end) - self._x(start):.2f}v{tall:.2f}H{self._x(start):.2f}z"
            for start, end in stretches(buffer)
        )

    def _x(self, moment: int) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (moment - self._first) / self._moments

    def _y(self, offset: int) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * offset / self._top
