"""The interval's residuals and their coverage, from the committed tables of measured runs (``measured_runs``).

``--write`` puts the ends by class into ``memplan/measure/residuals.toml`` and the table into ``docs/accuracy.md``;
the table is printed either way. Usage::

    python benchmarks/interval_coverage.py [--write]
"""

import argparse
import math
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from conformal import (
    ALONE,
    BOUNDED,
    LEVEL_PERCENT,
    NOT_POOLED,
    Coverage,
    Earned,
    Ends,
    Residual,
    coverage,
    earn,
    earn_pooled,
    other_class,
    other_run,
    other_source,
)
from measured_runs import FIGURES, read_residuals

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "memplan" / "measure" / "residuals.toml"
PAGE = ROOT / "docs" / "accuracy.md"
SHIPPED = ("allocated", "reserved")
"""Device bytes are made of blocks and segments, not of what was asked for."""
BEGIN = "<!-- begin: benchmarks/interval_coverage.py --write -->"
END = "<!-- end: benchmarks/interval_coverage.py -->"


def classes(residuals: Iterable[Residual], figures: Sequence[str] = FIGURES) -> list[tuple[str, str]]:
    """Every (class, figure) that was measured, in order."""
    return sorted({(each.workload, each.figure) for each in residuals if each.figure in figures})


def table(residuals: Sequence[Residual]) -> str:
    """``residuals.toml``: ends are measured / predicted, rounded outwards to the sixth decimal."""
    lines = [
        "# Measured over predicted peaks by class of workload (benchmarks/interval_coverage.py, docs/accuracy.md).",
        f"level = {LEVEL_PERCENT / 100}",
    ]
    for workload, figure in classes(residuals, SHIPPED):
        earned = earn(residuals, workload, figure)
        own = earned if earned and not earned.pooled else None
        lines += ["", f"[classes.{workload}.{figure}]", *_counts(_rows(residuals, workload, figure)), *_quantiles(own)]
    for name, also in (("pooled", ""), *((f"pooled-{each}", each) for each in sorted(NOT_POOLED - ALONE - BOUNDED))):
        for figure in SHIPPED:
            if earned := earn_pooled(residuals, figure, also=also):
                counts = [f"runs = {earned.runs}", f"sources = {earned.sources}"]
                lines += ["", f"[classes.{name}.{figure}]", *counts, *_quantiles(earned)]
    return "\n".join(lines) + "\n"


def _rows(residuals: Iterable[Residual], workload: str, figure: str) -> list[Residual]:
    return [each for each in residuals if (each.workload, each.figure) == (workload, figure)]


def _counts(rows: Sequence[Residual]) -> list[str]:
    torches = {each.torch for each in rows}
    oldest = min(torches, key=lambda release: [*map(int, release.split("."))]) if all(torches) else ""
    told = [f'torch = "{oldest}"'] if oldest else []
    return [f"runs = {len(rows)}", f"sources = {len({each.source for each in rows})}", *told]


def _quantiles(earned: Earned | None) -> list[str]:
    if earned is None:
        return []
    low, high = (math.exp(end) * 10**6 for end in earned.ends)
    return [f"low = {math.floor(low) / 10**6:.6f}", f"high = {math.ceil(high) / 10**6:.6f}"]


def section(residuals: Sequence[Residual]) -> str:
    """The part of docs/accuracy.md between its marks."""
    lines = [
        "| class | figure | runs | sources | median | ends | width | run out | source out | class out |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *(_measured_class(residuals, workload, figure) for workload, figure in classes(residuals)),
        *(_other_class(earned, figure) for figure in FIGURES if (earned := earn_pooled(residuals, figure))),
    ]
    return "\n".join(lines)


def _measured_class(residuals: Sequence[Residual], workload: str, figure: str) -> str:
    rows = _rows(residuals, workload, figure)
    median = _percent(statistics.median(each.value for each in rows))
    sources = len({each.source for each in rows})
    earned = earn(residuals, workload, figure)
    ends = ("too few", "") if earned is None else _interval(earned.ends, " (pooled)" if earned.pooled else "")
    held = (_share(coverage(residuals, workload, figure, apart)) for apart in (other_run, other_source, other_class))
    return _line(workload, figure, len(rows), sources, median, *ends, *held)


def _other_class(earned: Earned, figure: str) -> str:
    return _line("*any other*", figure, earned.runs, earned.sources, "", *_interval(earned.ends), "", "", "")


def _line(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _percent(value: float) -> str:
    return f"{100 * math.expm1(value):+.3f} %"


def _interval(ends: Ends, note: str = "") -> tuple[str, str]:
    width = 100 * (math.exp(ends.high) - math.exp(ends.low))
    return f"{_percent(ends.low)} to {_percent(ends.high)}{note}", f"{width:.3f} %"


def _share(found: Coverage) -> str:
    return f"{found.held} of {found.tried}" if found.tried else "—"


def page(text: str, residuals: Sequence[Residual]) -> str:
    """docs/accuracy.md with its generated part made anew."""
    before, mark, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (mark and end):
        raise SystemExit(f"{PAGE} lacks the marks {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{section(residuals)}\n{END}{after}"


def main() -> None:
    """Print the table, and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write residuals.toml and the part of docs/accuracy.md")
    options = parser.parse_args()
    residuals = read_residuals()
    print(section(residuals))
    if options.write:
        TABLE.write_text(table(residuals), encoding="utf-8")
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), residuals), encoding="utf-8")


if __name__ == "__main__":
    main()
