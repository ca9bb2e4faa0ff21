"""The page's code runs as it stands there, and the example does what its comments say."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[3]


def test_the_page_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/runtime-adaptive.md").read_text("utf-8"), re.DOTALL)
    assert len(blocks) == 4
    torch.manual_seed(0)
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)  # The asserts stand in the page.


@pytest.mark.slow
def test_the_example_survives_a_bad_moment() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples/adaptive_batch.py")],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert done.stdout.startswith("largest batch: 48 (optimal), tried [50, 49, 47, 48]\n")
    assert "step 10: loss" in done.stdout
    assert "micro-batches (12, 12, 12, 12), retries 2" in done.stdout
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", done.stdout)]
    assert losses[-1] < losses[0] / 10
