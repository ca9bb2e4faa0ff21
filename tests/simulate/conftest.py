"""Lets these tests use the strategies of the replay tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "replay"))
