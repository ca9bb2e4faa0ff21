"""Calls in processes of their own."""

import math
import operator
import os
import signal
import subprocess
import sys
import time
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from memplan.errors import EstimateError
from memplan.job.isolate import run_isolated
from memplan.job.side_by_side import side_by_side

ROOT = Path(__file__).parents[2]


_CALLS = """
import signal, time
from functools import partial
from memplan.job.isolate import run_isolated
from memplan.job.side_by_side import side_by_side

signal.signal(signal.SIGINT, signal.default_int_handler)
side_by_side(partial(run_isolated, time.sleep, timeout=60), [60, 60])
"""


def test_results_come_in_order_and_progress_counts():
    running = []
    assert side_by_side(partial(operator.mul, 3), [4, 1, 2], told=running.append) == (12, 3, 6)
    assert len(running) == 3
    assert all(set(later) <= set(earlier) for earlier, later in pairwise([[4, 1, 2], *running]))
    assert side_by_side(math.sqrt, []) == ()


def test_an_error_of_any_call_is_raised_and_ends_the_others():
    def call(asked):
        return run_isolated(*asked, timeout=300)

    began = time.monotonic()
    with pytest.raises(EstimateError, match="exit code 7"):
        side_by_side(call, [(time.sleep, 200), (os._exit, 7)], at_once=2)
    assert time.monotonic() - began < 100


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
