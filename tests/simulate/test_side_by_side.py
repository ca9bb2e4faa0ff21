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
    program = "import time; from memplan.simulate.side_by_side import side_by_side; side_by_side(time.sleep, [60, 60])"
    process = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stderr=subprocess.DEVNULL)
    time.sleep(2)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=20) != 0
