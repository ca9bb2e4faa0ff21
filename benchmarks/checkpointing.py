"""What checkpoint plans cost, beside what others reach.

    python benchmarks/checkpointing.py --instances [CELL ...] [--time-limit 30] [--clock wall|cpu]

``--instances`` solves the public rematerialisation instances under ``$MEMPLAN_DATA/remat`` (default: ``../shared/data``
beside the checkout); CELL is an instance or one budget of it, ``RL4`` or ``RL4@70``. On a machine that does other work
``--clock cpu`` limits processor time instead of time on the wall.
"""

import argparse

import checkpoint_instances


def main() -> None:
    """Print the tables that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", nargs="*", metavar="CELL", help="public rematerialisation instances")
    parser.add_argument("--time-limit", type=float, default=30.0, help="seconds a cell")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="what the seconds are counted by")
    options = parser.parse_args()
    if options.instances is not None:
        effort = checkpoint_instances.Effort(time_limit=options.time_limit, clock=options.clock)
        _instances(frozenset(options.instances), effort)


def _instances(only: frozenset[str], effort: checkpoint_instances.Effort) -> None:
    print(checkpoint_instances.header(effort))
    good = total = 0
    for row in checkpoint_instances.rows(only, effort):
        print(row, flush=True)
        good, total = good + row.as_good, total + 1
    print(f"{good} of {total} cells at least as good as the best known")


if __name__ == "__main__":
    main()
