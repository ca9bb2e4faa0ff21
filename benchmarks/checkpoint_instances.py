"""The public rematerialisation instances: what memplan finds beside the best that anyone published or measured."""

import math
import os
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from memplan.plan.checkpoint.graph_file import read_instance
from memplan.plan.checkpoint.schedule.check import violations
from memplan.plan.checkpoint.schedule.figures import figures_of, unplanned
from memplan.plan.checkpoint.schedule.records import (
    FeasibleSchedule,
    InfeasibleSchedule,
    NoSchedule,
    OptimalSchedule,
    RematGraph,
    ScheduleResult,
)
from memplan.plan.checkpoint.schedule.solve import solve_schedule

DATA = Path(os.environ.get("MEMPLAN_DATA", Path(__file__).parents[2] / "shared" / "data")) / "remat"

FILES = {
    "CM1": "fcn_8_vgg_32__416_608_3.json",
    "CM2": "ResNet50_256__224_224_3.json",
    "RL1": "random_layered_n100_w0.27_nlv0.75_ed0.2_scd0.14.json",
    "RL2": "random_layered_n250_w0.43_nlv0.75_ed0.2_scd0.14.json",
    "RL3": "random_layered_n500_w0.36_nlv0.75_ed0.2_scd0.14.json",
    "RL4": "random_layered_n1000_w0.31_nlv0.75_ed0.2_scd0.14.json",
    "U-Net": "vgg_unet_32__416_608_3.json",
    "MobileNet": "MobileNet_512__224_224_3.json",
    "SegNet": "segnet_32__416_608_3.json",
    "VGG16": "VGG16_256__224_224_3.json",
    "VGG19": "VGG19_256__224_224_3.json",
}
"""Files of github.com/haoming-codes/moccasin, ``data/``."""

FASTSA = "FastSA"  # Imanishi et al., NeurIPS 2023, table 1: one decimal
REDUCED = "reduced ILP"  # Gap-compressed Checkmate ILP with HiGHS on two cores, given order, measured 2026-11
BEAM = "beam + reduced ILP"  # The same after a beam search over orders

BEST: dict[str, dict[int, tuple[float | None, str]]] = {
    "CM1": {90: (0.029, REDUCED), 80: (0.136, REDUCED), 70: (0.892, REDUCED)},
    "CM2": {
        90: (0.108, REDUCED),
        80: (0.279, REDUCED),
        70: (0.564, REDUCED),
        60: (0.963, REDUCED),
        50: (1.499, REDUCED),
    },
    "RL1": {90: (0.0, FASTSA), 80: (0.0, BEAM), 70: (2.2, FASTSA)},
    "RL2": {90: (0.0, FASTSA), 80: (0.0, FASTSA), 70: (1.997, BEAM)},
    "RL3": {90: (0.03, FASTSA), 80: (2.3, FASTSA), 70: (None, "FastSA misses it")},
    "RL4": {90: (0.4, FASTSA), 80: (2.5, FASTSA), 70: (7.4, FASTSA)},
    "U-Net": {90: (1.13, REDUCED), 70: (2.97, REDUCED), 50: (6.97, REDUCED), 40: (13.11, REDUCED)},
    "MobileNet": {90: (0.16, REDUCED), 70: (0.63, REDUCED), 50: (1.64, REDUCED), 30: (3.96, REDUCED)},
    "SegNet": {90: (0.10, REDUCED), 60: (0.42, REDUCED), 50: (40.7, REDUCED), 40: (None, "infeasible")},
    "VGG16": {90: (1.97, REDUCED), 80: (None, "infeasible")},
    "VGG19": {90: (0.10, REDUCED), 80: (2.76, REDUCED)},
}
"""Instance, budget in per cent of the given order's peak: the least extra cost in per cent and whose it is.

Of Checkmate (Gurobi), Moccasin (CP-SAT, ICML 2023), FastSA and the two prototypes; the published figures of the first
two are rounded to one decimal and on these cells no better than the ILP's.
"""
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.monotonic, "cpu": time.process_time}
TITLES = (
    f"{'instance':10} {'nodes':>5} {'budget':>6} {'best %':>7} {'whose':19} {'memplan %':>9} {'bound %':>8} "
    f"{'as good':>7} {'wall s':>6} {'CPU s':>6}  result"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How hard to try."""

    time_limit: float
    """Seconds a cell."""
    clock: str
    """What they are counted by: a key of ``CLOCKS``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One cell of the table."""

    instance: str
    nodes: int
    percent: int
    """Budget, of the given order's peak."""
    best: float | None
    """Extra cost in per cent; None: nobody is known to have met the budget."""
    whose: str
    found: float | None
    """The same of memplan; None: no schedule."""
    bound: float | None
    """No schedule of those that ``bound_for`` names has less."""
    result: str
    wall_seconds: float
    cpu_seconds: float

    @property
    def as_good(self) -> bool:
        """Is it at most the best one, in the digits that are stated?"""
        if self.best is None:
            return True
        digits = len(str(self.best).partition(".")[2])
        return self.found is not None and round(self.found, digits) <= self.best

    def __str__(self) -> str:
        best, found, bound = ("-" if value is None else f"{value:.3f}" for value in (self.best, self.found, self.bound))
        return (
            f"{self.instance:10} {self.nodes:5} {self.percent:4} % {best:>7} {self.whose:19} {found:>9} {bound:>8} "
            f"{'yes' if self.as_good else 'NO':>7} {self.wall_seconds:6.1f} {self.cpu_seconds:6.1f}  {self.result}"
        )


def header(effort: Effort) -> str:
    """Machine, versions and effort, and the column titles."""
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    packages = ", ".join(f"{name} {version(name)}" for name in ("numpy", "highspy", "networkx"))
    machine = f"{platform.machine()}, {os.cpu_count()} cores (load {load})"
    lines = (
        f"{datetime.now(UTC).date()}, {machine}, Python {platform.python_version()}, {packages}",
        f"at most {effort.time_limit:g} s of {effort.clock} time a cell, 2 threads; every schedule validated",
        "budget: share of the peak of the given order; per cent: cost above that of computing every node once",
        TITLES,
    )
    return "\n".join(lines)


def rows(only: frozenset[str], effort: Effort) -> Iterator[Row]:
    """Solve one cell after the other.

    Args:
        only: Cells such as ``RL1`` or ``RL1@70``; empty: all.
        effort: For each cell.
    """
    for instance, cells in BEST.items():
        graph = read_instance(DATA / FILES[instance])
        for percent in cells:
            if not only or {instance, f"{instance}@{percent}"} & only:
                yield _row(instance, graph, percent, effort)


def _row(instance: str, graph: RematGraph, percent: int, effort: Effort) -> Row:
    best, whose = BEST[instance][percent]
    before = figures_of(graph, unplanned(graph))
    budget = math.floor(percent * before.peak_bytes / 100)
    wall, cpu = time.monotonic(), time.process_time()
    result = solve_schedule(graph, budget, time_limit=effort.time_limit, threads=2, clock=CLOCKS[effort.clock])
    wall, cpu = time.monotonic() - wall, time.process_time() - cpu
    found, bound, words = _outcome(graph, result, budget, before.cost)
    return Row(
        instance=instance,
        nodes=len(graph.names),
        percent=percent,
        best=best,
        whose=whose,
        found=found,
        bound=bound,
        result=words,
        wall_seconds=wall,
        cpu_seconds=cpu,
    )


def _outcome(
    graph: RematGraph, result: ScheduleResult, budget: int, base: float
) -> tuple[float | None, float | None, str]:
    """Extra cost and bound in per cent, and the result in words; a schedule that is not in order ends the benchmark."""
    match result:
        case OptimalSchedule() | FeasibleSchedule():
            figures = result.figures
            wrong = violations(graph, result.schedule, budget, cost=figures.cost, peak_bytes=figures.peak_bytes)
            if wrong:
                raise AssertionError(wrong)
            extra = 100 * (figures.cost / base - 1)
            if isinstance(result, OptimalSchedule):
                return extra, extra, "optimal over every schedule"
            bound = None if result.bound_cost is None else 100 * (result.bound_cost / base - 1)
            return extra, bound, f"bound for {result.bound_for}"
        case InfeasibleSchedule():
            name = graph.names[result.node]
            return None, None, f"infeasible: {name} alone takes {result.least_bytes:,} of {budget:,} bytes"
        case NoSchedule():
            over = "" if result.best is None else f", least peak {result.best.figures.peak_bytes / budget:.4f} of it"
            return None, None, f"none found{over}"
