"""What Prometheus reads: the last check as metric families, made when it asks."""

import logging
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from threading import Lock
from typing import TYPE_CHECKING

from memplan.runtime.metrics.pools import BUCKET, POOL, TAKE, CountedPool, pool_families
from memplan.runtime.metrics.table import COMPARED, DEVICE, JOB, TREND, DeviceRow, family_of, filled, utf8
from memplan.runtime.monitor.records import Check, Level, RunPlan
from memplan.versions import installed

if TYPE_CHECKING:
    from prometheus_client import Metric as Family

_LOG = logging.getLogger("memplan")
MOST_REGIONS = 20
"""Regions with a series of their own, largest first: names come from the user's code, and there may be any number."""
_POWERS = range(5, 31)
"""Buckets of the histogram end at 2**5 (32 ns, no allocation is faster) to 2**30 nanoseconds (1.07 s)."""
_LABELS = ("gpu", "gpu_uuid", "rank", "job")


class Collector:
    """A custom collector of ``prometheus_client``: thread-safe, and it raises nothing."""

    def __init__(
        self,
        source: Callable[[], Check | None],
        *,
        job: str,
        plan: RunPlan | None,
        pools: Mapping[str, CountedPool] | None = None,
    ) -> None:
        self._source = source
        self._pools = dict(pools or {})
        self._job = utf8(job)
        self._plan = plan
        self._versions = {"version": installed("memplan"), "torch": installed("torch")}
        self._errors = 0
        self._lock = Lock()

    def collect(self) -> "Iterator[Family]":
        """Families of the last check; where it cannot be had, all but these."""
        found: list[Family] = []
        try:
            check = self._source()
            found = list(self._families(check)) if check else []
            found += pool_families(self._pools, self._job)
        except Exception:  # noqa: BLE001 - training goes on, whatever the source does.
            with self._lock:
                self._errors += 1
            _LOG.debug("nothing to scrape", exc_info=True)
        yield from found
        yield from self._about()

    def describe(self) -> "Iterator[Family]":
        """All names, so that a registry sees a clash before the first check."""
        from prometheus_client import core

        for metric in (*DEVICE, *COMPARED, *TREND):
            yield family_of(metric, ())
        for each in JOB:
            yield family_of(each, ())
        for accounts in POOL:
            yield family_of(accounts, ())
        for by_size in BUCKET:
            yield family_of(by_size, ())
        for name in ("memplan_level", "memplan_host_level"):
            yield core.StateSetMetricFamily(name, "")
        for name in ("memplan_reason", "memplan_region_peak_bytes", "memplan_regions"):
            yield core.GaugeMetricFamily(name, "")
        for name in ("memplan_allocation_seconds", TAKE):
            yield core.HistogramMetricFamily(name, "")
        yield from self._about()

    def _about(self) -> "Iterator[Family]":
        from prometheus_client import core

        built = core.InfoMetricFamily("memplan_build", "1; the labels say what made the figures.", labels=["job"])
        built.add_metric([self._job], self._versions)
        yield built
        planned = core.InfoMetricFamily("memplan_plan", "1; the labels say what was predicted.", labels=["job"])
        if self._plan:
            told = {"target": self._plan.target, "profile": self._plan.gpu, "verdict": self._plan.verdict}
            planned.add_metric([self._job], {name: utf8(value) for name, value in told.items()})
        yield planned
        errors = core.CounterMetricFamily("memplan_scrape_errors", "Scrapes without figures.", labels=["job"])
        errors.add_metric([self._job], self._errors)
        yield errors

    def _families(self, check: Check) -> "Iterator[Family]":
        devices = self._devices(check)
        yield from filled(DEVICE, _LABELS, devices.items())
        compared = ((*labels, of.health.figure) for labels, of in devices.items())
        yield from filled(COMPARED, (*_LABELS, "figure"), zip(compared, devices.values(), strict=True))
        with_trend = [((*labels, of.health.trend.by), of) for labels, of in devices.items() if of.health.trend]
        yield from filled(TREND, (*_LABELS, "per"), with_trend)
        yield from filled(JOB, ("job",), [((self._job,), check)])
        yield from self._levels(check, devices)
        yield from self._regions(check)
        yield from _histogram(devices)

    def _devices(self, check: Check) -> dict[tuple[str, ...], DeviceRow]:
        """By their labels, each once: Prometheus refuses a scrape that has one series twice."""
        found: dict[tuple[str, ...], DeviceRow] = {}
        for read, health in zip(check.reading.devices, check.devices, strict=True):
            rank = "" if health.rank is None else str(health.rank)
            labels = (utf8(read.device), utf8(read.uuid), rank, self._job)
            found.setdefault(labels, DeviceRow(read, health, self._plan))
        return found

    def _levels(self, check: Check, devices: Mapping[tuple[str, ...], DeviceRow]) -> "Iterator[Family]":
        from prometheus_client import core

        levels = core.StateSetMetricFamily("memplan_level", "How bad it is on a device.", labels=_LABELS)
        reasons = core.GaugeMetricFamily(
            "memplan_reason", "How bad this reason alone is: 0 a note, 3 an emergency.", labels=[*_LABELS, "code"]
        )
        for labels, of in devices.items():
            levels.add_metric(labels, _states(of.health.level))
            worst = {reason.code: Level.of(reason.severity) for reason in reversed(of.health.reasons)}
            for code, level in sorted(worst.items()):
                reasons.add_metric([*labels, utf8(code)], level)
        yield levels
        yield reasons
        host = core.StateSetMetricFamily("memplan_host_level", "How bad it is with host memory.", labels=["job"])
        host.add_metric([self._job], _states(check.host.level))
        yield host

    def _regions(self, check: Check) -> "Iterator[Family]":
        from prometheus_client import core

        peaks: dict[str, int] = {}
        for region in check.regions:
            name = utf8(region.name)
            peaks[name] = max(region.bytes, peaks.get(name, 0))
        family = core.GaugeMetricFamily(
            "memplan_region_peak_bytes",
            f"Peak of a part of the step above what was there before; the {MOST_REGIONS} largest.",
            labels=["region", "job"],
        )
        for name in sorted(peaks, key=lambda name: -peaks[name])[:MOST_REGIONS]:
            family.add_metric([name, self._job], peaks[name])
        yield family
        number = core.GaugeMetricFamily("memplan_regions", "Parts of the step that are measured.", labels=["job"])
        number.add_metric([self._job], len(peaks))
        yield number


def _states(level: Level) -> dict[str, bool]:
    return {each.word: each is level for each in Level}


def _histogram(devices: Mapping[tuple[str, ...], DeviceRow]) -> "Iterator[Family]":
    from prometheus_client import core

    family = core.HistogramMetricFamily(
        "memplan_allocation_seconds",
        "How long PyTorch's allocator took for one request; one of 17 is timed.",
        labels=_LABELS,
    )
    for labels, of in devices.items():
        if not of.read.times:
            continue
        upto = list(accumulate(of.read.times))
        buckets = [(str(2**power / 1e9), upto[min(power, len(upto) - 1)]) for power in _POWERS]
        family.add_metric(labels, [*buckets, ("+Inf", upto[-1])], sum_value=of.read.spent / 1e9)
    yield family
