"""Kernel-internal allocations of real CUDA runs, read from memory snapshots with C++ frames."""

import io
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

DATA = Path(os.environ.get("MEMPLAN_DATA", Path(__file__).parents[4] / "shared" / "data"))
ACTIONS = {"alloc": "alloc", "free_requested": "free"}


class PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"snapshots hold plain data, not {module}.{name}")


def events(name: str) -> list[dict[str, Any]]:
    """Allocations and frees of a snapshot, in order; skips the test without the data."""
    path = DATA / "snapshots" / f"{name}.pickle"
    if not path.exists():
        pytest.skip(f"needs {path.name} (MEMPLAN_DATA)")
    snapshot = PlainUnpickler(io.BytesIO(path.read_bytes())).load()
    return [event for event in snapshot["device_traces"][0] if event["action"] in ACTIONS]


def innermost_calls(event: dict[str, Any]) -> Iterator[str]:
    return (frame["name"] for frame in event["frames"] if not frame["filename"].endswith(".py"))


def inside(event: dict[str, Any], part: str) -> bool:
    """Was it made below a C++ function whose name holds this?"""
    return any(part in name for name in innermost_calls(event))


def below(event: dict[str, Any], op: str) -> bool:
    """Was it made below a dispatcher call of this op, or by this op's kernel?"""
    return inside(event, f"at::_ops::{op}::")


def steps(of: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return [(ACTIONS[event["action"]], event["size"]) for event in of]
