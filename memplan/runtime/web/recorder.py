"""Follows the checks of a run, and tells them as the JSON that the live page reads."""

import logging
from collections import deque
from collections.abc import Callable, Iterable
from threading import Event, Lock, Thread
from typing import Any, Protocol

from memplan.runtime.monitor.log import LINES, PLAN, recommended
from memplan.runtime.monitor.records import Check, Health, RunPlan
from memplan.runtime.web.points import Column, SeriesPoint, Thinned, column, key, merge_columns, merge_points, point
from memplan.versions import installed

_LOG = logging.getLogger("memplan")
SCHEMA_VERSION = "1.0"
MOST_POINTS = 2000
"""Of the timeline; more than a screen has pixels across."""
MOST_COLUMNS = 240
"""Of the heatmap, each some pixels wide."""
MOST_TURNS = 200
"""Changes of the level that are remembered."""
_COLUMNS = {"peak": "peak_allocated_bytes", "fragmentation": "fragmentation"}
"""Names in JSON, where they are not the figure's with ``_bytes``."""
LOOK_EVERY = 0.1
"""Seconds between two looks at the source; checks that come faster are seen as far as the source tells its last."""


class Monitor(Protocol):
    """What a ``MemoryMonitor`` gives."""

    plan: RunPlan | None
    """What was predicted."""

    def latest(self) -> Check | None:
        """The last check; None before the first."""


class SeriesRecorder:
    """Keeps the past of a run in bounded memory; thread-safe.

    The source has the last check, or None before the first.
    """

    def __init__(self, source: Callable[[], Check | None], *, job: str, plan: RunPlan | None) -> None:
        self._source, self._plan = source, plan
        self._head = {
            "schema_version": SCHEMA_VERSION,
            "job": job,
            "memplan_version": installed("memplan"),
            "plan": None if plan is None else PLAN.plain(plan),
        }
        self._points: Thinned[SeriesPoint] = Thinned(MOST_POINTS, merge_points)
        self._columns: Thinned[Column] = Thinned(MOST_COLUMNS, merge_columns)
        self._turns: deque[dict[str, Any]] = deque(maxlen=MOST_TURNS)
        self._devices: dict[str, dict[str, Any]] = {}
        self._last: Check | None = None
        self._looking = Lock()  # From the source's answer until it is taken, or two threads turn the order of checks.
        self._lock = Lock()
        self._over = Event()
        self._thread = Thread(target=self._follow, name="memplan-recorder", daemon=True)

    def start(self) -> None:
        """Look at the source from now on, on a thread of its own."""
        self._thread.start()

    def close(self) -> None:
        """Stop looking."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def look(self) -> None:
        """Take the source's last check, if it is new."""
        with self._looking:
            check = self._source()
            with self._lock:
                if check is not None and check is not self._last:
                    self._add(check)

    def document(self, at: str = "") -> dict[str, Any]:
        """All that is known, or what is new.

        ``at`` is the key of an earlier answer: points and columns begin where that one ended.

        Returns:
            Columns ``points`` and ``heat``, each with the index ``from`` that they begin at: what the reader has from
            there on is to be replaced. ``last`` is the last check, ``turns`` are changes of the level.
        """
        with self._lock:
            generation, known, heat_generation, heat_known = _parse(at)
            first = self._points.first_new(generation, known)
            heat_first = self._columns.first_new(heat_generation, heat_known)
            counts = (self._points.generation, len(self._points.items), self._columns.generation)
            return {
                **self._head,
                "at": ".".join(map(str, (*counts, len(self._columns.items)))),
                "devices": list(self._devices.values()),
                "points": {"from": first, "each": self._points.each, **self._columns_of(self._points.items[first:])},
                "heat": {"from": heat_first, **self._heat_of(self._columns.items[heat_first:])},
                "turns": list(self._turns),
                "last": None if self._last is None else _last(self._last),
            }

    def _follow(self) -> None:
        failed = False
        while not self._over.wait(LOOK_EVERY):
            try:
                self.look()
                failed = False
            except Exception:  # noqa: BLE001 - training goes on, whatever the source does.
                if not failed:
                    _LOG.exception("the live page cannot be told of checks")
                failed = True

    def _add(self, check: Check) -> None:
        for read, health in zip(check.reading.devices, check.devices, strict=True):
            name = key(read, health)
            if name not in self._devices:
                about = {"device": read.device, "name": read.name, "uuid": read.uuid, "rank": health.rank}
                self._devices[name] = {"key": name, **about}
                # Rows of a new device are missing in what was told before.
                self._points.generation += 1
                self._columns.generation += 1
        before = self._turns[-1] if self._turns else None
        turn = _turn(check)
        if before is None or (before["level"], before["codes"]) != (turn["level"], turn["codes"]):
            self._turns.append(turn)
        self._points.add(point(check))
        self._columns.add(column(check))
        self._last = check

    def _columns_of(self, points: Iterable[SeriesPoint]) -> dict[str, Any]:
        points = list(points)
        figures = ("used", "reserved", "allocated", "peak", "demand", "fragmentation")
        return {
            **{name: [getattr(each, name) for each in points] for name in ("seconds", "step", "level")},
            "resident_bytes": [each.resident for each in points],
            "host_bytes": [each.host for each in points],
            "devices": {
                name: {
                    _COLUMNS.get(figure, f"{figure}_bytes"): [
                        getattr(each.devices.get(name), figure, None) for each in points
                    ]
                    for figure in figures
                }
                for name in self._devices
            },
        }

    def _heat_of(self, columns: Iterable[Column]) -> dict[str, Any]:
        columns = list(columns)
        return {
            "seconds": [each.seconds for each in columns],
            "devices": {name: [_trimmed(each.sizes.get(name, ())) for each in columns] for name in self._devices},
        }


def _turn(check: Check) -> dict[str, Any]:
    """What the level is from a check on."""
    judged = [(_named(health), reason) for health in (*check.devices, check.host) for reason in health.reasons]
    return {
        "seconds": check.reading.seconds,
        "step": check.step,
        "level": check.level.word,
        "codes": sorted({reason.code for _, reason in judged}),
        "reasons": [{"device": device, "code": reason.code, "sentence": reason.message} for device, reason in judged],
    }


def _named(health: Health) -> str:
    return health.device if health.rank is None else f"rank {health.rank} {health.device}"


def _last(check: Check) -> dict[str, Any]:
    told = [each._asdict() for each in recommended(check.recommendations)]
    return {**LINES.plain(check), "recommendations": told}


def _trimmed(sizes: tuple[int, ...]) -> list[int]:
    """Without zeros at the end."""
    used = max((index + 1 for index, size in enumerate(sizes) if size), default=0)
    return list(sizes[:used])


def _parse(at: str) -> tuple[int, int, int, int]:
    """Generation and number of points, then of columns; what is none of these counts as nothing known."""
    parts = at.split(".")
    if len(parts) != 4 or not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        return -1, 0, -1, 0
    first, second, third, fourth = map(int, parts)
    return first, second, third, fourth
