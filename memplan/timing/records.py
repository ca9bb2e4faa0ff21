"""The time of a step and its parts."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """Seconds of one optimizer step of one rank. ``total`` is what passes; parts that overlap do not add up to it."""

    compute: float
    """Kernels on the device, recomputation included."""
    optimizer: float
    """The optimizer's part of it, once per step however many micro-batches there are."""
    launch: float
    """Time in which the device waits for the CPU to dispatch ops."""
    communication: float
    """Collectives, hidden or not."""
    exposed_communication: float
    """The part of it that computation does not hide."""
    offload: float
    """Transfers between device and host and work on the host that computation does not hide."""
    bubble: float
    """Time in which a pipeline's stage has nothing to do."""
    total: float
    """From one step's begin to the next one's."""
    paging: float = 0.0
    """The part of ``offload`` in which paged optimizer states come and go, once per step."""
