"""The program of docs/metrics.md runs."""

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text("utf-8")


def test_the_program_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(program, "docs/metrics.md", "exec"), {})
    assert re.fullmatch(r"http://127.0.0.1:\d+/metrics and http://127.0.0.1:\d+/\n", capsys.readouterr().out)
