"""What a replay needs of an allocator, and the one that a policy asks for."""

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from memplan.replay.blocks import Block
from memplan.replay.caching import CachingAllocator
from memplan.replay.cpu import NoCaching, PlainAllocator
from memplan.replay.expandable import ExpandableAllocator
from memplan.replay.observer import Observer
from memplan.replay.pinned import PinnedAllocator
from memplan.replay.policy import AllocatorPolicy, PinnedPolicy
from memplan.replay.records import OutOfMemory, Request

Policy = AllocatorPolicy | PinnedPolicy | NoCaching
"""How a device hands out memory."""


class Allocator(Protocol):
    """What a replay needs of an allocator. One that is no ``StreamAllocator`` is not told of the other requests."""

    observers: Sequence[Observer]

    @property
    def failure(self) -> OutOfMemory | None:
        """Why the last ``allocate`` returned None."""

    @property
    def requested(self) -> int:
        """Bytes asked for and alive."""

    @property
    def allocated(self) -> int:
        """Bytes in live blocks."""

    @property
    def reserved(self) -> int:
        """Bytes in segments."""

    @property
    def segments(self) -> int:
        """Number of segments."""

    @property
    def retries(self) -> int:
        """Times that all cached memory was released to serve one request."""

    def allocate(self, nbytes: int, stream: int) -> Block | None:
        """Serve a request; None, with ``failure`` set, if that is impossible."""

    def free(self, block: Block) -> None:
        """Take a live block back."""

    def fingerprint(self, live: Mapping[int, Block]) -> tuple[object, ...]:
        """What decides its future, with the live blocks that will be freed by name."""


@runtime_checkable
class StreamAllocator(Allocator, Protocol):
    """An allocator that knows streams and pools."""

    pending: int

    def perform(self, request: Request, block: Block | None) -> None:
        """Serve a request other than an allocation or a free; ``block`` is the live one that it names, if any."""


def make_allocator(policy: Policy, *, limit_bytes: int | None = None, device_bytes: int | None = None) -> Allocator:
    """An empty allocator.

    ``limit_bytes`` is what the device can give it in all; None: no limit. ``device_bytes`` is the device's total
    memory, where that differs: the CUDA context takes some.
    """
    if isinstance(policy, NoCaching):
        return PlainAllocator(limit_bytes=limit_bytes)
    if isinstance(policy, PinnedPolicy):
        return PinnedAllocator(policy, limit_bytes=limit_bytes)
    return make_caching(policy, limit_bytes=limit_bytes, device_bytes=device_bytes)


def make_caching(
    policy: AllocatorPolicy, *, limit_bytes: int | None = None, device_bytes: int | None = None
) -> CachingAllocator:
    """An empty caching allocator of the kind that its options ask for; arguments as for ``make_allocator``."""
    kind = ExpandableAllocator if policy.expandable_segments else CachingAllocator
    return kind(policy, limit_bytes=limit_bytes, device_bytes=device_bytes)
