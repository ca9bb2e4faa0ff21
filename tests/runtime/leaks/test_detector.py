"""The detector itself: when it looks, what it leaves alone, and what it counts."""

import gc
import weakref
from collections import deque
from collections.abc import Iterator
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import _get_current_dispatch_mode

from memplan.errors import UsageError
from memplan.runtime.leaks import sources
from memplan.runtime.leaks.detector import GRACE, SAMPLE, LeakDetector
from memplan.runtime.leaks.records import Growing, Outcome, Steady, TooShort
from memplan.runtime.leaks.trend import PATIENCE
from memplan.runtime.meters import cpu
from tests.runtime.leaks.programs import Trainer

REPORTED = PATIENCE + SAMPLE + GRACE


@pytest.fixture(autouse=True)
def _counted() -> Iterator[None]:
    if not cpu.can_count():
        pytest.skip("no C++ compiler")
    gc.collect()
    yield
    assert not cpu.is_counting()
    assert _get_current_dispatch_mode() is None


def test_a_leak_of_every_tenth_step_is_seen() -> None:
    kept = []
    with LeakDetector("cpu") as detector:
        for step in range(3 * PATIENCE):
            if step % 10 == 0:
                kept.append(torch.zeros(1000))
            detector.step()
    [report] = detector.leaks
    assert report.sampled_steps >= 40
    assert report.growth is not None
    assert report.growth.rate == pytest.approx(400, rel=0.1)
    assert report.explained == pytest.approx(400, rel=0.3)
    assert report.codes == ("ML004",)


def test_a_leak_beside_a_buffer_that_fills_is_still_one() -> None:
    buffer, kept = deque(maxlen=10_000), []
    with LeakDetector("cpu") as detector:
        for _ in range(REPORTED):
            buffer.append(torch.zeros(100_000))
            kept.append(torch.zeros(10))
            detector.step()
    [report] = detector.reports
    assert report.outcome is Outcome.LEAK
    assert [(site.leaks, site.bytes_per_step) for site in report.sites] == [(True, 40.0), (False, 400_000.0)]


def test_what_is_meant_to_grow_can_be_named() -> None:
    kept = []
    with LeakDetector("cpu", ignore=(".kept[",)) as detector:
        for _ in range(REPORTED):
            kept.append(torch.zeros(10))
            detector.step()
    [report] = detector.reports
    assert report.outcome is Outcome.FILLING
    assert not detector.leaks


def test_cycles_that_the_collector_leaves_for_long_are_told_apart() -> None:
    thresholds = gc.get_threshold()
    gc.set_threshold(1_000_000)
    try:
        with LeakDetector("cpu") as detector:
            for _ in range(REPORTED):
                Trainer(torch.zeros(1000))
                detector.step()
    finally:
        gc.set_threshold(*thresholds)
    [report] = detector.reports
    assert (report.outcome, report.codes) == (Outcome.CYCLES, ("ML005",))
    assert report.sites[0].collected
    assert report.sites[0].chain.cycle == ("Trainer", "method", "Trainer")


def test_other_peoples_views_that_autograd_refuses_to_ask_are_passed_over() -> None:
    base = torch.zeros(4, requires_grad=True) * 1
    view, _ = base.unbind()[:2]
    base.add_(1)
    with pytest.raises(RuntimeError, match="modified inplace"):
        _ = view.is_leaf
    kept = []
    with LeakDetector("cpu") as detector:
        for _ in range(REPORTED):
            kept.append(torch.zeros(10))
            detector.step()
    assert detector.reports[0].codes == ("ML004",)


def test_tensors_from_outside_of_torch_are_seen_when_they_are_used() -> None:
    kept = []
    with LeakDetector("cpu") as detector:
        detector.investigate(3)
        for _ in range(3 + GRACE):
            kept.append(torch.from_numpy(np.zeros(10)))
            kept[-1] + 1
            detector.step()
    [report] = detector.reports
    assert report.outcome is Outcome.STEADY  # Nothing grows yet: too short to say.
    [site] = report.sites
    assert (site.op, site.storages, site.nbytes) == ("outside of torch's ops", 3, 240)


def test_on_demand_something_that_stays_is_shown_and_not_called_a_leak() -> None:
    kept = []
    with LeakDetector("cpu") as detector:
        detector.investigate()
        for _ in range(SAMPLE + GRACE):
            kept.append(torch.zeros(4))
            detector.step()
    [report] = detector.reports
    assert (report.outcome, report.codes, report.growth) == (Outcome.STEADY, (), None)
    assert [str(site.chain) for site in report.sites] == [
        "test_on_demand_something_that_stays_is_shown_and_not_called_a_leak.kept[2]"
    ]


def test_the_detector_keeps_nothing_itself() -> None:
    class Watched:
        """Can be referred to weakly."""

        def __init__(self) -> None:
            self.tensor = torch.zeros(10)

    gone: list[weakref.ref[Watched]] = []
    kept = []
    with LeakDetector("cpu") as detector:
        for _ in range(REPORTED):
            each = Watched()
            kept.append(each)
            gone.append(weakref.ref(each))
            detector.step()
        assert len(detector.reports) == 1
        gc.disable()
        try:
            del each
            kept.clear()
            assert not any(one() for one in gone)
        finally:
            gc.enable()


def trained(detector: LeakDetector | None) -> list[torch.Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.5), nn.GELU(), nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(12):
        optimizer.zero_grad()
        for _ in range(2):
            model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
        if detector is not None:
            detector.step()
    return [each.detach().clone() for each in model.parameters()]


def test_sampled_steps_compute_the_same_bit_for_bit() -> None:
    alone = trained(None)
    with LeakDetector("cpu") as detector:
        detector.investigate(8)
        seen = trained(detector)
    assert all(torch.equal(a, b) for a, b in zip(alone, seen, strict=True))


def test_an_error_in_a_sampled_step_leaves_no_mode_behind() -> None:
    detector = LeakDetector("cpu")

    def fails() -> None:
        with detector:
            detector.investigate()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    torch.zeros(1)


def test_reports_are_handed_over() -> None:
    got, kept = [], []
    with LeakDetector("cpu", on_report=got.append) as detector:
        for _ in range(REPORTED):
            kept.append(torch.zeros(4))
            detector.step()
    assert got == detector.reports
    assert len(got) == 1


def test_later_looks_are_rare() -> None:
    kept = []
    with LeakDetector("cpu", patience=30) as detector:
        for _ in range(250):
            kept.append(torch.zeros(4))
            detector.step()
    steps = [report.step for report in detector.reports]
    assert 2 <= len(steps) <= 4
    assert all(later >= 2 * step for step, later in pairwise(steps))


def test_resident_memory_is_the_last_resort(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "can_count", lambda: False)
    kept: list[torch.Tensor] = []
    monkeypatch.setattr(sources, "host_reading", lambda: SimpleNamespace(resident=sum(each.nbytes for each in kept)))
    with LeakDetector() as detector:
        for _ in range(REPORTED):
            kept.append(torch.ones(1 << 10))
            detector.step()
    [report] = detector.leaks
    assert report.source == "resident"
    assert report.count is None
    assert report.growth is not None
    assert report.growth.rate == pytest.approx(4096)
    assert isinstance(detector.count_verdict, TooShort)


class Card:
    """Answers ``torch.cuda.memory_stats``: allocated bytes grow or not, reserved ones likewise."""

    def __init__(self, leak: int, spread: int) -> None:
        self.leak, self.spread, self.reads = leak, spread, 0

    def memory_stats(self, index: int) -> dict[str, int]:
        assert index == 1
        self.reads += 1
        return {
            "allocated_bytes.all.current": 10_000 + self.leak * self.reads,
            "allocation.all.current": 10 + (self.reads if self.leak else 0),
            "reserved_bytes.all.current": 1 << 21 << (self.spread and self.reads // 8),
        }


@pytest.mark.parametrize(("leak", "spread"), [(512, 0), (0, 1), (0, 0)])
def test_a_cards_counters_are_judged(leak: int, spread: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "memory_stats", Card(leak, spread).memory_stats)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    with LeakDetector() as detector:
        for _ in range(240):
            detector.step()
    assert isinstance(detector.verdict, Growing if leak else Steady)
    assert detector.fragmenting is bool(spread)
    assert [(each.outcome, each.codes, each.source) for each in detector.reports] == [
        (Outcome.LEAK, ("ML016",), "cuda:1")  # No tensor is to be found on a card that is not there.
    ] * bool(leak)


@pytest.mark.parametrize("device", ["gpu", "cuda:x", "cuda:"])
def test_devices_that_are_none(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    if device == "cuda:":
        assert LeakDetector(device)._source.name == "cuda:0"
        return
    with pytest.raises(UsageError, match="nothing to count"):
        LeakDetector(device)


def test_patience_has_a_least() -> None:
    with pytest.raises(UsageError, match="too short to judge"):
        LeakDetector("cpu", patience=29)
