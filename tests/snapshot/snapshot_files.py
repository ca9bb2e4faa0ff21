"""Snapshots as PyTorch would write them, and where real ones are."""

import os
import pickle
from pathlib import Path

import pytest

from memplan.replay.caching import CachingAllocator
from memplan.replay.expandable import ExpandableAllocator
from memplan.replay.policy import AllocatorPolicy
from memplan.replay.records import Request
from memplan.units import MIB

DATA = Path(os.environ.get("MEMPLAN_DATA", Path(__file__).parents[2].parent / "shared" / "data")) / "snapshots"
real_files = sorted(DATA.glob("*.pickle"))
needs_data = pytest.mark.skipif(not real_files, reason="no research data (MEMPLAN_DATA)")


def event(action, addr, size, stream=0):
    return {"action": action, "addr": addr, "size": size, "stream": stream, "time_us": 1, "frames": []}


def write(folder, content, protocol=4):
    path = folder / "snapshot.pickle"
    path.write_bytes(content if isinstance(content, bytes) else pickle.dumps(content, protocol=protocol))
    return path


def snapshot_of(stream, recorded_from=None, watch=lambda allocator: None, pools=lambda key: 0):
    """What PyTorch would write after a stream: history from an index on, or of the second half, and state at the end.

    ``watch`` sees the allocator when the history begins and after every event of it; ``pools`` tells the private pool
    of each allocation.
    """
    begin = len(stream) // 2 if recorded_from is None else recorded_from
    addresses = []

    def place(nbytes):
        # Downwards with holes, unlike the model's own choice.
        addresses.append((1 << 40) - 1000 * MIB * (len(addresses) + 1))
        opened.append((addresses[-1], nbytes))
        return addresses[-1]

    opened, live, trace = [], {}, []
    allocator = CachingAllocator(AllocatorPolicy(), place=place)
    for index, request in enumerate(stream):
        if index == begin:
            watch(allocator)
        if request.action == "alloc":
            opened.clear()
            pool = pools(request.key)
            if pool:
                allocator.perform(Request("pool_begin", pool, 0, 0), None)
            block = live[request.key] = allocator.allocate(request.nbytes, request.stream)
            if pool:
                allocator.perform(Request("pool_end", pool, 0, 0), None)
            lines = [event("segment_alloc", *segment, request.stream) for segment in opened]
            lines.append(event("alloc", block.address, request.nbytes, request.stream))
        else:
            block = live.pop(request.key)
            names = ("free_requested", "free_completed")
            lines = [event(name, block.address, block.requested, block.pool.stream) for name in names]
            allocator.free(block)
        if index >= begin:
            trace += lines
            watch(allocator)
    return {"segments": [written(segment) for segment in allocator.layout().segments], "device_traces": [trace]}


def written(segment):
    return {
        "device": 0,
        "address": segment.address,
        "total_size": segment.size,
        "stream": segment.stream,
        "segment_type": "small" if segment.small else "large",
        "allocated_size": sum(b.size for b in segment.blocks if b.state != "free"),
        "active_size": sum(b.size for b in segment.blocks if b.state != "free"),
        "requested_size": sum(b.requested for b in segment.blocks),
        "is_expandable": False,
        "segment_pool_id": (0, segment.pool),
        "blocks": [
            {
                "address": b.address,
                "size": b.size,
                "requested_size": b.requested,
                "state": "inactive" if b.state == "free" else "active_allocated",
            }
            for b in segment.blocks
        ],
    }


class Recorder(ExpandableAllocator):
    """An allocator with expandable segments that writes down what it maps and unmaps."""

    def __init__(self, policy, **options):
        super().__init__(policy, **options)
        self.lines = []

    def _map(self, block, size):
        start, before, stream = block.address, self.reserved, block.pool.stream
        grown = super()._map(block, size)
        if grown is not None:
            self.lines.append(event("segment_map", start, self.reserved - before, stream))
        return grown

    def _unmap(self, block):
        before, stream = {part.address for part in unmapped(self, block.pool)}, block.pool.stream
        reserved = self.reserved
        extents = {part.address: part.size for part in unmapped(self, block.pool)}
        left = super()._unmap(block)
        if self.reserved < reserved:
            # What was unmapped before lies at the ends of what is unmapped together with it.
            start = left.address + (extents[left.address] if left.address in before else 0)
            self.lines.append(event("segment_unmap", start, reserved - self.reserved, stream))
        return left


def unmapped(allocator, pool):
    return allocator._unmapped[pool]


def expandable_snapshot_of(stream, flushes=()):
    """Likewise with expandable segments, each far from the others; caches are emptied before some requests."""
    spaces = []

    def place(nbytes):
        spaces.append(nbytes)
        return (1 << 43) + len(spaces) * (1 << 44) + 2 * len(spaces) * MIB

    live, trace = {}, []
    allocator = Recorder(AllocatorPolicy(expandable_segments=True), place=place)
    for index, request in enumerate(stream):
        allocator.lines = []
        if index in flushes:
            allocator.empty_cache()
        if request.action == "alloc":
            block = live[request.key] = allocator.allocate(request.nbytes, request.stream)
            lines = [*allocator.lines, event("alloc", block.address, request.nbytes, request.stream)]
        else:
            block = live.pop(request.key)
            names = ("free_requested", "free_completed")
            lines = [*allocator.lines, *(event(n, block.address, block.requested, block.pool.stream) for n in names)]
            allocator.free(block)
        trace += lines if index >= len(stream) // 2 else []
    segments = [{**written(segment), "is_expandable": True} for segment in allocator.layout().segments]
    return {"segments": segments, "device_traces": [trace]}


def written_example():
    block = {"size": 2 * MIB, "requested_size": 5, "state": "active_pending_free"}
    return {
        "device": 3, "address": 1 << 30, "total_size": 2 * MIB, "stream": 7, "segment_type": "small",
        "active_size": 2 * MIB, "requested_size": 5, "blocks": [block],
    }  # fmt: skip


def frame(file, line, name):
    return {"filename": file, "line": line, "name": name}


def small_program():
    """A few lines of a training script, with stacks, times, an allocation from before and a failed one."""
    torch_line = frame("/env/lib/python3.12/site-packages/torch/nn/modules/linear.py", 125, "forward")
    native = frame("??", 0, "c10::cuda::CUDACachingAllocator::malloc()")
    forward = [
        native,
        torch_line,
        frame("/home/me/project/net.py", 12, "forward"),
        frame("/home/me/train.py", 40, "main"),
    ]
    backward = [native, frame("", 0, "torch::autograd::generated::MmBackward0::apply(std::vector<at::Tensor>&&)")]
    base = 0x7F0000000000
    trace = [
        {**event("segment_alloc", base + 64 * MIB, 20 * MIB), "frames": forward, "time_us": 1_000_000},
        {**event("alloc", base + 64 * MIB, 6 * MIB), "frames": forward, "time_us": 1_000_010},
        {**event("alloc", base + 70 * MIB, 6 * MIB - 100), "frames": forward, "time_us": 1_000_500},
        {
            "action": "oom",
            "device_free": 3 * MIB,
            "size": 30 * MIB,
            "stream": 0,
            "frames": forward,
            "time_us": 1_000_600,
        },
        {**event("free_requested", base + 64 * MIB, 6 * MIB), "frames": backward, "time_us": 1_500_000},
        {**event("free_completed", base + 64 * MIB, 6 * MIB), "frames": backward, "time_us": 1_500_000},
        {**event("alloc", base + 64 * MIB, 4 * MIB), "frames": backward, "time_us": 1_500_100},
        {"action": "snapshot", "addr": 0, "size": 0, "stream": 0, "time_us": 1_600_000},
    ]
    blocks = [
        {
            "address": base + 64 * MIB,
            "size": 4 * MIB,
            "requested_size": 4 * MIB,
            "state": "active_allocated",
            "frames": backward,
        },
        {"address": base + 68 * MIB, "size": 2 * MIB, "requested_size": 0, "state": "inactive", "frames": []},
        {
            "address": base + 70 * MIB,
            "size": 6 * MIB,
            "requested_size": 6 * MIB - 100,
            "state": "active_allocated",
            "frames": forward,
        },
        {"address": base + 76 * MIB, "size": 8 * MIB, "requested_size": 0, "state": "inactive", "frames": []},
    ]
    old = {"address": base, "size": 2 * MIB, "requested_size": 2 * MIB - 512, "state": "active_allocated", "frames": []}
    common = {"device": 0, "stream": 0, "segment_pool_id": (0, 0), "is_expandable": False, "frames": []}
    segments = [
        {**common, "address": base + 64 * MIB, "total_size": 20 * MIB, "segment_type": "large",
         "allocated_size": 10 * MIB, "active_size": 10 * MIB, "requested_size": 10 * MIB - 100, "blocks": blocks},
        {**common, "address": base, "total_size": 2 * MIB, "segment_type": "large", "allocated_size": 2 * MIB,
         "active_size": 2 * MIB, "requested_size": 2 * MIB - 512, "blocks": [old]},
    ]  # fmt: skip
    settings = {
        "PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "garbage_collection_threshold": 0.0,
        "expandable_segments": False, "roundup_power2_divisions": {str(1 << power): 0 for power in range(16)},
    }  # fmt: skip
    return {
        "segments": segments,
        "device_traces": [trace, []],
        "allocator_settings": settings,
        "external_annotations": [],
    }
