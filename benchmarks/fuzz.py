"""Thousands of drawn command lines and files: none may end in a traceback, an internal error or a wrong code.

    python benchmarks/fuzz.py --cases 3000                    # some 25 minutes
    python benchmarks/fuzz.py --cases 1 --seed 1027 --show    # one of them again

Half of the cases are command lines drawn from the real tables of options, with valid, nearly valid and hostile values;
half are a file of a kind that memplan reads, broken by bytes or by structure, and a command that reads it. What would
trace runs in this process in one case of twelve and is answered by a stand-in in the others. Exit 1 where anything is
wrong.
"""

import argparse
import platform
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch

from tests.fuzz.run import MOST_SECONDS, Case, run_case

COUNTED = ("traceback", "internal error")


def run(cases: int, first: int, *, show: bool) -> list[Case]:
    """Run them one after the other; what is wrong is told at once."""
    found = []
    for seed in range(first, first + cases):
        case = run_case(seed)
        slow = case.seconds > MOST_SECONDS
        if show or case.wrong or slow:
            words = ", ".join(case.wrong) or ("over the limit of time" if slow else "well")
            print(f"seed {seed} ({case.kind}): {words}, code {case.code}, {case.seconds:.1f} s", flush=True)
            print(f"  {case.line.words!r:.600}\n  {case.err[-600:]!r}", flush=True)
        found.append(case)
    return found


def table(cases: Sequence[Case]) -> Iterator[str]:
    """A row for each kind of case and one for all of them."""
    kinds: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        kinds[f"{case.kind}: {case.line.command}" if case.kind == "options" else case.kind].append(case)
    yield f"{'kind':26}{'cases':>7}{'exit codes':>34}{'tracebacks':>12}{'internal':>10}{'other':>7}{'slowest':>10}"
    for name, mine in [*sorted(kinds.items()), ("all", [*cases])]:
        codes = Counter(str(None if case.code is None else int(case.code)) for case in mine)
        shown = " ".join(f"{code}:{count}" for code, count in sorted(codes.items()))
        counts = [sum(kind in case.wrong for case in mine) for kind in COUNTED]
        other = sum(bool(set(case.wrong) - set(COUNTED)) for case in mine)
        slowest = max(case.seconds for case in mine)
        yield f"{name:26}{len(mine):>7}{shown:>34}{counts[0]:>12}{counts[1]:>10}{other:>7}{slowest:>8.1f} s"
    wrong = sum(any("code" in each for each in case.wrong) for case in cases)
    over = sum(case.seconds > MOST_SECONDS for case in cases)
    yield f"\nwrong codes: {wrong}; over {MOST_SECONDS} s of CPU: {over}"


def main() -> int:
    """Print the table; 1 where anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=100_000, help="of the first case; the others count on")
    parser.add_argument("--show", action="store_true", help="tell of every case")
    asked = parser.parse_args()
    began = time.perf_counter()
    cases = run(asked.cases, asked.seed, show=asked.show)
    print(f"{date.today()}  {platform.machine()}  Python {platform.python_version()}  torch {torch.__version__}")  # noqa: DTZ011
    print(f"seeds {asked.seed} to {asked.seed + asked.cases - 1}, {time.perf_counter() - began:.0f} s in all\n")
    print("\n".join(table(cases)))
    return int(any(case.wrong or case.seconds > MOST_SECONDS for case in cases))


if __name__ == "__main__":
    sys.exit(main())
