"""All that a run can be read from: its own processes, the driver, the kernel. Torch-free."""

import time
from dataclasses import replace

import psutil

from memplan.errors import MemplanError
from memplan.runtime.meters.nvml import Nvml, connect
from memplan.runtime.meters.records import DeviceReading
from memplan.runtime.monitor.listener import Listener
from memplan.runtime.monitor.merge import Merged, merge
from memplan.runtime.monitor.processes import host_of, tree
from memplan.runtime.monitor.wire import Message


class Sources:
    """Open from construction to ``close``.

    Args:
        inside: Listen to the run's own processes.
        gpus: Ask the driver of GPUs.
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
