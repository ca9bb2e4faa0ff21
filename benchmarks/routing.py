"""Published peaks of mixtures of experts beside what memplan says of them however tokens are routed.

    python benchmarks/routing.py [--only ID …]

Prints what ``results/routing.txt`` holds: for each of Megatron-LM's goldens that has experts the peak, and the three
predictions. The one that counts in ``results/accuracy.txt`` is ``balanced``, as the recipes say; that was decided
before any error was looked at. ``published/megatron`` says what is needed.
"""

import argparse
import platform
import sys
import time
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path

# As a script, Python finds ``published`` beside it; memplan itself may be a checkout that is not installed.
sys.path.append(str(Path(__file__).parents[1]))

from published import megatron
from published.case import Case
from published.megatron.recipes import Recipe
from published.outcomes import Outcome, outcome_of

from memplan.tracing.routing import KINDS
from memplan.units import GIB

RESULTS = Path(__file__).parent / "results" / "routing.txt"
NAME = 95
"""Columns."""


def outcomes(case: Case, recipe: Recipe) -> list[Outcome]:
    """One for each way of routing, the mildest first."""
    recipes = (replace(recipe, routing=kind) for kind in KINDS)
    return [outcome_of(replace(case, predict=partial(megatron.predicted, each))) for each in recipes]


def line(case: Case, done: list[Outcome]) -> str:
    """Peaks in GiB, and how far off they are."""
    cells = (each.failure[:19] or f"{each.allocated / GIB:>9.3f}{each.error_percent:>+8.2f} %" for each in done)
    name = case.id.removeprefix(megatron.BEGINNING).removesuffix(megatron.END)
    return f"{name:<{NAME}}{case.measured / GIB:>9.3f}" + "".join(f"{cell:>21}" for cell in cells)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", help="these rows alone; nothing is written")
    options = parser.parse_args()
    lines = [
        f"{time.strftime('%Y-%m-%d')}, Python {platform.python_version()}, torch {version('torch')}",
        f"{'peak of allocated bytes, GiB':<{NAME}}{'measured':>9}" + "".join(f"{kind:>21}" for kind in KINDS),
    ]
    for case in megatron.cases()[0]:
        recipe = megatron.recipe_of(case.id)
        if recipe is None or recipe.expert_parallel == 1 or (options.only and case.id not in options.only):
            continue
        lines.append(line(case, outcomes(case, recipe)))
        print(lines[-1], file=sys.stderr, flush=True)
    text = "\n".join(lines) + "\n"
    if not options.only:
        RESULTS.write_text(text, encoding="utf-8")
    print(text, end="")


if __name__ == "__main__":
    main()
