"""A sample of ``benchmarks/seam_mutations.py``: no name that is taken away changes figures without a word."""

import pytest

from tests.support.benchmarks import benchmark

SHARE = 40
"""Of a job's names, each of so many."""


@pytest.mark.slow
@pytest.mark.parametrize("job", ["autocast", "lstm"])
def test_no_name_is_missed_in_silence(job: str) -> None:
    module = benchmark("seam_mutations")
    (chosen,) = (each for each in module.JOBS if each.name == job)
    counts = module.in_child(lambda: module.run(chosen, every=SHARE))
    assert counts["loud"] >= 5
    assert counts["SILENT"] == 0
