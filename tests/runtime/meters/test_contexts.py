"""A rank reads its own card: to ask the driver about another would create a context there."""

import pytest
import torch

from memplan.runtime.meters import cuda
from memplan.runtime.meters.read import read
from tests.runtime.monitor.readings import card


def test_cards_without_a_context_of_this_process_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "device_count", lambda: 4)
    monkeypatch.setattr(cuda, "cuda_reading", card)
    monkeypatch.setattr(torch._C, "_cuda_hasPrimaryContext", lambda index: index == 2, raising=False)
    assert [device.device for device in read().devices] == ["cuda:2"]
