"""The page's code runs, and says what the page says."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from memplan.cli.app import main
from memplan.runtime.meters import cpu
from tests.contract.goldens import obey

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _compiled() -> None:
    if not cpu.can_count():
        pytest.skip("no C++ compiler")


def run(words: list[str], folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_pages_code_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [code] = re.findall(r"```python\n(.*?)```", (ROOT / "docs/runtime-profile.md").read_text(), re.DOTALL)
    printed = run(["-c", code], tmp_path)
    assert [line.split("'")[-2] for line in printed.splitlines()] == ["training", "forward", "backward"]
    content = json.loads((tmp_path / "run.json").read_text())
    obey("profile", content)
    assert len(content["steps"]) == 3
    assert main(["report", str(tmp_path / "run.json")]) == 0
    assert "3 steps" in capsys.readouterr().out


@pytest.mark.slow
def test_the_example_lies_on_its_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example = str(ROOT / "examples/profile_training.py")
    plan, measured, compared = (str(tmp_path / name) for name in ("plan.json", "run.json", "compared.json"))
    options = ["--gpu", "cpu", "--batch-size", "8", "--timeline", "-f", f"json={plan}"]
    run(["-m", "memplan", "estimate", example, *options], tmp_path)
    run([example, measured], tmp_path)
    assert main(["report", measured, "--plan", plan, "-f", f"json={compared}"]) == 0
    content = json.loads(Path(compared).read_text())
    obey("profile", content)
    found = content["comparison"]
    events, peak = found["events"], found["measured_peak_bytes"]
    assert events["matched"] > 0.99 * max(events["predicted"], events["measured"])
    assert abs(found["predicted_peak_bytes"] - peak) <= 64
    assert abs(found["largest_deviation"]["bytes"]) <= 1024
    assert [piece["step"] for piece in found["pieces"]] == [0, 1, 2, 3]
    assert capsys.readouterr().err == ""
