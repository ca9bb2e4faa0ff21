"""The clocks of a step: computation, network and host links go on side by side, as far as they may.

compute   ░░│ block 0 │ block 1 │ … │ backward 1 │ backward 0 │▒▒│ optimizer
network   ag0│ag1     │ag2      │ … │   rs2      │   rs1      │rs0
          ▲ nothing hides the first                            ▲ nor the last

An all-gather starts once the one before it has been taken (FSDP prefetches one), and its block waits for it. What
backward sends away is only waited for before the optimizer.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from memplan.hardware.nodes import Node
from memplan.hardware.profile import GpuProfile
from memplan.job.parallel import Parallel
from memplan.job.spec import JobSpec
from memplan.plan.time.collectives import Collective, collective_of, seconds
from memplan.plan.time.rates import HOST_BANDWIDTH, Rates
from memplan.plan.time.records import StepTime
from memplan.trace.records import Op, Phase, Storage, Trace

ALLOCATIONS = ("aten.empty", "aten.new_empty")
"""Ops that only ask for memory: nothing is read or written."""
VIRTUAL_STAGES = 2
"""Stages per rank of an interleaved pipeline, as torch's ``ScheduleInterleaved1F1B`` has at the least."""


def step_time(trace: Trace, spec: JobSpec, profile: GpuProfile, *, gpus_per_node: int | None = None) -> StepTime:
    """Seconds of the last step of a trace.

    Args:
        trace: The step of one rank.
        spec: Its job: precision, ranks.
        profile: The device.
        gpus_per_node: GPUs that share a node; None takes the usual number.
    """
    step = trace.steps[-1]
    node = Node.of(profile, gpus=gpus_per_node)
    clocks = _Clocks(Rates.of(profile, spec.precision), node, trace.storages, spec)
    clocks.play(trace.ops[step.first_op : step.end_op])
    return clocks.result(bubble_share(spec.parallel))


def with_micro_batches(time: StepTime, traced: int, wanted: int) -> StepTime:
    """The time of a step with more micro-batches than were traced: all but the optimizer is done for each.

    Args:
        time: Of the traced step.
        traced: Its micro-batches.
        wanted: Those of the step that is asked for.
    """
    factor = wanted / traced
    compute = time.optimizer + (time.compute - time.optimizer) * factor
    others = {name: getattr(time, name) * factor for name in _REPEATED}
    total = time.optimizer + (time.total - time.optimizer) * factor
    return replace(time, compute=compute, total=total, **others)


_REPEATED = ("launch", "communication", "exposed_communication", "offload", "bubble")
"""Parts that every micro-batch has."""


def bubble_share(parallel: Parallel) -> float:
    """Idle time of a pipeline as a share of its busy time: (p - 1) / (v m).

    Narayanan et al. 2021, Efficient Large-Scale Language Model Training on GPU Clusters, arXiv:2104.04473, section 2.2.
    """
    stages = parallel.pipeline
    if stages == 1:
        return 0.0
    virtual = VIRTUAL_STAGES if parallel.schedule == "interleaved" else 1
    return (stages - 1) / (virtual * (parallel.micro_batches or 2 * stages))


@dataclass(slots=True)
class _Phase:
    """One phase's kernels, and what the CPU takes to dispatch them."""

    kernels: float = 0.0
    dispatch: float = 0.0


class _Clocks:
    """Plays ops in order on several clocks."""

    def __init__(self, rates: Rates, node: Node, storages: Sequence[Storage], spec: JobSpec) -> None:
        self._rates, self._node, self._parallel = rates, node, spec.parallel
        self._fetches_late = spec.offload_activations
        self._storages = tuple(storages)
        self._phases: dict[Phase, _Phase] = {}
        self._compute = self._network = self._host = 0.0
        self._taken = 0.0
        self._communication = self._exposed = self._waited = 0.0

    def play(self, ops: Sequence[Op]) -> None:
        """Run the ops."""
        for op, ends in _with_ends(ops):
            collective = collective_of(op, self._storages, self._parallel)
            if ends:
                self._wait_for_all()
            if collective is not None:
                self._communicate(collective)
            elif moved := self._moved(op):
                self._transfer(op, moved)
            else:
                self._run(op)

    def result(self, bubble: float) -> StepTime:
        """What all of it came to."""
        self._wait_for_all()
        compute = sum(phase.kernels for phase in self._phases.values())
        launch = sum(max(0.0, phase.dispatch - phase.kernels) for phase in self._phases.values())
        # The device waits for the CPU or for the network, seldom for both at once.
        busy = compute + max(launch, self._exposed + self._waited)
        optimizer = self._phases.get("optimizer", _Phase())
        idle = bubble * (busy - optimizer.kernels)
        return StepTime(
            compute=compute,
            optimizer=optimizer.kernels,
            launch=launch,
            communication=self._communication,
            exposed_communication=self._exposed,
            offload=self._waited,
            bubble=idle,
            total=busy + idle,
        )

    def _run(self, op: Op) -> None:
        if not op.bytes_moved:
            return
        phase = self._phases.setdefault(op.phase, _Phase())
        spent = self._rates.seconds(op)
        phase.kernels += spent
        phase.dispatch += self._rates.dispatch
        self._compute += spent

    def _communicate(self, collective: Collective) -> None:
        spent = seconds(collective, self._node)
        self._communication += spent
        if collective.blocking:
            self._network = max(self._network, self._compute) + spent
            self._expose()
        elif collective.kind == "gather":
            self._network = max(self._network, self._taken) + spent
            self._expose()
            self._taken = self._compute
        else:
            self._network = max(self._network, self._compute) + spent

    def _expose(self) -> None:
        waited = max(0.0, self._network - self._compute)
        self._exposed += waited
        self._compute += waited

    def _moved(self, op: Op) -> int:
        """Bytes that an op moves between host and device, or works on in host memory; 0 for a kernel."""
        places = [self._storages[each].place for each in (*op.reads, *op.writes)]
        return op.bytes_moved if any(place in ("host", "pinned") for place in places) else 0

    def _transfer(self, op: Op, moved: int) -> None:
        if op.name.startswith(ALLOCATIONS):
            return
        to_device = any(self._storages[each].place == "device" for each in op.writes)
        if to_device or any(self._storages[each].place == "device" for each in op.reads):
            # Counted at both ends, and once more where the target is an argument; the link sees it once.
            times = 3 if set(op.writes) & set(op.reads) else 2
            spent = moved / times / self._rates.host_link if self._rates.host_link else 0.0
        else:
            spent = moved / HOST_BANDWIDTH
        self._host = max(self._host, self._compute) + spent
        if self._fetches_late and op.phase == "backward" and to_device:
            self._wait_for_host()

    def _wait_for_host(self) -> None:
        waited = max(0.0, self._host - self._compute)
        self._waited += waited
        self._compute += waited

    def _wait_for_all(self) -> None:
        self._expose()
        self._wait_for_host()


def _with_ends(ops: Sequence[Op]) -> Iterator[tuple[Op, bool]]:
    """Each op, and whether a phase that must wait for everything begins with it."""
    before: Phase | None = None
    for op in ops:
        yield op, op.phase == "optimizer" and before not in (None, "optimizer")
        before = op.phase
