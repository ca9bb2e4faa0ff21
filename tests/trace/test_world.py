"""What user code meets in the fake world."""

import warnings

import torch

from memplan.trace.world import fake_world


def test_asking_for_alignment_warns_nobody() -> None:
    # transformers asks it of its experts' weights for torch up to 2.10.
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        with fake_world():
            aligned = torch.ones(2).data_ptr() % 16 == 0
    assert aligned
    assert heard == []
