"""What user code meets in the fake world."""

import warnings

import torch
from torch.utils import _device

from memplan.tracing.world import fake_world


def test_asking_for_alignment_warns_nobody() -> None:
    # transformers asks it of its experts' weights for torch up to 2.10.
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        with fake_world():
            aligned = torch.ones(2).data_ptr() % 16 == 0
    assert aligned
    assert heard == []


def test_torch_remembers_its_own_factories() -> None:
    # The first to ask may be inside; what stands in for ``torch.tensor`` there is not what modes are called with.
    original = torch.tensor
    _device._device_constructors.cache_clear()
    with fake_world():
        assert original in _device._device_constructors()
