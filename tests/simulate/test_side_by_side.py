"""Calls in processes of their own."""

import math
import operator
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from memplan.errors import MemplanError
from memplan.simulate.side_by_side import side_by_side

ROOT = Path(__file__).parents[2]


_CALLS = """
import signal, time
from memplan.simulate.side_by_side import side_by_side

signal.signal(signal.SIGINT, signal.default_int_handler)
side_by_side(time.sleep, [60, 60])
"""


def test_results_come_in_order_and_progress_counts():
    counts = []
    assert side_by_side(partial(operator.mul, 3), [4, 1, 2], done=counts.append) == (12, 3, 6)
    assert counts == [1, 2, 3]
    assert side_by_side(math.sqrt, []) == ()


def test_an_error_of_any_call_is_raised():
    with pytest.raises(MemplanError):
        side_by_side(math.sqrt, [4.0, -1.0])


def test_an_interrupt_does_not_wait_for_the_calls():
    """A shell's Ctrl-C reaches the parent alone; its children find it gone."""
    # Where the tests run in the background, a shell has them ignore the signal, and their children inherit that.
    with subprocess.Popen([sys.executable, "-c", _CALLS], cwd=ROOT, stderr=subprocess.DEVNULL) as process:
        try:
            time.sleep(2)
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=20) != 0
        finally:
            process.kill()
