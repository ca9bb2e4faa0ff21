"""``benchmarks/checkpointing.py --models``: one small cell from plan to table."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
SCRIPT = """
import sys
from pathlib import Path
import checkpoint_models, checkpoint_table
model = checkpoint_models.Model(name="gpt2", folder="zoo", batch_size=2)
checkpoint_models.MODELS = checkpoint_table.MODELS = (model,)
checkpoint_models.SHARES = (60,)
checkpoint_models.run((), ("ilp", "selective"), Path(sys.argv[1]))
rows = checkpoint_models.read(Path(sys.argv[1]))
print("BEGIN")
for line in checkpoint_table.lines(rows):
    print(line)
"""


@pytest.mark.slow
def test_a_plan_is_made_run_and_told_and_not_run_again(tmp_path: Path) -> None:
    results = tmp_path / "results.csv"
    first = _told(results)
    stamp = results.read_bytes()
    ways = {line.split()[0]: line for line in first if line.startswith(("none", "ilp", "selective"))}
    assert set(ways) == {"none", "ilp", "selective"}
    assert " yes " in ways["ilp"]
    assert sum(line.endswith(": yes") for line in first) == 4
    assert _told(results) == first
    assert results.read_bytes() == stamp


def _told(results: Path) -> list[str]:
    path = os.pathsep.join([str(ROOT / "benchmarks"), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(results)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.partition("BEGIN\n")[2].splitlines()
