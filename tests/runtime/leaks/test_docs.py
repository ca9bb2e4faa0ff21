"""The page's code runs, and its example says what the page shows."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from memplan.runtime.leaks import detector, trend
from memplan.runtime.leaks.records import Outcome
from memplan.runtime.meters import cpu

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/runtime-leaks.md").read_text()


def test_the_code_runs(capsys: pytest.CaptureFixture[str]) -> None:
    [code] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    kept: list[torch.Tensor] = []
    exec(code, {"batches": range(120), "train": lambda batch: kept.append(torch.ones(100) * batch)})
    if cpu.can_count():
        assert "ML004    a container of tensors grows" in capsys.readouterr().out


@pytest.mark.slow
def test_the_example_finds_its_leak() -> None:
    if not cpu.can_count():
        pytest.skip("no C++ compiler")
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples/find_leak.py")],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    [shown] = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    assert shown in done.stdout
    assert done.stdout.startswith("leak: ")
    assert "kept by main.recent[92], which takes 500 at most" in done.stdout


def test_the_page_has_the_outcomes_and_constants_of_the_code() -> None:
    assert set(re.findall(r"^\| `([a-z ]+)` \|", PAGE, re.MULTILINE)) == set(Outcome)
    assert f"must last {trend.PATIENCE} steps" in PAGE
    assert f"{100 * trend.FALSE_ALARMS} % a judgement" in PAGE
    assert f"({detector.SAMPLE}, or up to {detector.MOST_SAMPLED} where" in PAGE
    assert detector.GRACE == 20
    assert f"{trend.ROOM:,} bins" in PAGE
