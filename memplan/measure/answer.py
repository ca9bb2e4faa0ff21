"""From measured stages to the answer: verdict, interval, breakdown, owners."""

from memplan.errors import EstimateError
from memplan.hardware.profile import GpuProfile
from memplan.job.options import OPTIONS
from memplan.job.spec import JobSpec, ScriptTarget
from memplan.job.target import format_target
from memplan.lifetime.attention import held_by_attention
from memplan.lifetime.owners import by_category, by_owner
from memplan.lifetime.records import Category, Lifetimes
from memplan.measure.context import context_of
from memplan.measure.interval import allocated_interval, classify, interval, reserved_interval, shipped_residuals
from memplan.measure.kv_cache import kv_cache
from memplan.measure.measured import Measured
from memplan.measure.records import Estimate, Fragmentation, GpuFacts, Owner, PeakFacts, Verdict
from memplan.replay.data_pipeline import DataPipeline, data_pipeline
from memplan.replay.host import host_peak
from memplan.replay.records import MemoryProfile
from memplan.tracing.records import Event, Op, Trace
from memplan.tracing.turns import stretches
from memplan.units import Bytes, OpIndex, StorageId, format_bytes
from memplan.versions import installed

_SET_UP = Op(
    index=OpIndex(-1), name="", phase="setup", module="", source="", flops=0, bytes_moved=Bytes(0), reads=(), writes=()
)
"""What stands for all that comes before the first step: its ops are not recorded."""


def compose(spec: JobSpec, profile: GpuProfile, measured: Measured) -> Estimate:
    """Put the answer together."""
    trace, memory = measured.lifetimes.trace, measured.memory
    profile = context_of(profile, trace)
    at, alive = _peak_moment(measured)
    context = profile.context_bytes
    device_bytes = memory.peak_reserved + context
    basis = shipped_residuals().basis(classify(spec, profile, measured))
    low, high = interval(profile, measured, basis)
    op = trace.ops[at.op] if at.op >= 0 else _SET_UP
    pipeline = _loading(spec, trace)
    return Estimate(
        target=format_target(spec.target),
        verdict=judge(
            _wanted(profile, measured), high, profile.usable_bytes, retries=memory.retries + bool(memory.growth)
        ),
        gpu=GpuFacts.of(profile),
        parameters=trace.model.parameters,
        trainable_parameters=trace.model.trainable_parameters,
        options=options(spec, trace),
        peak=PeakFacts(
            requested_bytes=memory.peak_requested,
            allocated_bytes=measured.allocated,
            reserved_bytes=memory.peak_reserved,
            device_bytes=device_bytes,
            low_bytes=low,
            high_bytes=high,
            basis=basis,
            allocated_interval=allocated_interval(profile, measured, basis),
            reserved_interval=reserved_interval(profile, measured, basis),
            phase=op.phase,
            op=op.name,
            module=op.module,
            source=op.source,
            host_bytes=host_peak(trace),
            nvme_bytes=trace.nvme_bytes,
            after_epoch_bytes=_after_epoch(profile, measured),
            data_pipeline_bytes=pipeline.total if pipeline else 0,
        ),
        breakdown=_breakdown(measured.lifetimes, alive, memory.peak_reserved, context),
        owners=_owners(measured.lifetimes, alive),
        fragmentation=Fragmentation(external=memory.external_fragmentation, internal=memory.internal_fragmentation),
        flops_per_step=_flops_of_last_step(trace),
        advice=(),
        assumptions=trace.assumptions
        + measured.notes
        + _on_epochs(profile, measured)
        + _on_retries(memory)
        + _on_growth(memory)
        + (pipeline.assumptions if pipeline else ()),
        not_modelled=trace.not_modelled
        + shipped_residuals().of_another_age(basis, installed("torch"))
        + (pipeline.not_modelled if pipeline else ()),
        provenance=provenance(spec, trace),
        timings={"trace_seconds": trace.trace_seconds, "replay_seconds": measured.replay_seconds},
        steps_traced=len(trace.steps),
        repeats=trace.repeats,
        torch_version=installed("torch"),
        memplan_version=installed("memplan"),
        kv_cache=kv_cache(trace.cache, spec.kv_block_size),
        folded=trace.folded,
        attention={str(part): size for part, size in held_by_attention(measured.lifetimes, alive).items()},
    )


def unknown(spec: JobSpec, profile: GpuProfile, error: EstimateError) -> Estimate:
    """The answer for a device on which the step cannot be traced; ``not_modelled`` says why."""
    nothing = dict.fromkeys((*map(str, Category), "fragmentation", "context"), 0)
    return Estimate(
        target=format_target(spec.target),
        verdict=Verdict.UNKNOWN,
        gpu=GpuFacts.of(profile),
        parameters=0,
        trainable_parameters=0,
        options={},
        peak=PeakFacts(
            requested_bytes=0,
            allocated_bytes=0,
            reserved_bytes=0,
            device_bytes=0,
            low_bytes=0,
            high_bytes=0,
            phase="setup",
            op="",
            module="",
            source="",
        ),
        breakdown=nothing,
        owners=(),
        fragmentation=Fragmentation(external=0.0, internal=0.0),
        flops_per_step=0,
        advice=(),
        assumptions=(),
        not_modelled=(f"{error.what} ({error.where})" if error.where else error.what,),
        provenance=dict(spec.provenance),
        timings={},
        steps_traced=0,
        repeats=False,
        torch_version=installed("torch"),
        memplan_version=installed("memplan"),
    )


def judge(device_bytes: int, high_bytes: int, usable_bytes: int, *, retries: int = 0) -> Verdict:
    """The verdict. A device without a limit (``usable_bytes`` 0) fits everything.

    Args:
        device_bytes: Predicted peak; OOM if it does not fit.
        high_bytes: Upper end of its interval; TIGHT if only this does not fit.
        usable_bytes: What the device has.
        retries: How often the allocator must give its cache back to make it fit; TIGHT if it must at all.
    """
    if not usable_bytes or (high_bytes <= usable_bytes and not retries):
        return Verdict.FITS
    return Verdict.OOM if device_bytes > usable_bytes else Verdict.TIGHT


def _wanted(profile: GpuProfile, measured: Measured) -> int:
    """What must fit: work space that libraries can do without need not."""
    likely, needed = (memory.peak_reserved + profile.context_bytes for memory in (measured.memory, measured.needed))
    return min(likely, max(needed, profile.usable_bytes))


def _after_epoch(profile: GpuProfile, measured: Measured) -> int:
    """Device bytes of what follows an epoch; 0 where it takes no more than the steps."""
    if measured.after_epoch is None or measured.after_epoch.memory.peak_reserved <= measured.memory.peak_reserved:
        return 0
    return _wanted(profile, measured.after_epoch)


def _on_epochs(profile: GpuProfile, measured: Measured) -> tuple[str, ...]:
    if measured.after_epoch is None:
        return ()
    more = _after_epoch(profile, measured) > 0
    takes = "more than the steps: it has a line of its own" if more else "no more than the steps"
    return (f"what follows an epoch (two batches of every loader were traced) takes {takes}",)


def _loading(spec: JobSpec, trace: Trace) -> DataPipeline | None:
    """What the data loader holds, if anything was said of it."""
    if spec.data_workers is None and not spec.pin_memory:
        return None
    return data_pipeline(trace.batch, workers=spec.data_workers or 0, prefetch=spec.prefetch, pin=spec.pin_memory)


def _on_retries(memory: MemoryProfile) -> tuple[str, ...]:
    if not memory.retries:
        return ()
    return (f"it fits because the allocator gives its cache back {memory.retries} times, which stalls the device",)


def _on_growth(memory: MemoryProfile) -> tuple[str, ...]:
    if not memory.growth:
        return ()
    more, steps = format_bytes(memory.growth), memory.steps_replayed
    return (f"reserved memory grows by {more} with every step, until the device is full: the peak is after {steps}",)


def provenance(spec: JobSpec, trace: Trace) -> dict[str, str]:
    """Where each field's value came from: what the user typed stands before what the target says, before defaults."""
    typed = {field: origin for field, origin in spec.provenance.items() if origin != "default"}
    # Outside training the target's loss and optimizer are never called.
    unused = frozenset() if spec.mode == "train" else _OF_TRAINING
    unused |= frozenset() if spec.parallel.ranks > 1 else {"parallelize"}
    read = {field: origin for field, origin in trace.provenance.items() if field not in unused}
    return dict(spec.provenance) | read | typed


_OF_TRAINING = frozenset({"loss", "optimizer", "train_step"})
"""What a target may define for training alone."""


def options(spec: JobSpec, trace: Trace) -> dict[str, str]:
    """What the step was, as text, for the report's job line."""
    traced = {
        "seq_len": trace.seq_len,
        "optimizer": optimizer_in_words(spec, trace),
        "replay_buffer_on": spec.replay_buffer_on if spec.replay_buffer else None,
    }
    texts: dict[str, str] = {}
    for name, option in OPTIONS.items():
        value, about = traced.get(name, getattr(spec, name)), option.about
        if isinstance(spec.target, ScriptTarget) and not _says_of_program(name, spec):
            continue
        is_told = about.on_job_line == "always" or (about.on_job_line == "given" and value != option.default)
        if value is not None and is_told and (spec.mode == "train" or not about.training_only):
            texts[name] = "yes" if value is True else str(value)
    return texts


def _says_of_program(name: str, spec: JobSpec) -> bool:
    """Does a field say what a program does? Where no plan is put on its model, it may checkpoint itself."""
    if name == "checkpoint":
        return spec.checkpoint != "none"
    return OPTIONS[name].about.for_programs or name in ("optimizer", "mode")


def optimizer_in_words(spec: JobSpec, trace: Trace) -> str:
    """``adamw``, as options name what memplan makes; else what steps: ``own SGD``, or nothing of torch's."""
    if isinstance(spec.target, ScriptTarget):
        return " + ".join(trace.optimizers) or "no torch optimizer"
    named = spec.optimizer or "adamw"
    if not {"optimizer", "train_step"} & trace.provenance.keys():
        return named
    if not trace.optimizers:
        return "no torch optimizer" if "train_step" in trace.provenance else "own optimizer"
    return " + ".join(f"own {name}" if name else named for name in trace.optimizers)


def _peak_moment(measured: Measured) -> tuple[Event, tuple[StorageId, ...]]:
    """The peak (``MemoryProfile.peak_at``), and what is alive then.

    A peak in a later repetition of the step is shown at the same place of the traced one.
    """
    stream = measured.stream
    events = [event for event in measured.lifetimes.trace.events if event.storage in measured.lifetimes.buffers]
    at = measured.memory.peak_at
    if at >= len(events):
        at = len(stream.prefix) + (at - len(stream.prefix)) % len(stream.step)
    alive: dict[StorageId, None] = {}
    for event in events[: at + 1]:
        if event.action == "alloc":
            alive[event.storage] = None
        else:
            del alive[event.storage]
    return events[at], tuple(alive)


def _breakdown(lifetimes: Lifetimes, alive: tuple[StorageId, ...], reserved: int, context: int) -> dict[str, int]:
    parts = {str(category): size for category, size in by_category(lifetimes, alive).items()}
    return parts | {"fragmentation": reserved - sum(parts.values()), "context": context}


def _owners(lifetimes: Lifetimes, alive: tuple[StorageId, ...]) -> tuple[Owner, ...]:
    return tuple(
        Owner(module=module, source=source, category=str(category), bytes=size)
        for (module, source, category), size in by_owner(lifetimes, alive)
    )


def _flops_of_last_step(trace: Trace) -> int:
    if not trace.steps:
        return 0
    last = trace.steps[-1]
    return sum(times * sum(op.flops for op in ops) for ops, times in stretches(trace, last.first_op, last.end_op))
