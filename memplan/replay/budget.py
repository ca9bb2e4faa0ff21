"""How much a process may take from a device."""

from memplan.replay.policy import AllocatorPolicy


class Budget:
    """The device's memory, and the share of it that ``per_process_memory_fraction`` allows."""

    def __init__(self, policy: AllocatorPolicy, *, limit_bytes: int | None, device_bytes: int | None) -> None:
        self.limit = limit_bytes
        """Bytes that the device can give; None for no limit."""
        self.device_bytes = limit_bytes if device_bytes is None else device_bytes
        """The device's total memory; None if unknown."""
        fraction = policy.per_process_memory_fraction
        share = int(fraction * self.device_bytes) if self.device_bytes is not None else None
        self.allowed = share if fraction < 1 else None
        """Bytes that the share allows; None without one (``setMemoryFraction``)."""
        self.rejected_above = share if policy.throw_on_cudamalloc_oom else None
        """Bytes beyond which ``throw_on_cudamalloc_oom`` ends a request at once; None without that option."""

    def allows(self, reserved: int) -> bool:
        """May the process hold so many bytes?"""
        return self.allowed is None or reserved <= self.allowed

    def gives(self, reserved: int) -> bool:
        """Has the device so many bytes, and may it be asked?"""
        return (self.limit is None or reserved <= self.limit) and not self.rejects(reserved)

    def rejects(self, reserved: int) -> bool:
        """Does wanting so many bytes end the request, before anything cached is released?"""
        return self.rejected_above is not None and self.allows(reserved) and reserved > self.rejected_above
