"""Pressure answered: what ``pressure`` decides is done, and what it gave back is counted."""

import ctypes
import gc
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from memplan.runtime.adaptive.pressure import Pressure, Relief, ReliefHistory, ReliefPolicy, decide, learned
from memplan.runtime.meters.cuda import cuda_reading
from memplan.runtime.meters.host import host_reading
from memplan.runtime.meters.read import cpu_reading


@dataclass(frozen=True, slots=True, kw_only=True)
class Relieved:
    """What one answer did."""

    relief: Relief
    """What was done."""
    given_back: int
    """Bytes: by CUDA's allocator to its cache (collecting) or to the driver (emptying); on the CPU, by the process."""
    seconds: float
    """How long it took."""


class PressureRelief:
    """Watches the pressure after every step, and answers it. Not thread-safe.

    Args:
        policy: When pressure is answered.
        device: ``cuda:0``, or ``cpu`` for tensors in host memory.
        read_pressure: Reads the device; None for the reading that belongs to it.
    """

    def __init__(
        self,
        policy: ReliefPolicy | None = None,
        *,
        device: str | torch.device = "cpu",
        read_pressure: Callable[[], Pressure] | None = None,
    ) -> None:
        self.policy = policy or ReliefPolicy()
        """When pressure is answered."""
        self.device = torch.device(device)
        """Whose memory."""
        self.history = ReliefHistory()
        """What was done, and what it gave."""
        self._read = read_pressure or (lambda: pressure_of(self.device))
        self._step = 0

    def after_step(self) -> Relieved | None:
        """Look, and answer; None in nearly every step, where nothing was done."""
        step, self._step = self._step, self._step + 1
        if step < self.history.next_step:
            return None
        reading = self._read()
        relief = decide(self.policy, self.history, reading, step)
        if relief is Relief.NOTHING:
            return None
        done = relieve(relief, self.device)
        self.history = learned(self.policy, self.history, given_back=done.given_back, total=reading.total, step=step)
        return done


def relieve(relief: Relief, device: torch.device) -> Relieved:
    """Do what was decided, and measure what it gave back: what other threads take meanwhile counts against it."""
    began = time.perf_counter()
    before = _held(relief, device)
    if relief is not Relief.NOTHING:
        gc.collect()
    if relief is Relief.COLLECT_AND_EMPTY:
        _empty(device)
    return Relieved(relief=relief, given_back=before - _held(relief, device), seconds=time.perf_counter() - began)


def pressure_of(device: torch.device) -> Pressure:
    """Read a device. On the CPU nobody counts what the C library keeps: all of the process counts as reserved."""
    if device.type != "cuda":
        reading, resident = cpu_reading(), host_reading().resident
        return Pressure(used=reading.used, total=reading.total, cached=resident, reserved=resident)
    cuda = cuda_reading(device.index if ":" in str(device) else torch.cuda.current_device())
    return Pressure(used=cuda.used, total=cuda.total, cached=cuda.cached or 0, reserved=cuda.reserved or 0)


def _held(relief: Relief, device: torch.device) -> int:
    if device.type != "cuda":
        return host_reading().resident
    if relief is Relief.COLLECT_AND_EMPTY:
        return torch.cuda.memory_reserved(device)
    return torch.cuda.memory_allocated(device)


def _empty(device: torch.device) -> None:
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.empty_cache()
    elif sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it, musl has not.
        if trim is not None:
            trim(0)
