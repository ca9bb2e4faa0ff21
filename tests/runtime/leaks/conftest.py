"""What tests of leaks share."""

import gc

import pytest

from memplan.runtime.leaks import detector


@pytest.fixture(autouse=True)
def searched_heap(small_heap: None, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain is searched among all that the collector knows, for as long as it takes on a busy machine.

    That is what the test made; but chains of modules' variables go through what was there before.
    """
    monkeypatch.setattr(detector, "SECONDS", 300.0)
    if request.path.stem == "test_chains":
        gc.unfreeze()
