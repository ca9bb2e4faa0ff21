"""Reads a training process from within, in a daemon thread, for the ``memplan monitor`` that started it.

Nothing here may break or slow the process: errors are swallowed, what cannot be sent is dropped, and a reading takes a
fraction of a millisecond each interval.
"""

import atexit
import logging
import os
import socket
import sys
import threading
import time
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from memplan.runtime.meters.read import read
from memplan.runtime.meters.records import Reading
from memplan.runtime.monitor.wire import INTERVAL, SNAPSHOTS, Message, encode
from memplan.seam import memory

_LOG = logging.getLogger("memplan")
_WORDS = 400
"""Characters of an exception's message that are kept."""
_SENT_WITHIN = 0.5
"""Seconds that the last words of a process may wait for room in the socket."""


def start(address: str) -> None:
    """Hear of steps and of the end from now on, and read in a thread until the process ends, or nobody listens."""
    agent = Agent(address)
    agent.attach()
    threading.Thread(target=agent.run, name="memplan-monitor", daemon=True).start()


class Agent:
    """One watched process. Its methods are called from its own thread, from the allocator's observer and at exit."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._steps: dict[int, int] = {}
        self._pid = os.getpid()

    def attach(self) -> None:
        """Hear of steps, of failed CUDA allocations, and of the end."""
        register_optimizer_step_post_hook(self._stepped)
        when_cuda_begins = memory.lazy_call
        if when_cuda_begins is not None:
            when_cuda_begins(self._observe)
        atexit.register(self.last_words)

    def run(self) -> None:
        """What its thread does."""
        try:
            self._loop(float(os.environ.get(INTERVAL, "1")))
        except Exception:  # noqa: BLE001 - the process has its own work to do.
            _LOG.debug("the monitor's agent ended", exc_info=True)

    def _loop(self, interval: float) -> None:
        while self.send(self._message("reading", reading=read())):
            time.sleep(interval)

    def _observe(self) -> None:
        """Hear of failed CUDA allocations: when PyTorch begins to use CUDA.

        To ask earlier would make it do so; at the next reading is too late, for a card is full in less than a second.
        """
        attach = memory.cuda_attach_out_of_memory_observer
        if attach is None:
            return
        try:
            attach(self.out_of_memory)
        except Exception:  # noqa: BLE001 - CUDA is the process's own.
            _LOG.debug("failed allocations are not heard of", exc_info=True)

    def send(self, message: Message) -> bool:
        """Send one message, or drop it; False when nobody listens, or this is a fork of the watched process."""
        if os.getpid() != self._pid:
            return False
        try:
            self._socket.sendto(encode(message), self._address)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return True

    def out_of_memory(self, device: int, asked: int, device_total: int, device_free: int) -> None:
        """What PyTorch calls when a CUDA allocation has failed for good, before it raises."""
        try:
            facts = {"device": device, "asked": asked, "device_total": device_total, "device_free": device_free}
            self._last(self._message("oom", reading=read(), facts=facts | {"snapshot": self._snapshot()}))
        except Exception:  # noqa: BLE001 - the exception that follows is the one to see.
            _LOG.debug("no word of the failed allocation", exc_info=True)

    def last_words(self) -> None:
        """Read once more, and tell which exception ends the process: the interpreter keeps what it has printed."""
        error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        why = f"{type(error).__module__}.{type(error).__qualname__}: {error}" if error is not None else ""
        self._last(self._message("end", reading=_last_reading(), why=why.removeprefix("builtins.")[:_WORDS]))

    def _last(self, message: Message) -> None:
        self._socket.settimeout(_SENT_WITHIN)
        self.send(message)
        self._socket.setblocking(False)

    def _snapshot(self) -> str:
        """Keep the allocator's state for ``memplan snapshot``; empty where there is no folder, or no room in it."""
        folder = os.environ.get(SNAPSHOTS)
        if not folder:
            return ""
        path = os.path.join(folder, f"memplan-oom-{self._pid}.pickle")  # noqa: PTH118 - a name, no path to work on.
        try:
            memory.dump_snapshot(path)
        except Exception:  # noqa: BLE001
            return ""
        return path

    def _stepped(self, optimizer: Any, *_: Any) -> None:
        if torch.compiler.is_compiling():
            return
        self._steps[id(optimizer)] = self._steps.get(id(optimizer), 0) + 1

    def _message(self, kind: str, **what: Any) -> Message:
        step = max(self._steps.values(), default=None)
        return Message(kind=kind, pid=self._pid, rank=_rank(), step=step, **what)


def _last_reading() -> Reading | None:
    """None where what ended the process stands in its way, too."""
    try:
        return read()
    except Exception:  # noqa: BLE001 - why it ended is worth more.
        return None


def _rank() -> int | None:
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank()
    rank = os.environ.get("RANK", "")
    return int(rank) if rank.isdigit() else None
