"""Fixtures of the CUDA-semantics tests."""

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def _no_collection() -> Iterator[None]:
    """Every fake world would begin with a full collection, which costs more than the tests."""
    gc.disable()
    yield
    gc.enable()
