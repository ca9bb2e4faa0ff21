"""What bitsandbytes' optimizers do beside the op that stands for their kernel: states, a halt each, and paging.

Their kernel reads and writes the parameter, its gradient and its states in one go, one launch for each parameter, and
``Optimizer8bit.step`` waits for the device after each (bitsandbytes 0.50, optim/optimizer.py: ``sync_gpu``). The trace
has one op for it that shows parameter and gradient alone (``memplan.job.optimizers``).
"""

from collections.abc import Sequence

from memplan.hardware.profile import GpuProfile
from memplan.job.spec import JobSpec
from memplan.tracing.records import Op, Trace

OPTIMIZERS = frozenset({"adamw-8bit", "paged-adamw-8bit"})
PAGED = "paged-adamw-8bit"
UPDATE = "aten.add_.Tensor"
"""The op that stands for the kernel."""


def is_update(op: Op, spec: JobSpec) -> bool:
    """Does an op stand for the kernel?"""
    return spec.optimizer in OPTIMIZERS and op.phase == "optimizer" and op.name == UPDATE


def traffic(trace: Trace, spec: JobSpec, step: Sequence[Op]) -> float:
    """Bytes that the kernels move for each byte that their ops show: states are read and written too."""
    shown = sum(op.bytes_moved for op in step if is_update(op, spec))
    states = sum(storage.nbytes for storage in trace.storages if storage.role == "optimizer_state")
    return 1 + 2 * states / shown if shown else 1.0


def paged_bytes(trace: Trace, spec: JobSpec, profile: GpuProfile) -> int:
    """Bytes that cross the host's link in a step, since paged states find no room on the device.

    The driver evicts what was used longest ago (open-gpu-kernel-modules, kernel-open/nvidia-uvm/uvm_pmm_gpu.c,
    ``pick_root_chunk_to_evict``). States are taken in the same order in every step, so that each has gone when its turn
    comes: either all stay, or all come and go. What torch's allocator holds is never evicted.
    """
    if spec.optimizer != PAGED or profile.kind == "cpu":
        return 0
    states = sum(each.nbytes for each in trace.storages if each.role == "optimizer_state" and each.place == "host")
    room = profile.usable_bytes - profile.context_bytes - _peak(trace)
    return 0 if states <= room else 2 * states


def _peak(trace: Trace) -> int:
    """Most bytes of tensors on the device at once: a little less than the allocator needs for them."""
    live = peak = 0
    for event in trace.events:
        storage = trace.storages[event.storage]
        if storage.place == "device":
            live += storage.nbytes if event.action == "alloc" else -storage.nbytes
            peak = max(peak, live)
    return peak
