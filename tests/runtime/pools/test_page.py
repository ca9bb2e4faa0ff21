"""The code of the page runs."""

import re
from pathlib import Path

import pytest

from memplan.runtime.pools.records import PoolStatistics, TimeHistogram

PAGE = Path(__file__).parents[3] / "docs" / "runtime-pools.md"
CODE = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)


def test_the_code_of_the_page_runs():
    names = {}
    for code in CODE:
        exec(code, names)
    assert len(CODE) == 3


def test_the_fragmentation_of_a_pool_that_did_nothing():
    times = TimeHistogram(bounds=(), counts=(0,), sum=0.0)
    fields = {name: 0 for name in PoolStatistics.__slots__ if name != "take_seconds"}
    empty = PoolStatistics(**fields, take_seconds=times)
    assert empty.fragmentation == 0
    half = PoolStatistics(**{**fields, "peak_in_use_bytes": 6, "peak_held_bytes": 8}, take_seconds=times)
    assert half.fragmentation == pytest.approx(0.25)
