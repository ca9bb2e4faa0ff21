"""Published instances, where they are at hand."""

import os
from pathlib import Path

import pytest

DATA = Path(os.environ.get("MEMPLAN_DATA", Path(__file__).parents[4].parent / "shared" / "data")) / "remat"


files = sorted(DATA.glob("*.json"))


needs_data = pytest.mark.skipif(not files, reason="no research data (MEMPLAN_DATA)")
