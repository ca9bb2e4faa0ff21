"""Read allocation streams out of CUDA memory snapshots, with an unpickler that only makes plain containers."""

import io
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Step = tuple[Literal["alloc", "free"], int]
"""One event: what happens, to how many requested bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Allocations and frees in order."""

    steps: tuple[Step, ...]
    base_bytes: int
    """Requested bytes live before the first."""

    def peak(self) -> int:
        """Most requested bytes live at once."""
        live = most = self.base_bytes
        for action, size in self.steps:
            live += size if action == "alloc" else -size
            most = max(most, live)
        return most


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"a snapshot holds plain data, not {module}.{name}")


def load(path: Path) -> dict[str, Any]:
    """A snapshot's dictionary."""
    loaded: dict[str, Any] = _PlainUnpickler(io.BytesIO(path.read_bytes())).load()
    return loaded


def stream_of(path: Path) -> Stream:
    """The stream of the snapshot's first device."""
    snapshot = load(path)
    live = sum(
        block.get("requested_size", block["size"])
        for segment in snapshot["segments"]
        for block in segment["blocks"]
        if block["state"] != "inactive"
    )
    actions = {"alloc": "alloc", "free_requested": "free"}
    steps = tuple(
        (actions[event["action"]], event["size"])
        for event in snapshot["device_traces"][0]
        if event["action"] in actions
    )
    return Stream(steps=steps, base_bytes=live - sum(size if action == "alloc" else -size for action, size in steps))
