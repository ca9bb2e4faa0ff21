"""The monitor's end of the wire: a socket in a folder of its own, and a thread that keeps each process's last word."""

import contextlib
import socket
import tempfile
from collections.abc import Collection
from pathlib import Path
from threading import Lock, Thread

from memplan.errors import MemplanError
from memplan.runtime.monitor.wire import LARGEST, Message, decode

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
