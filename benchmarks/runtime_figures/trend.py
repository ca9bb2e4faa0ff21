"""What the monitor calls growth: false alarms of runs that do not grow, and how soon one is found that does.

Made-up runs of 600 steps of 10 GiB, looked at after every fourth with what a monitor would remember; ``leak`` is flat
for 130 of 200 steps and then grows by 20 MiB a step, under the same noise. Independent noise: warm-up, caches and real
data have other shapes.
"""

import random
import statistics
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from memplan.runtime.monitor.judge import DEFAULTS
from memplan.runtime.monitor.trend import Point, growth, windows
from memplan.units import GIB, MIB
from runtime_figures.figure import Figure

EVERY = 4
"""Steps between two looks."""
Series = Callable[[random.Random, int], int]


@dataclass(frozen=True, slots=True)
class _Look:
    """A check, as far as a trend looks at it."""

    number: int
    step: int
    size: int

    @property
    def point(self) -> tuple[Point, int]:
        return Point(self.step, float(self.step)), self.size


def noise(source: random.Random, step: int) -> int:
    """Batches of 0 to 200 MiB."""
    del step
    return 10 * GIB + source.randrange(200 * MIB)


def heavy(source: random.Random, step: int) -> int:
    """Outliers of any size."""
    del step
    return 10 * GIB + int(10 * MIB * source.paretovariate(1.5))


def jump(source: random.Random, step: int) -> int:
    """Something comes at step 300, and stays."""
    return noise(source, step) + (1000 * MIB if step >= 300 else 0)


def leak(source: random.Random, step: int) -> int:
    """Outputs are kept from step 130 on."""
    return noise(source, step) + 20 * MIB * max(0, step - 130)


NAMES = {noise: "noise of 200 MiB", heavy: "outliers of any size", jump: "noise of 200 MiB with one jump of 1,000"}


def figures(*, quick: bool) -> Iterator[Figure]:
    """All of them."""
    for series, many, goal in ((noise, 1500, 2), (heavy, 1500, 2), (jump, 400, 8)):
        runs = 5 if quick else many
        alarms = sum(step is not None for step in found_at(series, runs=runs, steps=600))
        what = f"600 flat steps under {NAMES[series]}: runs called growing"
        yield Figure(what, f"{alarms} of {runs}", f"<= {goal}", alarms <= goal)
    runs = 5 if quick else 200
    found = [step for step in found_at(leak, runs=runs, steps=200) if step is not None]
    value = f"{len(found)} of {runs}, at step {statistics.median(found or [-1]):.0f} (median)"
    what = "200 steps that leak 20 MiB a step from step 130 on, under noise of 200 MiB: runs found"
    yield Figure(what, value, "all", len(found) == runs)


def found_at(series: Series, *, runs: int, steps: int) -> list[int | None]:
    """At which step each run is first called growing; None for never."""
    source = random.Random(7)
    return [_first(series, source, steps) for _ in range(runs)]


def _first(series: Series, source: random.Random, steps: int) -> int | None:
    history: deque[_Look] = deque(maxlen=DEFAULTS.window)
    for step in range(steps):
        now = _Look(step, step, series(source, step))
        if step % EVERY == EVERY - 1:
            chosen = windows(history, DEFAULTS.warm_up, stepped=True)  # type: ignore[arg-type]  # as far as it is looked at
            found = growth([[*(each.point for each in window), now.point] for window in chosen], 80 * GIB)  # type: ignore[attr-defined]
            if found is not None and found.growing:
                return step
        history.append(now)
    return None
