"""How small an arena gets, and how fast, beside what others reach.

    python benchmarks/reuse.py --hard [A B …] --low [C D J] --graphs [G_1 …] --many
    python benchmarks/reuse.py --steps [preset:NAME …] [--results FILE.csv]
    python benchmarks/reuse.py --arena [GPT-2 …]

``--hard``, ``--low`` and ``--graphs`` read the public instances under ``$MEMPLAN_DATA/dsa`` (default:
``../shared/data`` beside the checkout). ``--steps`` traces presets and examples, training and inference; what stands in
the CSV file is not traced again. ``--arena`` runs real models.
"""

import argparse
from collections.abc import Iterable
from pathlib import Path

import reuse_instances
import reuse_steps


def main() -> None:
    """Print the tables that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, what in {
        "hard": "minimalloc's instances at their capacity",
        "low": "some of them, as low as possible",
        "graphs": "idealloc's graphs",
        "steps": "steps of presets and examples",
        "arena": "real models in an arena",
    }.items():
        parser.add_argument(f"--{name}", nargs="*", metavar="NAME", help=what)
    parser.add_argument("--many", action="store_true", help="60,000 made-up buffers")
    parser.add_argument("--results", type=Path, default=reuse_steps.RESULTS, help="rows of --steps")
    options = parser.parse_args()
    print(reuse_instances.header())
    if options.hard is not None:
        _print("minimalloc's instances at 1,048,576", reuse_instances.hard(frozenset(options.hard)))
    if options.low is not None:
        _print("as low as possible, 120 s", reuse_instances.low(frozenset(options.low), 120.0))
    if options.graphs is not None:
        _print("graphs, 30 s", reuse_instances.graphs(frozenset(options.graphs), 30.0))
    if options.many:
        _print("very many buffers, 60 s", reuse_instances.many(60.0))
    if options.steps is not None:
        reuse_steps.run(options.steps, options.results)
        _print("steps on h100-80g, 10 s", reuse_steps.lines(reuse_steps.read(options.results)))
    if options.arena is not None:
        import reuse_arena

        _print("in an arena, CPU", reuse_arena.rows(frozenset(options.arena), 10.0))


def _print(title: str, lines: Iterable[str]) -> None:
    print(f"\n{title}")
    for line in lines:
        print(line, flush=True)


if __name__ == "__main__":
    main()
