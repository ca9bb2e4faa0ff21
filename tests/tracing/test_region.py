"""A compiled region runs as eager code where a compiler refuses it, and not where torch lacks what memplan rests on."""

import importlib
from types import SimpleNamespace
from typing import Any

import pytest

from memplan.seam.find import SeamError

# Of Inductor, when it is imported.
pytestmark = pytest.mark.filterwarnings("ignore:.*script_method. is deprecated:DeprecationWarning")


def compiled(monkeypatch: pytest.MonkeyPatch, error: Exception, notes: list[str]) -> Any:
    region = importlib.import_module("memplan.tracing.inductor.region")

    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr(region, "_code", refuse)
    recorder: Any = SimpleNamespace(references=SimpleNamespace(default_place="host"), device=None)
    taken: Any = None
    regions = region.Regions(recorder, notes.append, refuse)
    return regions._compile(test_what_a_compiler_refuses_runs_as_eager_code, taken)


def test_what_a_compiler_refuses_runs_as_eager_code(monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[str] = []
    assert compiled(monkeypatch, ValueError("no"), notes) is None
    assert len(notes) == 1


def test_what_torch_lacks_ends_the_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[str] = []
    with pytest.raises(SeamError, match="renamed"):
        compiled(monkeypatch, SeamError("torch has no renamed"), notes)
    assert notes == []
