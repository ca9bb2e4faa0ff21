"""What tests of leaks share."""

import gc
from collections.abc import Iterator

import pytest

from memplan.runtime.leaks import detector


@pytest.fixture(autouse=True)
def small_heap(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hide what other tests of the process left from the collector: a chain is searched among all it knows.

    Otherwise a search among a million objects takes minutes, and ends unsuccessfully after the seconds it may take.
    """
    monkeypatch.setattr(detector, "SECONDS", 300.0)
    gc.enable()  # Fixtures of others may have switched it off.
    gc.collect()
    # Chains of modules' variables go through what was there before.
    if request.path.stem != "test_chains":
        gc.freeze()
    yield
    gc.unfreeze()
