"""The library call: a job's step as an fx graph, and the lifetimes of its tensors."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from memplan.hardware.profile import GpuProfile
from memplan.job.isolate import run_isolated
from memplan.job.spec import JobSpec
from memplan.job.target import format_target
from memplan.lifetime.graph import TensorLifetime, lifetimes_of
from memplan.lifetime.intensity import OpIntensity, intensities
from memplan.lifetime.roofline import Roofline, computing_precision
from memplan.measure.answer import options
from memplan.measure.measurer import measuring
from memplan.tracing.graph_module import graph_module, node_names, readable, saved
from memplan.units import Bytes
from memplan.versions import installed

RATES = "the device's rates are assumed, since its profile does not say: sides of the roofline are by their ratio"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobGraphs:
    """All traced steps of a job as graphs."""

    target: str
    """As typed."""
    device: str
    """Profile that it was traced for."""
    options: Mapping[str, str]
    """Every option that is not at its default."""
    ops_by_phase: Mapping[str, int]
    """Phase → calls."""
    steps: int
    """Optimizer steps among them."""
    tensors: tuple[TensorLifetime, ...]
    """The lifetime graph's nodes, in order of birth."""
    left_out: int
    """Smaller tensors that ``largest`` left out of them."""
    peak_op: str
    """Node of the fx graph after which most requested bytes are alive."""
    peak_bytes: Bytes
    """How many."""
    code: str
    """The fx graph as Python, with phase, module and source line beside each call; empty unless asked for."""
    module: bytes
    """The ``GraphModule`` as ``torch.load`` reads it; empty unless asked for."""
    operations: tuple[OpIntensity, ...]
    """Ops of the last step with their operational intensity, those that take longest first."""
    ridge: float
    """FLOPs for each byte at which the device's arithmetic and its memory take as long."""
    assumptions: tuple[str, ...]
    """What was assumed on the way."""
    memplan_version: str


def job_graphs(
    spec: JobSpec,
    profile: GpuProfile,
    *,
    code: bool = False,
    module: bool = False,
    largest: int | None = None,
    timeout: float = 600.0,
    progress: Callable[[str], None] | None = None,
) -> JobGraphs:
    """Trace a job in full and return its graphs. User code runs in a child process.

    Args:
        spec: The job; of several ranks the first.
        profile: The device that it is traced for.
        code: Is the fx graph's code wanted?
        module: Is the ``GraphModule`` wanted?
        largest: Keep so many tensors, those with the most bytes; None: all.
        timeout: Seconds after which the child is killed.
        progress: Told in a few words what happens now.

    Raises:
        UsageError: The target or an option is wrong.
        EstimateError: User code fails or hangs, or an op has no answer on fake tensors.
    """
    return run_isolated(graphs_here, spec, profile, code, module, largest, timeout=timeout, progress=progress)


def graphs_here(
    spec: JobSpec, profile: GpuProfile, code: bool = False, module: bool = False, largest: int | None = None
) -> JobGraphs:
    """Do the same in this process; arguments as of ``job_graphs``."""
    from memplan.job.child import progress

    with measuring(progress=progress) as measurer:
        # A folded trace has no graph.
        lifetimes = measurer.lifetimes(replace(spec, no_fold=True), profile)
    trace = lifetimes.trace
    made = graph_module(trace)
    names = node_names(trace, made)
    tensors = lifetimes_of(lifetimes, names)
    kept = sorted(tensors, key=lambda each: -each.nbytes)[:largest]
    peak_bytes, peak_op = _peak(tensors)
    phases = [op.phase for op in trace.ops]
    roofline = Roofline.of(profile, computing_precision(spec, trace))
    return JobGraphs(
        target=format_target(spec.target),
        device=profile.name,
        options=options(spec, trace),
        ops_by_phase={phase: phases.count(phase) for phase in dict.fromkeys(phases)},
        steps=len(trace.steps),
        tensors=tuple(sorted(kept, key=lambda each: (each.start, each.id))),
        left_out=len(tensors) - len(kept),
        peak_op=names[peak_op] if peak_op < len(names) else "",
        peak_bytes=Bytes(peak_bytes),
        code=readable(made) if code else "",
        module=saved(made) if module else b"",
        operations=intensities(trace, roofline),
        ridge=roofline.ridge,
        assumptions=(*trace.assumptions, *((RATES,) if roofline.assumed else ())),
        memplan_version=installed("memplan"),
    )


def _peak(tensors: tuple[TensorLifetime, ...]) -> tuple[int, int]:
    """Return the most bytes alive during an op, and the first such op."""
    change: dict[int, int] = {}
    for each in tensors:
        change[each.start] = change.get(each.start, 0) + each.nbytes
        change[each.end] = change.get(each.end, 0) - each.nbytes
    most, at, alive = 0, 0, 0
    for op in sorted(change):
        alive += change[op]
        # What set-up frees one after the other was never alive at once.
        if alive > most and op >= 0:
            most, at = alive, op
    return most, at
