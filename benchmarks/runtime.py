"""What `memplan.runtime` costs and finds: overheads as ratio of a step, latencies, the soak, leaks, fragmentation.

    python benchmarks/runtime.py [--only PART …] [--quick] [--out FILE]

Each part stands in `benchmarks/runtime_figures/` and runs in a process of its own, one after the other. Prints
Markdown; `benchmarks/results/runtime.txt` keeps the last run that was looked at. Nothing here needs a GPU.
"""

import argparse
import importlib
import os
import platform
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib import metadata
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from runtime_figures.figure import Figure

PARTS = ("profile", "monitor", "trend", "metrics", "leaks", "adaptive", "pools", "numa")
"""Modules of `runtime_figures`; each has ``figures(*, quick: bool) -> Iterator[Figure]``."""


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--quick", action="store_true", help="a hundredth of the work: does it run at all?")
    parser.add_argument("--out", type=Path, help="also write the table there")
    options = parser.parse_args()
    lines: list[str] = []
    for line in table(options.only, quick=options.quick):
        print(line, flush=True)
        lines.append(line)
    if options.out:
        options.out.write_text("\n".join(lines) + "\n", "utf-8")


def table(parts: tuple[str, ...], *, quick: bool) -> Iterator[str]:
    """Lines of Markdown."""
    yield machine()
    yield ""
    yield "| part | what | measured | goal | met |"
    yield "|---|---|---|---|---|"
    for part in parts:
        started = time.monotonic()
        # A process of its own: allocators, threads and peaks of one part are not those of the next.
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            found = pool.submit(measured, part, quick).result()
        for figure in found:
            met = "" if figure.met is None else "yes" if figure.met else "**no**"
            yield f"| {part} | {figure.what} | {figure.value} | {figure.goal} | {met} |"
        yield f"| {part} | seconds for the above | {time.monotonic() - started:.0f} | | |"


def measured(part: str, quick: bool) -> list[Figure]:
    """All figures of one part, in this process."""
    return list(importlib.import_module(f"runtime_figures.{part}").figures(quick=quick))


def machine() -> str:
    """Where this runs."""
    about = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    cpu = next((line.split(":")[1].strip() for line in about if line.startswith("model name")), "?")
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("torch", "psutil", "memplan"))
    load = os.getloadavg()[0]
    return f"{cpu}, {os.cpu_count()} threads, load {load:.1f}; Python {platform.python_version()}, {versions}"


if __name__ == "__main__":
    main()
