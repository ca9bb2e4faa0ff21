"""The JSON report of ``memplan numa``: integers are bytes, keys are sorted, minor versions only add."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from importlib.resources import files
from typing import Any

from memplan.runtime.numa.commands import Commands, joined
from memplan.runtime.numa.placement import Placement, RankPlacement
from memplan.runtime.numa.records import Node, Topology
from memplan.runtime.numa.torchrun import differences
from memplan.versions import installed

SCHEMA_VERSION = "1.0"


def render(topology: Topology, placement: Placement, lines: Commands) -> str:
    """A machine and a plan on it as an object."""
    return json.dumps(document(topology, placement, lines), sort_keys=True, indent=2, allow_nan=False)


def schema() -> Mapping[str, Any]:
    """The JSON Schema that every report obeys."""
    text = (files("memplan.report") / "schema" / "numa-1.0.json").read_text("utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def document(topology: Topology, placement: Placement, lines: Commands) -> dict[str, Any]:
    """The same as plain data."""
    return {
        "schema_version": SCHEMA_VERSION,
        "command": "numa",
        "topology": {
            "nodes": [_node(node) for node in topology.nodes],
            "devices": [asdict(device) for device in topology.devices],
            "cpu_limit": topology.cpu_limit,
            "memory_limit_bytes": topology.memory_limit,
        },
        "placement": {
            "ranks": [_rank(rank) for rank in placement.ranks],
            "interleave": list(placement.interleave),
            "state": placement.state,
            "short_bytes": placement.short_bytes,
        },
        "commands": {
            "ranks": [joined(words) for words in lines.ranks],
            "shared": joined(lines.shared),
            "torchrun": joined(lines.torchrun),
            "torchrun_why": lines.torchrun_why,
            "slurm": joined(lines.slurm),
        },
        "torchrun_modes": dict(differences(topology, placement)),
        "notes": [*topology.notes, *placement.notes],
        "versions": {"memplan": installed("memplan")},
    }


def _node(node: Node) -> dict[str, Any]:
    return {
        "index": node.index,
        "cpus": list(node.cpus),
        "cores": [list(core.cpus) for core in node.cores],
        "total_bytes": node.total_bytes,
        "free_bytes": node.free_bytes,
        "cache_bytes": node.cache_bytes,
        "huge_free_bytes": node.huge_free_bytes,
        "memory_allowed": node.memory_allowed,
        "distances": {str(other): distance for other, distance in node.distances.items()},
    }


def _rank(rank: RankPlacement) -> dict[str, Any]:
    return {
        "rank": rank.rank,
        "gpu": None if rank.gpu is None else rank.gpu.index,
        "gpu_address": None if rank.gpu is None else rank.gpu.address,
        "node": rank.node,
        "cpus": list(rank.cpus),
        "main_cpus": [cpu for core in rank.main_cores for cpu in core.cpus],
        "worker_cpus": [list(cpus) for cpus in rank.workers],
        "memory_node": rank.memory_node,
        "pinned": [{"node": node, "bytes": size} for node, size in rank.pinned],
        "reason": rank.reason,
    }
