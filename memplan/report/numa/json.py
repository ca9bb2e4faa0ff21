"""The JSON report of ``memplan numa``."""

from collections.abc import Mapping
from typing import NamedTuple

from memplan.contract.document import Document, head, memplan_version
from memplan.contract.fields import Attribute, attribute
from memplan.contract.table import Table, if_any, made
from memplan.runtime.numa.commands import Commands, joined
from memplan.runtime.numa.placement import MachinePlacement, RankPlacement
from memplan.runtime.numa.records import Core, Topology
from memplan.runtime.numa.torchrun import Mode, differences
from memplan.units import Bytes


class NumaReport(NamedTuple):
    """A machine and a plan on it."""

    topology: Topology
    """The machine."""
    placement: MachinePlacement
    """What was planned on it."""
    commands: Commands
    """The same as what one types."""


class PinnedPart(NamedTuple):
    """A part of a rank's pinned memory."""

    node: int
    """Where it lies."""
    bytes: Bytes
    """How large it is."""


def _pinned(rank: RankPlacement) -> tuple[PinnedPart, ...]:
    """Each part of its pinned memory."""
    return tuple(PinnedPart(*part) for part in rank.pinned)


def _line(name: str) -> Attribute:
    """Return a key for what is typed on one line."""
    words = attribute(Commands, name)
    return words._replace(hint=str, get=lambda commands: joined(words.get(commands)))


DOCUMENT = Document(
    name="numa",
    root=NumaReport,
    tables={
        NumaReport: Table(
            keys={
                **head("numa"),
                "torchrun_modes": made(
                    NumaReport,
                    Mapping[Mode, str],
                    "How each binding of torchrun's own differs from the placement's CPUs; empty where it does not.",
                    lambda report: differences(report.topology, report.placement),
                ),
                "notes": made(
                    NumaReport,
                    tuple[str, ...],
                    "What was missing, and what one should know before using the placement.",
                    lambda report: (*report.topology.notes, *report.placement.notes),
                ),
                "versions": {"memplan": memplan_version},
            }
        ),
        Topology: Table(keys={"memory_limit_bytes": "memory_limit"}, omit=("possible_nodes", "notes")),
        Core: "cpus",
        MachinePlacement: Table(
            keys={"traffic": if_any("traffic"), "step_bytes": if_any("step_bytes")}, omit=("notes",)
        ),
        RankPlacement: Table(
            keys={
                "gpu": "gpu.index",
                "gpu_address": "gpu.address",
                "cpus": "cpus",
                "main_cpus": made(
                    RankPlacement,
                    tuple[int, ...],
                    "The CPUs that the training process itself keeps.",
                    lambda rank: [cpu for core in rank.main_cores for cpu in core.cpus],
                ),
                "worker_cpus": "workers",
                "pinned": _pinned,
            },
            omit=("cores",),
        ),
        Commands: Table(
            keys={
                "ranks": made(
                    Commands,
                    tuple[str, ...],
                    "Lines that start each rank by hand.",
                    lambda commands: [joined(words) for words in commands.ranks],
                ),
                **{name: _line(name) for name in ("shared", "torchrun", "slurm")},
            }
        ),
    },
)


def render(topology: Topology, placement: MachinePlacement, lines: Commands) -> str:
    """Render a machine and a plan on it as an object."""
    return DOCUMENT.render(NumaReport(topology, placement, lines))
