"""The same limits as tests, by memplan's pytest plugin (`pytest` in this folder)."""

import pytest


@pytest.mark.limit_gpu_memory("13 GiB", gpu="l4", target="train.py:small", batch_size=12, precision="bf16-mixed")
def test_small_leaves_room_on_an_l4():
    """Nothing to do here: the marker estimates its target and fails the test where it needs more."""


@pytest.mark.parametrize("batch_size", [2, 4])
@pytest.mark.limit_gpu_memory("20 GiB", gpu="l4")
def test_medium_fits(memplan_estimate, batch_size):
    estimate = memplan_estimate("train.py:medium", batch_size=batch_size, precision="bf16-mixed")
    assert estimate.peak.phase in ("backward", "optimizer")
