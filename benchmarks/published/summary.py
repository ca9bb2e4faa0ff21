"""Tables of how far predictions were off."""

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from memplan.hardware.catalog import load_profile
from published.case import Excluded
from published.outcomes import Outcome

MARGINS = (0.02, 0.05, 0.10)
"""How far beside the measured peak a card's capacity is put."""

ANCHORS = (
    ("xMem, 5209 runs, median over device memory (context measured)", "3.7 %", "its notebook; Middleware 2025"),
    ("fitcheck, 10 QLoRA runs on a T4, mean over allocated", "0.8 %", "its README, 0.3.0"),
    ("fitcheck, the same, mean over the whole device", "5.5 %", "its README, 0.3.0"),
    ("Megatron-LM's theoretical_memory_usage.py, 46 runs, median", "34 %", "run by the authors of memplan"),
    ("torch MemTracker, what its tests allow over active", "10 %", "test_mem_tracker.py"),
)
"""What others reach on figures of their own choice: tool, error, where it is said."""

GPUS = {
    "A100": "a100-80g",
    "A100-SXM4-40GB": "a100-40g",
    "A10G 24GB": "a10g",
    "H100 80GB (assumed; not stated)": "h100-80g",
}
"""Names in the table → profiles. ``T4`` and others that begin with one are found by ``_profile``."""


def error_table(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """One line per source and metric, one per workload, one over all whole runs."""
    yield f"{'source':<58}{'rows':>6}{'median %':>10}{'90th %':>9}{'worst %':>10}{'within digits':>15}"
    groups: dict[str, list[Outcome]] = defaultdict(list)
    for each in outcomes:
        groups[f"{each.source}, {each.metric}"].append(each)
    for each in outcomes:
        groups[f"  all of workload {each.workload}"].append(each)
    for name, members in groups.items():
        yield _line(name, members)
    yield _line("all whole runs", whole_runs(outcomes))


def whole_runs(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """All but single kernels, which are many and easier, and would hide the rest."""
    return [each for each in outcomes if each.workload != "kernel"]


def _line(name: str, members: Sequence[Outcome]) -> str:
    done = [each for each in members if not each.failed]
    note = f"  {len(members) - len(done)} failed" if len(done) < len(members) else ""
    if not done:
        return f"{name:<58}{0:>6}{note}"
    errors = sorted(abs(each.error_percent) for each in done)
    worst = max((each.error_percent for each in done), key=abs)
    within = sum(each.within_resolution for each in done)
    return (
        f"{name[:57]:<58}{len(done):>6}{statistics.median(errors):>10.4f}{quantile(errors, 0.9):>9.3f}{worst:>+10.3f}"
        f"{within:>15}{note}"
    )


def quantile(values: Sequence[float], share: float) -> float:
    """The least of ascending values below or at which a share of them lies."""
    return values[max(0, math.ceil(share * len(values)) - 1)]


def worst_table(outcomes: Sequence[Outcome], count: int = 15) -> Iterator[str]:
    """The rows that are most off, whole runs first."""
    done = [each for each in outcomes if not each.failed]
    done.sort(key=lambda each: (each.workload == "kernel", -abs(each.error_percent)))
    kernels = [each for each in done if each.workload == "kernel"]
    for each in (*done[: min(count, len(done) - len(kernels))], *kernels[:count]):
        yield f"{each.id:<70}{each.metric:>10}{each.measured:>16,}{each.predicted:>16,}{each.error_percent:>+9.3f} %"


def capacity_table(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Would a whole run have been judged rightly on a card whose capacity lies that far beside the measured peak?

    A run fits a capacity of at least its measured peak; a prediction says so of one of at least the predicted.
    """
    done = [each for each in whole_runs(outcomes) if not each.failed]
    if not done:
        return
    for margin in MARGINS:
        above = sum(each.predicted <= each.measured * (1 + margin) for each in done)
        below = sum(each.predicted > each.measured * (1 - margin) for each in done)
        yield (
            f"capacity {margin:.0%} above the peak: {share(above, len(done))} rightly 'fits'; "
            f"{margin:.0%} below it: {share(below, len(done))} rightly 'does not fit'"
        )
    short = sum(each.predicted < each.measured - each.resolution for each in done)
    yield f"capacity of exactly the prediction: {share(short, len(done))} would have run out of memory"


def share(part: int, whole: int) -> str:
    """``12 of 13 (92.3 %)``."""
    return f"{part} of {whole} ({100 * part / whole:.1f} %)"


def card_table(outcomes: Sequence[Outcome], cards: dict[str, str]) -> Iterator[str]:
    """Does the answer for the card that a whole run really ran on say that it fits?

    Args:
        outcomes: What was predicted.
        cards: Id → the card's name in the table.
    """
    said = Counter[str]()
    for each in whole_runs(outcomes):
        profile = _profile(cards.get(each.id, ""))
        if each.failed or profile is None:
            continue
        card = load_profile(profile)
        fits = each.reserved + card.context_bytes <= card.usable_bytes
        said["fits" if fits else "does not fit"] += 1
        if not fits:
            yield f"{each.id}: {each.reserved + card.context_bytes:,} B predicted, {card.usable_bytes:,} B usable"
    total = sum(said.values())
    if total:
        yield f"card that it ran on: {share(said['fits'], total)} rightly 'fits'"


def _profile(name: str) -> str | None:
    return GPUS.get(name) or ("t4" if "T4" in name else None)


def excluded_table(excluded: Iterable[Excluded]) -> Iterator[str]:
    """Reasons with how many rows each costs."""
    counts = Counter((each.source, each.reason) for each in excluded)
    for (source, reason), count in sorted(counts.items(), key=lambda item: (item[0][0], -item[1])):
        yield f"{count:>5}  {source[:44]:<46}{reason}"
