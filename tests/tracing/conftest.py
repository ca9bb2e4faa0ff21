"""What tests of traces share."""

import gc

import pytest


@pytest.fixture(autouse=True)
def no_collection(small_heap: None) -> None:
    """Traces run as they do in children of the command line: with the collector off.

    What is compiled gives the frozen heap back, and each further trace of a test would walk all of it.
    """
    gc.disable()
