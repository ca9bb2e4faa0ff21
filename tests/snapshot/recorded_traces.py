"""Traces for tests of recordings: any stream of requests as a trace, and a small real step."""

import dataclasses

import torch

from memplan.lifetime.build import build_lifetimes
from memplan.lifetime.records import Lifetimes
from memplan.replay.allocator import make_allocator
from memplan.replay.cpu import NoCaching
from memplan.replay.policy import AllocatorPolicy
from memplan.replay.records import Request
from memplan.replay.script import ReplayScript
from memplan.replay.stream import RequestStream
from memplan.snapshot.recording import DeviceRates, EventWriter
from memplan.snapshot.records import Snapshot
from memplan.tracing.records import DeviceTraits, Event, Op, Storage, Trace
from tests.tracing.jobs import source, trace

A100 = DeviceTraits(kind="cuda")


def lifetimes_of(requests: list[Request]) -> Lifetimes:
    """A trace that makes just these requests, every one during an op of its own."""
    sizes = {request.key: request for request in requests if request.action == "alloc"}
    # Storages are known by their position: keys of a stream are numbered in order of birth.
    assert list(sizes) == list(range(len(sizes)))
    births = {request.key: index for index, request in enumerate(requests) if request.action == "alloc"}
    storages = tuple(
        Storage(
            id=key,
            nbytes=request.nbytes,
            place="device",
            role="intermediate",
            birth=births[key],
            name="",
            stream=request.stream,
        )
        for key, request in sizes.items()
    )
    ops = tuple(
        Op(
            index=index,
            name="aten.mm.default",
            phase="forward",
            module=f"blocks.{index % 3}",
            source=f"net.py:{index}",
            flops=0,
            bytes_moved=1_000_000,
            reads=(),
            writes=(),
        )
        for index in range(len(requests))
    )
    events = tuple(Event(request.action, request.key, index) for index, request in enumerate(requests))
    parts = {"ops": ops, "storages": storages, "events": events, "steps": ()}
    return build_lifetimes(Trace(**{field.name: parts.get(field.name) for field in dataclasses.fields(Trace)}))


def record(
    lifetimes: Lifetimes,
    stream: RequestStream,
    *,
    policy: AllocatorPolicy | NoCaching,
    repetitions: int = 1,
    limit_bytes: int | None = None,
    rates: DeviceRates | None = None,
) -> Snapshot:
    """Play a trace's allocations to an empty device and write every event down."""
    script = ReplayScript(lifetimes, stream, repetitions)
    recorder = EventWriter(script, rates)
    return recorder.snapshot(
        script.play(make_allocator(policy, limit_bytes=limit_bytes), (recorder,)), policy, limit_bytes
    )


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(256, 1024)
        self.down = torch.nn.Linear(1024, 256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.up(x).relu())


def small_step(device: DeviceTraits = A100) -> Lifetimes:
    """A few training steps of two linear layers."""
    given = source(Net, lambda size: torch.randn(size, 256), loss=lambda output, batch: output.square().mean())
    return build_lifetimes(trace(given, device, batch_size=2048))
