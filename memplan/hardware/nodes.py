"""Nodes: how many GPUs share one, and what links them."""

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from memplan.hardware.profile import GpuProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A machine with several GPUs, and its links."""

    gpus: int
    """GPUs of one node."""
    inside_bandwidth: float
    """Bytes per second from one GPU to its peers, one direction, as collectives reach it."""
    network_bandwidth: float
    """Bytes per second that one GPU brings to the network between nodes, as collectives reach it."""
    inside_latency: float
    """Seconds of one step of a ring inside a node."""
    between_latency: float
    """Seconds of one step of a ring between nodes."""
    host_bandwidth: float
    """Bytes per second of the host's memory, which its ranks share."""

    @classmethod
    def of(cls, profile: GpuProfile, *, gpus: int | None = None) -> "Node":
        """The usual node of a GPU; without a link to its peers, copies go over the host's."""
        table = _table()
        links = table["links"]
        family = profile.name.partition("-")[0]
        entry = table.get(family, table["other"])
        # The profile counts both directions of a peer link.
        inside = profile.peer_link_bandwidth / 2 or profile.host_link_bandwidth
        return cls(
            gpus=gpus or entry["gpus"],
            inside_bandwidth=inside * links["efficiency"],
            network_bandwidth=entry["network_bandwidth"] * links["efficiency"],
            inside_latency=links["inside_latency"],
            between_latency=links["between_latency"],
            host_bandwidth=entry["host_bandwidth"],
        )


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads((files("memplan.hardware") / "nodes.toml").read_text("utf-8"))
