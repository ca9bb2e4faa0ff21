"""All that a run can be read from: its own processes, the driver, the kernel. Torch-free."""

import contextlib
import socket
import tempfile
import time
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from threading import Lock, Thread

import psutil

from memplan.errors import MemplanError
from memplan.runtime.meters.nvml import Nvml, connect
from memplan.runtime.meters.records import DeviceReading
from memplan.runtime.monitor.processes import Merged, host_of, merge, tree
from memplan.runtime.monitor.wire import LARGEST, Message, decode


class Sources:
    """Open from construction to ``close``.

    ``inside`` listens to the run's own processes; ``gpus`` asks the driver of GPUs.
    """

    def __init__(self, *, inside: bool, gpus: bool) -> None:
        self.notes: list[str] = []
        self._nvml, missing = connect() if gpus else (None, "")
        self.notes += [missing] if missing else []
        self._listener: Listener | None = None
        if inside:
            try:
                self._listener = Listener()
            except MemplanError as error:
                self.notes.append(error.what)

    @property
    def address(self) -> str:
        """Where processes of the run send to; empty where nobody listens."""
        return self._listener.address if self._listener else ""

    def read(self, pid: int) -> Merged:
        """Read a process, what it started, and the GPUs that they use."""
        pids, resident = tree(pid)
        if self._listener:
            self._listener.keep(pids)
        said = self._listener.readings() if self._listener else {}
        cards = _cards(self._nvml, pids) if self._nvml else ()
        return merge(said, cards, host_of(resident), seconds=time.time())

    def last_words(self) -> tuple[Message, ...]:
        """What processes said beside readings, until now."""
        if self._listener is None:
            return ()
        self._listener.drain()
        return self._listener.others()

    def last(self) -> Merged | None:
        """What processes read as they ended, once ``last_words`` has heard them; None where none did."""
        said = self._listener.readings() if self._listener else {}
        read = [message.reading for message in said.values() if message.reading is not None]
        if not any(message.kind == "end" for message in said.values()):
            return None
        latest = max(read, key=lambda each: each.seconds)
        host = replace(latest.host, resident=sum(each.host.resident for each in read))
        return merge(said, (), host, seconds=latest.seconds)

    def close(self) -> None:
        """Listen no more."""
        if self._listener:
            self._listener.close()


def _cards(nvml: Nvml, pids: frozenset[int]) -> tuple[DeviceReading, ...]:
    """GPUs that the processes use.

    A container may show other ids than the driver knows: a GPU whose users are all unknown here may be one, too.
    """
    found = []
    for index, reading in enumerate(nvml.readings()):
        users = nvml.users(index)
        if users & pids or (users and not any(psutil.pid_exists(pid) for pid in users)):
            found.append(reading)
    return tuple(found)


_STOP = b""
"""An empty datagram: to itself, to stop."""


class Listener:
    """Hears watched processes from ``open`` to ``close``. Its methods may be called from any thread."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="memplan-", ignore_cleanup_errors=True)
        self.address = str(Path(self._folder.name) / "monitor")
        self._lock = Lock()
        self._readings: dict[int, Message] = {}
        self._others: list[Message] = []
        try:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.bind(self.address)
        except (OSError, AttributeError) as error:
            self._folder.cleanup()
            raise MemplanError(f"the run cannot be watched from inside: {error}") from error
        self._thread = Thread(target=self._listen, name="memplan-listener", daemon=True)
        self._thread.start()

    def readings(self) -> dict[int, Message]:
        """Process → what it read last; at its end, where it had one to speak of."""
        with self._lock:
            return dict(self._readings)

    def others(self) -> tuple[Message, ...]:
        """All messages that are no readings, in order."""
        with self._lock:
            return tuple(self._others)

    def keep(self, alive: Collection[int]) -> None:
        """Forget the readings of processes that are no more."""
        with self._lock:
            self._readings = {pid: message for pid, message in self._readings.items() if pid in alive}

    def drain(self) -> None:
        """Hear everything that has been sent until now, and nothing more."""
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as own:
            # Datagrams keep their order, so that it is the last one that counts.
            own.sendto(_STOP, self.address)
            self._thread.join(timeout=2)

    def close(self) -> None:
        """Stop, and remove the socket."""
        if self._thread.is_alive():
            self.drain()
        self._socket.close()
        self._folder.cleanup()

    def _listen(self) -> None:
        while True:
            try:
                datagram = self._socket.recv(LARGEST)
            except OSError:
                return
            if datagram == _STOP:
                return
            message = decode(datagram)
            if message is None:
                continue
            with self._lock:
                if message.kind in {"reading", "end"} and message.reading is not None:
                    self._readings[message.pid] = message
                if message.kind != "reading":
                    self._others.append(message)
