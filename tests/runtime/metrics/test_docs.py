"""docs/metrics.md: its program runs, and its table has every metric."""

import re
from pathlib import Path

import pytest

from tests.runtime.metrics.exported import exported, rules

PAGE = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text("utf-8")


def test_the_program_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(program, "docs/metrics.md", "exec"), {})
    assert re.fullmatch(r"http://127.0.0.1:\d+/metrics and http://127.0.0.1:\d+/\n", capsys.readouterr().out)


def test_the_table_has_every_metric_and_no_other() -> None:
    told = set()
    for line in PAGE.split("| metric | is |")[1].split("\n\n")[0].splitlines()[2:]:
        names = re.findall(r"`(\w+)`", line.split("|")[1])
        for name in names:
            # ``_low_bytes`` after ``memplan_predicted_peak_bytes``, ``_requested_`` after ``memplan_torch_…_bytes``.
            stem = names[0].removesuffix("_bytes").removesuffix("_used" if name == "_total_bytes" else "_bytes")
            if name.startswith("memplan_"):
                told.add(name)
            elif name.endswith("_"):
                told.add(f"memplan_torch{name}bytes")
            elif "host_memory" in line and name == "_total_bytes":
                told.add("memplan_host_memory_total_bytes")
            else:
                told.add(stem + name)
    found = {re.sub(r"(_seconds)_(bucket|count|sum)$", r"\1", name) for name in exported()}
    assert told == found


def test_the_table_has_every_alert() -> None:
    assert {rule["alert"] for rule in rules()} == set(re.findall(r"`(Memplan\w+)`", PAGE))
