"""What checkpoint plans cost, beside what others reach.

    python benchmarks/checkpointing.py --instances [CELL ...] [--time-limit 30] [--clock wall|cpu]
    python benchmarks/checkpointing.py --models [MODEL ...] [--ways WAY ...] [--results FILE.csv]

``--instances`` solves the public rematerialisation instances under ``$MEMPLAN_DATA/remat`` (default: ``../shared/data``
beside the checkout); CELL is an instance or one budget of it, ``RL4`` or ``RL4@70``. On a machine that does other work
``--clock cpu`` limits processor time instead of time on the wall.

``--models`` plans real models for the CPU and runs them there (``checkpoint_models``), and presets by trace alone. What
stands in the CSV file is not run again; at the end the tables of all that stands there are printed.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import checkpoint_instances
import checkpoint_models
import checkpoint_table


def main() -> None:
    """Print the tables that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", nargs="*", metavar="CELL", help="public rematerialisation instances")
    parser.add_argument("--time-limit", type=float, default=30.0, help="seconds a cell")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="what the seconds are counted by")
    parser.add_argument("--models", nargs="*", metavar="MODEL", help="real models and presets")
    parser.add_argument("--ways", nargs="*", default=(), metavar="WAY", help="only these: ilp, full, selective, …")
    parser.add_argument("--results", type=Path, default=checkpoint_models.RESULTS, help="rows of --models")
    options = parser.parse_args()
    if options.instances is not None:
        effort = checkpoint_instances.Effort(time_limit=options.time_limit, clock=options.clock)
        _instances(frozenset(options.instances), effort)
    if options.models is not None:
        _models(options.models, options.ways, options.results)


def _instances(only: frozenset[str], effort: checkpoint_instances.Effort) -> None:
    print(checkpoint_instances.header(effort))
    good = total = 0
    for row in checkpoint_instances.rows(only, effort):
        print(row, flush=True)
        good, total = good + row.as_good, total + 1
    print(f"{good} of {total} cells at least as good as the best known")


def _models(names: Sequence[str], ways: Sequence[str], results: Path) -> None:
    checkpoint_models.run(names, ways, results)
    print(checkpoint_table.header())
    for line in checkpoint_table.lines(checkpoint_models.read(results)):
        print(line)


if __name__ == "__main__":
    main()
