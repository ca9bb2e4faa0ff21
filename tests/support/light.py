"""Commands that must not import a heavy library, in a process where importing one fails."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.support.command import Done

ROOT = Path(__file__).parents[2]
HEAVY = frozenset({"torch", "transformers", "diffusers", "pulp", "highspy", "networkx", "numpy"})
FORBID = f"""
import importlib.abc, sys
class Forbid(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {sorted(HEAVY)}:
            raise AssertionError("imports " + name)
sys.meta_path.insert(0, Forbid())
"""
"""Begins a program. A command that ends well afterwards has not even tried."""

_RUN_ALL = """
import contextlib, io, json
from memplan.cli.app import main
done = []
for words in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(words)
    done.append({"returncode": code, "stdout": out.getvalue(), "stderr": err.getvalue()})
json.dump(done, sys.stdout)
"""


def light(*commands: Sequence[str]) -> list[Done]:
    """Run several commands, one after the other in one process.

    Args:
        commands: The words of each, without the program's name.

    Returns:
        How each ended.
    """
    run = subprocess.run(
        [sys.executable, "-c", FORBID + _RUN_ALL],
        input=json.dumps(commands),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return [Done(**done) for done in json.loads(run.stdout)]
