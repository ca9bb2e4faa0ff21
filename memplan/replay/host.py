"""Host memory that a trace's steps need: pageable tensors to the byte, pinned ones as torch's own allocator rounds."""

from memplan.replay.blocks import Block
from memplan.replay.pinned import PinnedAllocator
from memplan.replay.policy import PinnedPolicy
from memplan.tracing.records import Event, Trace
from memplan.units import Bytes, StorageId


def host_peak(trace: Trace) -> Bytes:
    """Most host memory that tensors take at once from the first step on; what only set-up needs does not count.

    On the CPU all memory is the device's, and none the host's. The allocator of pinned memory keeps what it frees: all
    that it ever asked for counts.
    """
    pinned, blocks = PinnedAllocator(PinnedPolicy()), dict[StorageId, Block]()
    pageable = most = 0
    first = trace.steps[0].first_event if trace.steps else len(trace.events)
    for index, event in enumerate(trace.events):
        storage = trace.storages[event.storage]
        if storage.place == "host":
            pageable += storage.nbytes if event.action == "alloc" else -storage.nbytes
        elif storage.place == "pinned":
            _pin(pinned, blocks, event, storage.nbytes)
        if index >= first:
            most = max(most, pageable + pinned.reserved)
    return Bytes(most)


def _pin(pinned: PinnedAllocator, blocks: dict[StorageId, Block], event: Event, nbytes: int) -> None:
    if event.action == "free":
        pinned.free(blocks.pop(event.storage))
        return
    block = pinned.allocate(nbytes, 0)
    assert block is not None  # noqa: S101 - without a limit nothing fails; this tells mypy.
    blocks[event.storage] = block
