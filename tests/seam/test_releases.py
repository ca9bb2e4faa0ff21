"""Every report says so where torch is newer than all that memplan was run with."""

import pytest

from memplan.seam.releases import NEWEST_TRIED, TRIED, untried
from memplan.versions import at_least


@pytest.mark.parametrize("release", ["2.6.0", "2.13.0+cpu", "2.15.0", "2.15.3+cu132", "unknown"])
def test_what_was_tried_needs_no_word(release: str) -> None:
    assert untried(release) is None


@pytest.mark.parametrize("release", ["2.16.0", "2.16.0.dev20261101+cpu", "3.0.0", "2.100.1"])
def test_what_is_newer_is_an_assumption(release: str) -> None:
    sentence = untried(release)
    assert sentence is not None
    assert release in sentence


def test_the_newest_is_the_newest() -> None:
    assert all(at_least(NEWEST_TRIED, release) for release in TRIED)
    assert NEWEST_TRIED in TRIED
