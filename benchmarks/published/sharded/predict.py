"""How a row is predicted: carried over from ``accuracy.csv``, or traced in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

from published import outcomes
from published.sharded.peers import formulas
from published.sharded.records import Outcome, Peaks, Row
from published.torchtitan.recipes import RECIPES

BENCHMARKS = Path(__file__).parents[2]
TIMEOUT = 1800.0
"""Seconds for one run."""
OLD_TORCH, PACKAGES = "MEMPLAN_TORCH_2_6", "MEMPLAN_TORCHTITAN"
"""Environment variables: an interpreter, and a folder (``published/torchtitan``)."""

READING = "no_precompute_for_backward, torchao's advice where layers are checkpointed"


def outcome_of(row: Row) -> Outcome:
    """Predict a row. What goes wrong becomes its failure: one row must not cost the others."""
    if row.reason:
        return Outcome(row=row)
    try:
        peers = formulas(row.id, row.ranks)
        if row.id not in RECIPES:
            return Outcome(row=row, peaks=_carried(row), peers=peers, carried=True)
        python = os.environ.get(OLD_TORCH, sys.executable)
        peaks = _child(python, "child", row.id)
        if RECIPES[row.id].float8:
            # torchao of that time wants a torch of that time, and the tracker would really launch its kernels.
            return Outcome(
                row=row, peaks=peaks, peers=peers, others={READING: _child(python, "child", row.id, "--other")}
            )
        peers["fsdp_mem_tracker"] = _child(sys.executable, "tracker", row.id).allocated
        recent = _child(sys.executable, "child", row.id)
        return Outcome(row=row, peaks=peaks, peers=peers, others={f"torch {recent.torch}": recent})
    except (LookupError, RuntimeError, subprocess.TimeoutExpired) as error:
        return Outcome(row=row, failure=f"{type(error).__name__}: {' '.join(str(error).split())[-300:]}")


def _carried(row: Row) -> Peaks:
    done = outcomes.read(BENCHMARKS / "results" / "accuracy.csv")[row.id]
    if done.failed:
        raise RuntimeError(done.failure)
    return Peaks(allocated=done.allocated, reserved=done.reserved, torch=done.torch)


def _child(python: str, module: str, identity: str, *options: str) -> Peaks:
    """Run a module of ``published.torchtitan``: its release of torch cannot share this process."""
    paths = [BENCHMARKS.parent, BENCHMARKS]
    if RECIPES[identity].float8:
        if PACKAGES not in os.environ:
            raise RuntimeError(f"{PACKAGES} names no folder of packages; published/torchtitan/__init__.py says which")
        paths.append(Path(os.environ[PACKAGES]))
    result = subprocess.run(
        [python, "-m", f"published.torchtitan.{module}", identity, *options],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))},
        capture_output=True, text=True, check=False, timeout=TIMEOUT,
    )  # fmt: skip
    if result.returncode:
        raise RuntimeError(result.stderr.strip()[-2000:])
    # Packages print too, so the answer is the last line.
    return Peaks(**json.loads(result.stdout.strip().splitlines()[-1]))
