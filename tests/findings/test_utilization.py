"""How full a device may be is said once, and everybody who needs it says the same."""

import pytest

from memplan.cli.monitor import _thresholds
from memplan.errors import UsageError
from memplan.findings.utilization import DEFAULT, THRESHOLDS, Utilization
from memplan.project.values import headroom
from memplan.runtime.adaptive.controller import BatchPolicy
from memplan.runtime.adaptive.pressure import ReliefPolicy
from memplan.runtime.monitor.records import Thresholds


def test_the_presets_are_those_that_were_asked_for() -> None:
    shares = {name: (each.target, each.warn, each.critical, each.emergency) for name, each in THRESHOLDS.items()}
    assert shares == {
        "conservative": (0.85, 0.88, 0.92, 0.95),
        "balanced": (0.90, 0.92, 0.95, 0.97),
        "aggressive": (0.92, 0.94, 0.96, 0.98),
    }
    assert DEFAULT == "balanced"


def test_who_is_told_nothing_takes_the_default() -> None:
    default = THRESHOLDS[DEFAULT]
    levels = Thresholds()
    assert (levels.warning, levels.critical, levels.emergency) == (default.warn, default.critical, default.emergency)
    assert BatchPolicy(most=8).target == ReliefPolicy().use == default.target


@pytest.mark.parametrize("name", THRESHOLDS)
def test_monitor_and_gate_take_a_preset_by_its_name(name: Utilization) -> None:
    preset, levels = THRESHOLDS[name], _thresholds(name)
    assert (levels.warning, levels.critical, levels.emergency) == (preset.warn, preset.critical, preset.emergency)
    assert 1000 - headroom(name).of(1000) == round(1000 * preset.target)


def test_another_name_is_refused() -> None:
    with pytest.raises(UsageError, match="conservative, balanced, aggressive"):
        _thresholds("bold")
    with pytest.raises(ValueError, match="bold"):
        headroom("bold")
