"""What tests of traces share."""

import gc
from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def no_collection(small_heap: None) -> None:
    """Traces run as they do in children of the command line: with the collector off.

    What is compiled gives the frozen heap back, and each further trace of a test would walk all of it.
    """
    gc.disable()


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Kernels run as their rules are stated: what several threads of oneDNN take beside each other is not known."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
