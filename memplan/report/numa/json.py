"""The JSON report of ``memplan numa``."""

from collections.abc import Mapping
from typing import NamedTuple

from memplan.contract.document import Document, head, memplan_version
from memplan.contract.table import Table
from memplan.runtime.numa.commands import Commands, joined
from memplan.runtime.numa.placement import Placement, RankPlacement
from memplan.runtime.numa.records import Core, Topology
from memplan.runtime.numa.torchrun import Mode, differences
from memplan.units import Bytes


class NumaReport(NamedTuple):
    """A machine and a plan on it."""

    topology: Topology
    """The machine."""
    placement: Placement
    """What was planned on it."""
    commands: Commands
    """The same as what one types."""


class PinnedPart(NamedTuple):
    """A part of a rank's pinned memory."""

    node: int
    """Where it lies."""
    bytes: Bytes
    """How large it is."""


def _torchrun_modes(report: NumaReport) -> Mapping[Mode, str]:
    """How each binding of torchrun's own differs from the placement's CPUs; empty where it does not."""
    return differences(report.topology, report.placement)


def _notes(report: NumaReport) -> tuple[str, ...]:
    """What was missing, and what one should know before using the placement."""
    return (*report.topology.notes, *report.placement.notes)


def _main_cpus(rank: RankPlacement) -> tuple[int, ...]:
    """The CPUs that the training process itself keeps."""
    return tuple(cpu for core in rank.main_cores for cpu in core.cpus)


def _pinned(rank: RankPlacement) -> tuple[PinnedPart, ...]:
    """Each part of its pinned memory."""
    return tuple(PinnedPart(*part) for part in rank.pinned)


def _ranks(commands: Commands) -> tuple[str, ...]:
    """Lines that start each rank by hand."""
    return tuple(joined(words) for words in commands.ranks)


def _shared(commands: Commands) -> str:
    """Line that starts what fills memory for all ranks; empty on one node."""
    return joined(commands.shared)


def _torchrun(commands: Commands) -> str:
    """Line that starts all ranks: with a binding of torchrun's own, or by the script."""
    return joined(commands.torchrun)


def _slurm(commands: Commands) -> str:
    """Line that starts all ranks under Slurm."""
    return joined(commands.slurm)


DOCUMENT = Document(
    name="numa",
    root=NumaReport,
    tables={
        NumaReport: Table(
            keys={
                **head("numa"),
                "torchrun_modes": _torchrun_modes,
                "notes": _notes,
                "versions": {"memplan": memplan_version},
            }
        ),
        Topology: Table(keys={"memory_limit_bytes": "memory_limit"}, omit=("possible_nodes", "notes")),
        Core: "cpus",
        Placement: Table(omit=("notes",)),
        RankPlacement: Table(
            keys={
                "gpu": "gpu.index",
                "gpu_address": "gpu.address",
                "cpus": "cpus",
                "main_cpus": _main_cpus,
                "worker_cpus": "workers",
                "pinned": _pinned,
            },
            omit=("cores",),
        ),
        Commands: Table(keys={"ranks": _ranks, "shared": _shared, "torchrun": _torchrun, "slurm": _slurm}),
    },
)


def render(topology: Topology, placement: Placement, lines: Commands) -> str:
    """Render a machine and a plan on it as an object."""
    return DOCUMENT.render(NumaReport(topology, placement, lines))
