"""The clocks of a step: computation, network and host links go on side by side, as far as they may.

CPU       b0│b1│b2│ … runs ahead and dispatches, until something halts it
compute   ░░│ block 0 │ block 1 │ … │ backward 1 │ backward 0 │▒▒│ optimizer
network   ag0│ag1     │ag2      │ … │   rs2      │   rs1      │rs0
          ▲ nothing hides the first                            ▲ nor the last

A kernel starts when the one before it has ended and the CPU has dispatched it. An all-gather starts once the one before
it has been taken (FSDP prefetches one), and its block waits for it. What backward sends away is only waited for before
the optimizer. Activations come back from the host one fetch ahead.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from math import isclose

from memplan.hardware.nodes import Node
from memplan.hardware.profile import GpuProfile
from memplan.job.parallel import Parallel
from memplan.job.spec import JobSpec
from memplan.lifetime.roofline import computing_precision
from memplan.timing import eight_bit
from memplan.timing.collectives import Collective, collective_of, seconds
from memplan.timing.rates import Rates, StepTime, written_silently
from memplan.tracing.records import Op, Phase, Trace
from memplan.tracing.turns import stretches

HALTS = ("aten._local_scalar_dense", "aten.nonzero")
"""Ops whose result the CPU waits for, if it lies on the device: ``.item()``, and sizes that depend on values."""
CAUSAL_SHARE = 0.5
"""Of the work that torch counts, what kernels of causal attention do.

FlashAttention skips blocks above the diagonal and counts causal FLOPs by half (Dao 2023, arXiv:2307.08691, section
4.1), as do the rates of ``fractions.toml``; ``torch.utils.flop_counter`` counts the whole square."""
VIRTUAL_STAGES = 2
"""Stages per rank of an interleaved pipeline, as torch's ``ScheduleInterleaved1F1B`` has at the least."""
_NUMBER = 16
"""Bytes of one element at most."""
_ALIKE = 1e-9
"""Times that differ by no more of themselves are the same: sums in another order do."""
_CLOCKS = ("_cpu", "_compute", "_network", "_sending", "_host")


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
    clocks = _Clocks(Rates.of(profile, computing_precision(spec, trace)), node, trace, spec)
    for ops, times in stretches(trace, step.first_op, step.end_op):
        clocks.play_often(ops, times)
    clocks.page(eight_bit.paged_bytes(trace, spec, profile))
    return clocks.result(bubble_share(spec.parallel))


def bubble_share(parallel: Parallel) -> float:
    """Idle time of a pipeline as a share of its busy time: (p - 1) / (v m).

    Narayanan et al. 2021, Efficient Large-Scale Language Model Training on GPU Clusters, arXiv:2104.04473, section 2.2.
    """
    stages = parallel.pipeline
    if stages == 1:
        return 0.0
    virtual = VIRTUAL_STAGES if parallel.schedule == "interleaved" else 1
    return (stages - 1) / (virtual * (parallel.micro_batches or 2 * stages))


class _Clocks:
    """Plays ops in order on several clocks."""

    def __init__(self, rates: Rates, node: Node, trace: Trace, spec: JobSpec) -> None:
        step = trace.steps[-1]
        self._rates, self._node, self._spec = rates, node, spec
        self._storages = trace.storages
        # The ranks of a node share its memory.
        self._host_bandwidth = node.host_bandwidth / min(spec.parallel.ranks, node.gpus)
        self._halved = trace.causal
        self._update_traffic = eight_bit.traffic(trace, spec, trace.ops[step.first_op : step.end_op])
        self._phase: Phase | None = None
        self._kernels = self._of_optimizer = self._idle = 0.0
        # The CPU is an op ahead when a step begins.
        self._cpu = -rates.dispatch
        self._compute = self._network = self._sending = self._host = 0.0
        self._taken = self._fetched = self._room = self._at_fetch = 0.0
        self._communication = self._exposed = self._waited = self._paging = self._passes = 0.0
        self._blocking = self._fetching = self._host_update = 0.0

    def play_often(self, ops: Sequence[Op], times: int) -> None:
        """Run ops so many times in a row; once one takes as long on all clocks as the one before it, so do all."""
        taken: Mapping[str, float] = {}
        for left in reversed(range(times)):
            before = self._readings()
            self.play(ops)
            last, taken = taken, {name: now - before[name] for name, now in self._readings().items()}
            if last and _goes_on(self._readings(), last, taken):
                for name, each in taken.items():
                    setattr(self, name, getattr(self, name) + left * each)
                return

    def _readings(self) -> dict[str, float]:
        return {name: now for name, now in vars(self).items() if isinstance(now, float)}

    def play(self, ops: Iterable[Op]) -> None:
        """Run the ops."""
        for op in ops:
            ends = op.phase == "optimizer" and self._phase not in (None, "optimizer")
            self._phase = op.phase
            collective = collective_of(op, self._storages, self._spec.parallel)
            # Before the optimizer all must be there; in backward, an update needs its own gradient alone.
            if ends and not self._spec.optimizer_in_backward:
                self._wait_for_all()
                self._passes = self._passes or self._compute
            if collective is not None:
                self._communicate(collective, op.phase)
            elif moved := self._moved(op):
                self._transfer(op, moved)
            elif op.bytes_moved:
                self._run(op)

    def page(self, moved: int) -> None:
        """Let paged states come and go, which nothing hides: each update is waited for before the next is asked for."""
        self._paging = moved / self._rates.host_link if moved else 0.0
        self._waited += self._paging
        self._compute += self._paging

    def result(self, bubble: float) -> StepTime:
        """Return the time of the step and its parts."""
        self._wait_for_all()
        self._wait_for_cpu()
        idle = bubble * (self._compute - self._of_optimizer - self._paging)
        return StepTime(
            compute=self._kernels,
            optimizer=self._of_optimizer,
            launch=self._idle,
            communication=self._communication,
            exposed_communication=self._exposed,
            offload=self._waited,
            bubble=idle,
            total=self._compute + idle,
            paging=self._paging,
            passes=self._passes * (1 + bubble),
            blocking=self._blocking,
            fetched=self._fetching,
            host_update=self._host_update,
        )

    def _run(self, op: Op) -> None:
        self._dispatch()
        self._wait_for_cpu()
        updates = eight_bit.is_update(op, self._spec)
        moved = op.bytes_moved * self._update_traffic if updates else op.bytes_moved
        share = CAUSAL_SHARE if op.index in self._halved else 1.0
        spent = self._rates.seconds(op, share * op.flops, moved + written_silently(op, self._storages))
        self._kernels += spent
        self._compute += spent
        if op.phase == "optimizer":
            self._of_optimizer += spent
        if updates or op.name.startswith(HALTS):
            self._halt()

    def _dispatch(self) -> None:
        self._cpu += self._rates.dispatch

    def _halt(self) -> None:
        """The CPU waits until the device has done all that was dispatched."""
        self._cpu = max(self._cpu, self._compute)

    def _wait_for_cpu(self) -> None:
        waited = max(0.0, self._cpu - self._compute)
        self._idle += waited
        self._compute += waited

    def _communicate(self, collective: Collective, phase: Phase) -> None:
        self._dispatch()
        spent = seconds(collective, self._node)
        self._communication += spent
        if collective.blocking:
            # Groups have communicators and streams of their own, and those that block have links of their own as a
            # rule: they do not queue behind what shards send between nodes.
            self._blocking += spent * (phase != "optimizer")
            self._exposed += spent
            self._compute += spent
        elif collective.kind == "gather":
            self._network = max(self._network, self._taken) + spent
            self._expose()
            self._taken = self._compute
        else:
            # FSDP2 reduces on another stream than it gathers on (FSDPCommContext): gathers do not queue behind.
            self._sending = max(self._sending, self._compute) + spent

    def _expose(self) -> None:
        waited = max(0.0, self._network - self._compute)
        self._exposed += waited
        self._compute += waited

    def _moved(self, op: Op) -> int:
        """Bytes that an op moves between host and device, or works on in host memory; 0 for a kernel.

        A kernel may have numbers on the host beside its tensors: attention's seed and offset.
        """
        touched = [self._storages[each] for each in (*op.reads, *op.writes)]
        on_host = [each for each in touched if each.place in ("host", "pinned")]
        is_kernel = len(on_host) < len(touched) and all(each.nbytes <= _NUMBER for each in on_host)
        return op.bytes_moved if on_host and not is_kernel else 0

    def _transfer(self, op: Op, moved: int) -> None:
        to_device = any(self._storages[each].place == "device" for each in op.writes)
        if to_device or any(self._storages[each].place == "device" for each in op.reads):
            # Counted at both ends, and once more where the target is an argument; the link sees it once.
            times = 3 if set(op.writes) & set(op.reads) else 2
            spent = moved / times / self._rates.host_link if self._rates.host_link else 0.0
        else:
            spent = (moved + written_silently(op, self._storages)) / self._host_bandwidth
        self._dispatch()
        if self._spec.offload_activations and op.phase == "backward" and to_device:
            self._fetch(spent)
            return
        self._host = max(self._host, self._compute) + spent
        if op.phase == "optimizer" and not self._spec.optimizer_in_backward:
            self._host_update += spent

    def _fetch(self, spent: float) -> None:
        """A second stream brings a node's tensors back while the device works with those of the node before it.

        torchtune's ``OffloadActivations.unpack_tensor_with_streams``: that stream waits until the node before that is
        done, whose tensors are freed then; the CPU has to have come so far, too. A node is what kernels lie between.
        """
        if self._kernels > self._at_fetch:
            self._room = self._fetched
        self._fetching += spent
        self._host = max(self._host, self._cpu, self._room) + spent
        self._wait_for_host()
        self._fetched, self._at_fetch = self._compute, self._kernels

    def _wait_for_host(self) -> None:
        waited = max(0.0, self._host - self._compute)
        self._waited += waited
        self._compute += waited

    def _wait_for_all(self) -> None:
        self._network = max(self._network, self._sending)
        self._expose()
        self._wait_for_host()


def _goes_on(now: Mapping[str, float], last: Mapping[str, float], taken: Mapping[str, float]) -> bool:
    """Does all go on as in the last two times? Not where one clock comes nearer to another, which it will then meet."""
    steady = all(isclose(last[name], taken[name], rel_tol=_ALIKE) for name in taken)
    nearing = ((now[one] - now[two], taken[one] - taken[two]) for one, two in combinations(_CLOCKS, 2))
    return steady and all(ahead * faster >= -_ALIKE * ahead * ahead for ahead, faster in nearing)
