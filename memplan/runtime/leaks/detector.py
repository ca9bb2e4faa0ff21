"""Watches what a training loop keeps from step to step.

    with memplan.LeakDetector() as detector:
        for batch in batches:
            ...
            detector.step()

Each step costs a reading of two counters. Where these grow without end, a few steps are run with every allocation
written down, some more steps are waited for, and then a census tells what stayed, where it was born, who keeps it and
why. Then all is as before.
"""

import gc
import math
import time
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Self

from memplan.errors import UsageError
from memplan.runtime.leaks.births import Birth, Births
from memplan.runtime.leaks.census import Census, census
from memplan.runtime.leaks.records import Growing, Outcome, Site, TooShort, Verdict
from memplan.runtime.leaks.report import LeakReport
from memplan.runtime.leaks.sources import source
from memplan.runtime.leaks.trend import FALSE_ALARMS, FLOORS, PATIENCE, Floor, judge

GRACE = 20
"""Steps that pass between the last sampled birth and the census: what lives longer than that is kept, not in use."""
SAMPLE, MOST_SAMPLED = 5, 64
"""Steps that are sampled; more where leaks come less often, so that four are likely to be seen."""
WANTED = 4
LONGER = 4
"""Times as many steps are sampled after a look that found no leak while memory grew: a rare one may hide behind it."""
SECONDS = 5.0
"""Bound on the search for chains."""
EXPLAINED = 0.25
"""Survivors below this share of the growth do not explain it."""


class LeakDetector:
    """Judges memory step by step, and looks for causes when it grows. One loop and one thread at a time.

    Args:
        device: What to count: ``cuda:0``, ``cpu``, ``resident``; None chooses (``memplan.runtime.leaks.sources``).
        patience: Steps that growth must last to be more than warm-up.
        false_alarms: Chance that one judgement calls growth what has none.
        sample: Steps to write births down in; None: as many as the growth makes sensible.
        ignore: Parts of chains or file names that are no leaks: buffers that are meant to fill.
        on_report: Called with every report.

    Raises:
        UsageError: ``patience`` is less than 30, or there is no such device.
    """

    def __init__(
        self,
        device: str | None = None,
        *,
        patience: int = PATIENCE,
        false_alarms: float = FALSE_ALARMS,
        sample: int | None = None,
        ignore: tuple[str, ...] = (),
        on_report: Callable[[LeakReport], object] | None = None,
    ) -> None:
        if patience < FLOORS:
            raise UsageError(f"patience of {patience} steps is too short to judge", hint=f"{FLOORS} at least")
        self.steps = 0
        """Steps so far."""
        self.reports: list[LeakReport] = []
        """Of every investigation, oldest first."""
        self._source = source(device)
        self._patience, self._false_alarms, self._sample = patience, false_alarms, sample
        self._ignore, self._on_report = ignore, on_report
        self._bytes, self._storages, self._reserved = Floor(), Floor(), Floor()
        self._verdicts: tuple[Verdict, Verdict, Verdict] = (TooShort(needed=patience),) * 3
        self._running = self._source.running()
        self._births: Births | None = None
        self._longer = 1
        self._sampled = self._census_at = self._quiet_until = 0
        self._survivors: list[Birth] = []

    def __enter__(self) -> Self:
        """Begin to count."""
        self._running.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """Stop; an investigation under way is given up."""
        self._stop_sampling()
        self._running.__exit__(kind, error, where)

    @property
    def verdict(self) -> Verdict:
        """Of the bytes, as last judged."""
        return self._verdicts[0]

    @property
    def count_verdict(self) -> Verdict:
        """Of the number of live allocations; ``TooShort`` where nobody counts them."""
        return self._verdicts[1]

    @property
    def fragmenting(self) -> bool:
        """Do reserved bytes grow, while allocated ones do not (ML017)? Known on CUDA only."""
        return isinstance(self._verdicts[2], Growing) and not isinstance(self.verdict, Growing | TooShort)

    @property
    def leaks(self) -> list[LeakReport]:
        """Reports of leaks."""
        return [each for each in self.reports if each.outcome is Outcome.LEAK]

    def step(self) -> None:
        """Call it at the end of every step, always at the same place of the same loop."""
        self.steps += 1
        self._count()
        if self._births is not None:
            self._sampled_step(self._births)
        elif self._census_at:
            if self.steps >= self._census_at:
                self._conclude()
        elif self.steps % self._interval() == 0:
            self._judge()

    def _count(self) -> None:
        now = self._source.read()
        self._bytes.add(now.nbytes)
        if now.storages is not None:
            self._storages.add(now.storages)
        if now.reserved is not None:
            self._reserved.add(now.reserved)

    def investigate(self, steps: int | None = None) -> None:
        """Look now, whether memory grows or not: the next steps are sampled, and a report follows."""
        if self._births is None and not self._census_at:
            self._start(steps or self._sample or SAMPLE)

    def _interval(self) -> int:
        return max(self._patience // 3, 10 * self._bytes.width)

    def _judge(self) -> None:
        self._verdicts = tuple(  # type: ignore[assignment]
            judge(each.values, width=each.width, patience=self._patience, false_alarms=self._false_alarms)
            for each in (self._bytes, self._storages, self._reserved)
        )
        growing = isinstance(self.verdict, Growing) or isinstance(self.count_verdict, Growing)
        if growing and self.steps >= self._quiet_until:
            self._start(self._sample or self._sensible_sample())

    def _sensible_sample(self) -> int:
        """Leaks that come every tenth step need a longer look than those of every step."""
        rate = self.count_verdict.rate if isinstance(self.count_verdict, Growing) else 1.0
        return min(MOST_SAMPLED, self._longer * max(SAMPLE, math.ceil(WANTED / rate)))

    def _start(self, steps: int) -> None:
        self._births = Births(self._source.device)
        self._births.__enter__()  # type: ignore[no-untyped-call]
        self._sampled = steps

    def _sampled_step(self, births: Births) -> None:
        births.step += 1
        if births.step >= self._sampled:
            self._survivors = births.births
            self._stop_sampling()
            self._census_at = self.steps + GRACE

    def _stop_sampling(self) -> None:
        if self._births is not None:
            self._births.__exit__(None, None, None)  # type: ignore[no-untyped-call]
            self._births = None

    def _conclude(self) -> None:
        began = time.monotonic()
        automatic = gc.isenabled()
        found = census(self._survivors, self._sampled, self._source.device, SECONDS)
        self._census_at, self._survivors = 0, []
        self._quiet_until = 2 * self.steps
        report = self._report(found, automatic, time.monotonic() - began)
        self.reports.append(report)
        self._longer = 1 if report.outcome is Outcome.LEAK else LONGER * self._longer
        if self._on_report is not None:
            self._on_report(report)

    def _report(self, found: Census, automatic: bool, seconds: float) -> LeakReport:
        growth, count = (each if isinstance(each, Growing) else None for each in self._verdicts[:2])
        sites = [replace(site, leaks=bool(growth or count) and self._leaks(site, automatic)) for site in found.sites]
        return LeakReport(
            outcome=_outcome(found, sites, growth, count), step=self.steps, source=self._source.name,
            growth=growth, count=count, sites=tuple(sorted(sites, key=lambda site: not site.leaks)),
            classes=found.classes, sampled_steps=self._sampled, explained=found.nbytes / self._sampled, seconds=seconds,
        )  # fmt: skip

    def _leaks(self, site: Site, automatic: bool) -> bool:
        text = f"{site.chain} {site.place[0] if site.place else ''}"
        meant = site.chain.bound is not None or any(part in text for part in self._ignore)
        return site.steps > 1 and not meant and not (automatic and site.collected)


def _outcome(found: Census, sites: list[Site], growth: Growing | None, count: Growing | None) -> Outcome:
    if not growth and not count:
        return Outcome.STEADY
    if any(site.leaks for site in sites):
        return Outcome.LEAK
    if 2 * found.collected > found.nbytes:
        return Outcome.CYCLES
    if found.nbytes > EXPLAINED * (growth.rate if growth else 0) * found.steps:
        return Outcome.FILLING
    return Outcome.LEAK if count else Outcome.LARGER
