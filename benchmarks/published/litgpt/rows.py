"""The rows of ``measured.csv`` as cases."""

import csv
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

from published.case import Case, Excluded, Prediction
from published.litgpt.recipes import EXCLUDED, LABELLED_SHARDED, RECIPES, TRACED_TOKENS, Recipe

SOURCE = "litgpt resource tables and configuration hub"
_BENCHMARKS = Path(__file__).parents[2]
_ONE_GPU = ("labelled with four GPUs, run on one as its configuration says",)
_HALF_LAST_DIGIT = 5_000_000
"""Figures have two decimals of a gigabyte."""


def cases() -> tuple[list[Case], list[Excluded]]:
    """All rows of litgpt's: those that can be run, and the others with the reason; none without the data."""
    found: list[Case] = []
    excluded: list[Excluded] = []
    for identity, measured in figures().items():
        recipe = RECIPES.get(identity)
        if recipe is None:
            reason = EXCLUDED.get(identity, "no recipe")
            excluded.append(Excluded(id=identity, source=SOURCE, reason=reason))
        else:
            found.append(_case(identity, measured, recipe))
    return found, excluded


def figures() -> dict[str, int]:
    """Id → published bytes, from the figure as reported: ``peak_gib`` has been rounded once more."""
    folder = Path(os.environ.get("MEMPLAN_DATA", _BENCHMARKS.parents[1] / "shared" / "data"))
    path = folder / "measured" / "measured.csv"
    if not path.exists():
        return {}
    with path.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["id"].startswith("litgpt-")]
    return {row["id"]: _reported(row["notes"]) for row in rows}


def _reported(notes: str) -> int:
    """``… reported 3.78 GB …`` in bytes."""
    return round(float(notes.partition("reported ")[2].partition(" GB")[0]) * 1000) * 1_000_000


def _case(identity: str, measured: int, recipe: Recipe) -> Case:
    return Case(
        id=identity,
        source=SOURCE,
        workload=_workload(recipe),
        metric="allocated",
        measured=measured,
        resolution=_HALF_LAST_DIGIT,
        predict=partial(predict, recipe),
        assumptions=_assumptions(recipe) + (_ONE_GPU if identity in LABELLED_SHARDED else ()),
    )


def _workload(recipe: Recipe) -> str:
    if recipe.method == "generate":
        return "inference"
    if recipe.method == "full":
        return "full"
    return "qlora" if recipe.quantize else "lora"


def _assumptions(recipe: Recipe) -> tuple[str, ...]:
    if recipe.method == "generate":
        return ("the prompt has six tokens", f"tokens after the first {TRACED_TOKENS} repeat the last of them")
    if recipe.repeats_longest:
        return ("batches of the greatest length follow each other", "two micro-batches make an optimizer step")
    return ("only the first batch is long",)


def predict(recipe: Recipe) -> Prediction:
    """Run a recipe on fake tensors, in a process of its own: releases of one package cannot share one.

    Raises:
        RuntimeError: The packages are missing, or the run failed.
    """
    folder = os.environ.get("MEMPLAN_LITGPT")
    if folder is None:
        raise RuntimeError("MEMPLAN_LITGPT names no folder of packages; published/litgpt/__init__.py says which")
    paths = [Path(folder) / "base", Path(folder) / recipe.release, _BENCHMARKS, _BENCHMARKS.parent]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), "BITSANDBYTES_NOWELCOME": "1"}
    command = [sys.executable, "-m", "published.litgpt.child", json.dumps(recipe.as_dict())]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if result.returncode:
        raise RuntimeError(result.stderr.strip()[-2000:])
    # The packages print too, so the answer is the last line.
    return Prediction(**json.loads(result.stdout.strip().splitlines()[-1]))
