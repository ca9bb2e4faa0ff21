"""What docs/monitor.md says is so."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from memplan.findings.rules import MONITOR
from memplan.runtime.monitor.records import Thresholds

PAGE = (Path(__file__).parents[3] / "docs" / "monitor.md").read_text("utf-8")


def test_its_code_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    # The real one is in test_monitor.py, and takes seconds to import.
    library = SimpleNamespace(TrainerCallback=type("TrainerCallback", (), {}))
    monkeypatch.setattr("memplan.runtime.monitor.callbacks.transformers_library", lambda: library)
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(block, names)
    assert names["check"].step == 2


def test_its_thresholds_are_the_defaults() -> None:
    limits = Thresholds()
    assert (limits.warning, limits.critical, limits.emergency, limits.release) == (0.92, 0.95, 0.97, 0.02)
    assert (limits.fragmentation, limits.imbalance, limits.foreign, limits.steps_until_full) == (
        0.2,
        0.15,
        1 << 30,
        2000,
    )
    assert limits.warm_up == 5


def test_rules_say_what_to_do() -> None:
    for code, rule in MONITOR.items():
        assert rule.code == code
        assert rule.meaning.endswith(".")
        assert rule.remedy.endswith(".")
