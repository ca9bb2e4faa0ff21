"""The JSON report of ``memplan simulate``."""

from typing import NamedTuple

from memplan.contract.document import Document, head
from memplan.contract.table import Table, columns, made, only
from memplan.replay.records import OutOfMemory
from memplan.simulate.records import PolicyRun, Simulation, StepFigures


class SequenceLengths(NamedTuple):
    """Tokens per sample, over all steps."""

    shortest: int
    longest: int
    mean: float


class WithoutLeftovers(NamedTuple):
    """The recommended policy, if each step freed what it leaves."""

    reserved_bytes: int
    requested_bytes: int
    fragmentation: float


class PolicyReport(NamedTuple):
    """One policy and what it costs."""

    run: PolicyRun
    """What was played."""
    cost_microseconds: float
    """Modelled time that its allocation costs over all steps."""

    @property
    def per_step(self) -> tuple[StepFigures, ...]:
        """An entry for each step that was played; where the policy settled, later steps repeat the last ones."""
        return self.run.steps[: self.run.settled_at]

    @property
    def out_of_memory(self) -> "Failure | None":
        """The request that the device could not serve, if there was one."""
        run = self.run
        return None if run.out_of_memory is None else Failure(run.failed_step, run.out_of_memory)


class Failure(NamedTuple):
    """A request that the device could not serve."""

    step: int | None
    """Counted from 1."""
    request: OutOfMemory
    """What was asked for."""


def _lengths(simulation: Simulation) -> SequenceLengths | None:
    """SequenceLengths of the steps; null where there are no sequences."""
    lengths = simulation.workload.lengths
    return SequenceLengths(min(lengths), max(lengths), sum(lengths) / len(lengths)) if max(lengths) else None


def _without_leftovers(simulation: Simulation) -> WithoutLeftovers | None:
    """The recommended policy if each step freed at its end what it leaves; null where it leaves nothing."""
    run = simulation.without_leftovers
    return None if run is None else WithoutLeftovers(run.peak_reserved, run.peak_requested, run.fragmentation)


def _policies(simulation: Simulation) -> tuple[PolicyReport, ...]:
    """In the order in which they are shown."""
    return tuple(PolicyReport(run, simulation.microseconds[run.name]) for run in simulation.policies)


_LARGEST_FREE = "Largest block that could be handed out without the device's help, when all steps are over."
DOCUMENT = Document(
    name="simulate",
    root=Simulation,
    tables={
        Simulation: Table(
            keys={
                **head("simulate"),
                "target": "workload.target",
                "options": "workload.options",
                "steps": made(Simulation, int, "How many were played.", lambda found: len(found.workload.lengths)),
                "lengths": _lengths,
                "traced_lengths": "workload.traced_lengths",
                "without_leftovers": _without_leftovers,
                "policies": _policies,
                "assumptions": "workload.assumptions",
                "not_modelled": "workload.not_modelled",
                "timings": {
                    "trace_seconds": "workload.seconds",
                    "simulate_seconds": made(
                        Simulation, float, "Wall time of all.", lambda found: sum(run.seconds for run in found.policies)
                    ),
                },
                "versions": {"memplan": "memplan_version"},
            },
            omit=("microseconds",),
        ),
        PolicyReport: Table(
            keys={"per_step": columns("per_step"), "out_of_memory": "out_of_memory"},
            spread=("run",),
        ),
        PolicyRun: Table(
            keys={
                "peak": {
                    "requested_bytes": "peak_requested",
                    "allocated_bytes": "peak_allocated",
                    "reserved_bytes": "peak_reserved",
                },
                "fragmentation": {
                    "total": "fragmentation",
                    "external": "external_fragmentation",
                    "internal": "internal_fragmentation",
                },
                "drift_bytes": "drift",
                "largest_free_bytes": made(PolicyRun, int, _LARGEST_FREE, lambda run: run.steps[-1].largest_free),
                "device_calls": "calls",
                "floor_bytes": "floor",
            },
            omit=("steps", "out_of_memory", "failed_step", "seconds"),
        ),
        Failure: Table(spread=("request",)),
        OutOfMemory: Table(
            keys={"wanted_bytes": "wanted", "allocated_bytes": "allocated", "reserved_bytes": "reserved"}, rest=False
        ),
        StepFigures: Table(
            keys={
                **only("length", "external_fragmentation", "internal_fragmentation").keys,
                "requested_bytes": "peak_requested",
                "allocated_bytes": "peak_allocated",
                "reserved_bytes": "peak_reserved",
                "largest_free_bytes": "largest_free",
                "device_calls": made(
                    StepFigures,
                    int,
                    "Times that the device was asked for memory or given some back.",
                    lambda step: step.calls.allocations + step.calls.frees + step.calls.maps + step.calls.unmaps,
                ),
                "retries": "calls.retries",
            },
            rest=False,
        ),
    },
)
render = DOCUMENT.render
