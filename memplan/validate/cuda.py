"""Measures a run on a CUDA device: the caching allocator's own counters and history, and what the device has left."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch

from memplan.errors import MemplanError
from memplan.seam import memory
from memplan.snapshot.read import load_snapshot
from memplan.validate.records import AllocationStream, MeasuredRun, Peaks
from memplan.validate.streams import recorded_stream

MOST_EVENTS = 100_000
"""Events after which the history ends with the step: each keeps its call stack, of some 60 frames, in host memory."""
_CONF = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
"""Variables that change the allocator (c10/core/AllocatorConfig.cpp; the second is the older name)."""


class CudaMeter:
    """Watches one device from before the model is built to the end of the run.

    ``free_before`` is what it had left before this process's context; None if unknown. So many recorded steps must be
    in the history whatever their length.
    """

    def __init__(self, device: int, free_before: int | None, *, recorded_steps: int, keep: Path | None) -> None:
        self._device, self._free_before = device, free_before
        self._recorded_steps, self._keep = recorded_steps, keep
        self._marks: list[int] = []
        self._context: int | None = None
        self._most_used: int | None = None
        self._recording = False
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._notes: list[str] = []

    def start(self) -> None:
        """Create the context and begin the history."""
        # The default, an external addr2line, takes minutes on CUDA libraries; read when stacks are first named.
        os.environ.setdefault("TORCH_SYMBOLIZE_MODE", "dladdr")
        torch.cuda.set_device(self._device)
        torch.cuda.synchronize()
        self._context = self._used()
        if self._free_before is None:
            self._notes.append("what the device had left before the run is not known, so its own figure is missing")
        self._notes += [
            f"{name}={os.environ[name]} is set; the prediction is of the default allocator"
            for name in _CONF
            if os.environ.get(name)
        ]
        # C++ stacks name the kernels that take scratch memory; not every platform can unwind them.
        self._recording = self._record("all") or self._record("python")

    def _record(self, stacks: str) -> bool:
        try:
            memory.record_memory_history("all", context="all", stacks=stacks, max_entries=20 * MOST_EVENTS)
        except (RuntimeError, TypeError, ValueError) as error:
            self._notes.append(f"no history with {stacks} stacks: {str(error).splitlines()[0]}")
            return False
        return True

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """The context of one step."""
        if self._recording:
            self._marks.append(self._requests())
        yield
        torch.cuda.synchronize()
        self._look()
        if self._recording and len(self._marks) >= self._recorded_steps and self._requests() > MOST_EVENTS:
            self._end_history()

    def finish(self) -> MeasuredRun:
        """End, and say what was seen."""
        self._look()
        stats = torch.cuda.memory_stats(self._device)
        if self._recording:
            self._end_history()
        return MeasuredRun(
            peaks=Peaks(
                requested=stats.get("requested_bytes.all.peak"),
                allocated=stats.get("allocated_bytes.all.peak"),
                reserved=stats.get("reserved_bytes.all.peak"),
                device=self._most_used,
            ),
            stream=self._stream(),
            retries=int(stats.get("num_alloc_retries", 0)),
            context_bytes=self._context,
            notes=tuple(self._notes),
        )

    def _requests(self) -> int:
        """Allocations and frees asked for so far."""
        stats = torch.cuda.memory_stats(self._device)
        return int(stats.get("allocation.all.allocated", 0) + stats.get("allocation.all.freed", 0))

    def _look(self) -> None:
        used = self._used()
        if used is not None:
            self._most_used = max(used, self._most_used or 0)

    def _used(self) -> int | None:
        if self._free_before is None:
            return None
        return self._free_before - int(torch.cuda.mem_get_info(self._device)[0])

    def _end_history(self) -> None:
        """Write the history to a file before it is switched off, which clears it."""
        self._recording = False
        self._folder = tempfile.TemporaryDirectory(prefix="memplan-validate-")
        try:
            memory.dump_snapshot(self._file(self._folder))
            memory.record_memory_history(None)
        except (OSError, RuntimeError) as error:
            self._notes.append(f"the history could not be written: {error}")

    def _file(self, folder: "tempfile.TemporaryDirectory[str]") -> str:
        return str(Path(folder.name) / "snapshot.pickle")

    def _stream(self) -> AllocationStream | None:
        if self._folder is None:
            return None
        with self._folder as folder:
            try:
                return self._read(Path(folder) / "snapshot.pickle")
            except (MemplanError, OSError) as error:
                # The peaks are measured all the same.
                self._notes.append(f"the history could not be read: {error}")
                return None

    def _read(self, history: Path) -> AllocationStream | None:
        if self._keep is not None:
            self._keep.write_bytes(history.read_bytes())
        found = [each for each in load_snapshot(history).devices if each.device == self._device]
        if not found:
            self._notes.append("the history holds nothing of this device")
            return None
        return recorded_stream(found[0].events, self._marks)
