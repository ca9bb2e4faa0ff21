"""The CUDA copier on a stand-in for ``torch.cuda`` that answers as the documentation says, and logs every call."""

from contextlib import contextmanager

import pytest
import torch

from memplan.runtime.pools.copiers import CudaCopier
from memplan.runtime.pools.staging import StagingPool, copier_of


class Stream:
    def __init__(self, log, name):
        self.log, self.name = log, name

    def wait_stream(self, other):
        self.log.append(f"{self.name} waits for {other.name}")

    def wait_event(self, event):
        self.log.append(f"{self.name} waits for the event on {event.on}")


class Event:
    def __init__(self, log):
        self.log, self.on = log, None

    def record(self, stream):
        self.on = stream.name
        self.log.append(f"event on {stream.name}")

    def query(self):
        return True

    def synchronize(self):
        self.log.append("host waits")


class Card(torch.Tensor):
    """A tensor that says that it is on a card."""

    is_cuda = True


@pytest.fixture
def log(monkeypatch):
    """What was told to which stream, in order."""
    calls, now = [], []
    real = torch.empty

    @contextmanager
    def stream(chosen):
        now.append(chosen)
        yield
        now.pop()

    def copy(target, source, non_blocking=False):
        calls.append(f"copy on {now[-1].name}, {'at once' if non_blocking else 'waiting'}")
        with torch._C.DisableTorchFunctionSubclass():
            return torch.Tensor.add_(target.zero_(), source)

    def empty(*shape, pin_memory=False, device=None, **options):
        calls.extend(["pinned"] if pin_memory else [])
        found = real(*shape, **options)
        return found.as_subclass(Card) if str(device).startswith("cuda") else found

    present = Stream(calls, "present")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: Stream(calls, f"own of {device}"))
    monkeypatch.setattr(torch.cuda, "Event", lambda: Event(calls))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: present)
    monkeypatch.setattr(torch.cuda, "stream", stream)
    monkeypatch.setattr(torch, "empty", empty)
    monkeypatch.setattr(torch.Tensor, "copy_", copy)
    monkeypatch.setattr(Card, "record_stream", lambda _, stream: calls.append(f"kept for {stream.name}"), raising=False)
    return calls


@pytest.mark.parametrize("device", [None, "cuda", "cuda:1"])
def test_the_device_is_the_one_in_use(log, device):
    copier = copier_of(device)
    assert isinstance(copier, CudaCopier)
    assert (copier.device, copier.is_pinned) == (torch.device("cuda:1"), True)


def test_out_on_a_stream_of_its_own_after_the_present_one(log):
    copier = copier_of("cuda:1")
    buffer = copier.buffer(16).view(torch.float32)
    event = copier.start(buffer, torch.arange(4.0).as_subclass(Card))
    assert buffer.tolist() == [0, 1, 2, 3]
    assert log == [
        "pinned",
        "own of cuda:1 waits for present",
        "copy on own of cuda:1, at once",
        "event on own of cuda:1",
        "kept for own of cuda:1",
    ]
    assert event.query()


def test_back_the_present_stream_waits_for_the_copy(log):
    copier = copier_of("cuda:1")
    target = torch.zeros(4).as_subclass(Card)
    copier.start(target, torch.arange(4.0))
    assert target.tolist() == [0, 1, 2, 3]
    assert log[-3:] == [
        "event on own of cuda:1",
        "kept for own of cuda:1",
        "present waits for the event on own of cuda:1",
    ]


def test_a_ring_through_it(log):
    ring = StagingPool(buffers=1, buffer_bytes=64)
    assert log == ["pinned"]
    staged = ring.offload(torch.arange(4.0).as_subclass(Card))
    staged.device = torch.device("cuda:1")
    assert staged.host().tolist() == [0, 1, 2, 3]
    assert log[-1] == "host waits"
    assert staged.bring_back().tolist() == [0, 1, 2, 3]
    assert log.count("copy on own of cuda:1, at once") == log.count("kept for own of cuda:1") == 2
    assert ring.statistics().is_pinned
