"""What these tests share."""

import pytest

from memplan.hardware.catalog import load_profile
from memplan.hardware.profile import GpuProfile


@pytest.fixture
def profile_of_80_gb() -> GpuProfile:
    return load_profile("h100-80g")
