"""The baseline under several processes at once: none loses what another has written."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from memplan.errors import UsageError
from memplan.gate.baseline import update
from memplan.gate.records import Row
from memplan.gate.saved import load_entries
from tests.report.example_estimates import FITS

ROOT = Path(__file__).parents[2]
PROCESSES, UPDATES = 3, 8
# Loads everything, says so, waits for the others, and then writes one row after the other.
PROGRAM = """
import sys
from pathlib import Path
from memplan.gate.baseline import update
from tests.gate.test_baseline import row
print("ready", flush=True)
sys.stdin.readline()
for number in range(int(sys.argv[3])):
    update(Path(sys.argv[1]), [row(f"{sys.argv[2]}-{number}")])
"""


def row(job: str) -> Row:
    return Row(
        job=job, gpu=FITS.gpu.name, outcome="passed", estimate=FITS, comparison=None, findings=(), limit=None,
        informational=False, cached=False,
    )  # fmt: skip


def test_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(path), f"process-{number}", str(UPDATES)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
        )
        for number in range(PROCESSES)
    ]  # fmt: skip
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        process.communicate(timeout=120)
        assert process.returncode == 0
    wanted = {f"process-{process}-{number}" for process in range(PROCESSES) for number in range(UPDATES)}
    assert {job for job, _ in load_entries(path)} == wanted
    assert [each.name for each in tmp_path.iterdir()] == ["baseline.json"]


def test_what_has_taken_its_place_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    path.write_text(json.dumps({"schema_version": "1.0", "command": "gate", "rows": []}))
    with pytest.raises(UsageError, match="it is not overwritten"):
        update(path, [row("a")])
