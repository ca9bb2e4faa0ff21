"""What tests of leaks share."""

import pytest

from memplan.runtime.leaks import detector


@pytest.fixture(autouse=True)
def untimed_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process with a million objects of other tests the search for a chain takes longer than users would wait."""
    monkeypatch.setattr(detector, "SECONDS", 300.0)
