"""How far over: the same figure in every report."""

import dataclasses

from memplan.measure.over import over
from memplan.measure.records import Verdict
from memplan.report.estimate.verdict import statement
from memplan.units import GIB
from tests.report.example_estimates import make_estimate


def test_the_peak_counts_and_its_upper_end_only_where_the_peak_is_within() -> None:
    assert over(5 * GIB, 6 * GIB, 4 * GIB) == "1.00 GiB over"
    assert over(5 * GIB, 6 * GIB, 5 * GIB) == "upper end 1.00 GiB over"
    assert over(5 * GIB, 6 * GIB, 6 * GIB) == ""


def test_a_tight_step_whose_peak_is_over_says_so() -> None:
    """A library can do without some of its work space: it fits, but not as it would like to run."""
    made = make_estimate()
    usable = made.gpu.usable_bytes
    peak = dataclasses.replace(made.peak, device_bytes=usable + GIB, high_bytes=usable + GIB)
    assert statement(dataclasses.replace(made, peak=peak, verdict=Verdict.TIGHT)) == "1.00 GiB over"


def test_a_tight_step_within_its_interval_says_why() -> None:
    """What is free would be no reason: a user saw 127 GiB free beside TIGHT, and nothing else."""
    made = make_estimate()
    usable = made.gpu.usable_bytes
    peak = dataclasses.replace(made.peak, device_bytes=usable - GIB, high_bytes=usable)
    assert statement(dataclasses.replace(made, peak=peak, verdict=Verdict.TIGHT)) == "fits if the cache is given back"
