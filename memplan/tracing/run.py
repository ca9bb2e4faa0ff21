"""Trace a job: build its model in the fake world, run its loop until the step repeats, and hand over the record."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext

import torch

from memplan.job.parallel import ALONE
from memplan.job.source import ModelSource
from memplan.job.spec import JobSpec
from memplan.seam.releases import untried
from memplan.tracing.attempts import attempt
from memplan.tracing.causal import causal_ops
from memplan.tracing.compiled import compiling
from memplan.tracing.decisions import Decisions
from memplan.tracing.dtypes import lacking
from memplan.tracing.host_reads import stand_ins
from memplan.tracing.parameter_kinds import elements
from memplan.tracing.prepare import build_model, make_loop
from memplan.tracing.recorder import Recorder
from memplan.tracing.records import DeviceTraits, ModelFacts, Trace, Way
from memplan.tracing.scratch.cpu_table import CPU_VERDICTS, unexamined
from memplan.tracing.semantics import semantics
from memplan.tracing.sharding.zero.disk import Disk
from memplan.tracing.sharding.zero.settings import is_zero
from memplan.tracing.sparse.table import bodies_of
from memplan.tracing.steps import Steps
from memplan.tracing.surroundings import Recorded
from memplan.tracing.tracing_branches import fakes_pass_for_real
from memplan.tracing.triton_kernels import idle_kernels
from memplan.tracing.values import Values
from memplan.tracing.world import fake_world


def trace_job(
    load: Callable[[], ModelSource],
    spec: JobSpec,
    device: DeviceTraits,
    *,
    rank: int = 0,
    way: Way = "likely",
    progress: Callable[[str], None] = lambda _: None,
) -> Trace:
    """Run a job's steps on fake tensors and record them.

    Args:
        load: Loads the target; called in the fake world, since user modules may build tensors when imported.
        spec: The job.
        device: What the step is traced for.
        rank: Which of several ranks is traced.
        way: How what nobody knows of the data turns out.
        progress: Told, in a few words, what happens now.

    Returns:
        The trace: set-up, then at least two steps, up to the first that repeats.

    Raises:
        UsageError: The options do not fit the target.
        EstimateError: User code fails, or an op has no answer on fake tensors.
    """
    return attempt(lambda decisions: _trace(load, spec, device, rank=rank, decisions=decisions, progress=progress), way)


def _trace(
    load: Callable[[], ModelSource],
    spec: JobSpec,
    device: DeviceTraits,
    *,
    rank: int,
    decisions: Decisions,
    progress: Callable[[str], None],
) -> Trace:
    started = time.perf_counter()
    values = Values(worst_case=spec.data_dependent == "worst", decisions=decisions)
    with ExitStack() as stack:
        offloaded = stack.enter_context(_deepspeed(spec))
        stack.enter_context(fake_world())
        stack.enter_context(fakes_pass_for_real())
        compiled = stack.enter_context(compiling(spec.compile))
        means = stack.enter_context(semantics(device, spec.attention))
        recorder = Recorder(device, means.scratch_rules, means.place_rule, values, bodies_of(device))
        means.ask_host(recorder.is_host)
        means.ask_pinned(recorder.is_pinned)
        means.ask_stream(recorder.use_stream)
        recorder.user_code = means.user_code
        compiled.begin(recorder)
        kernels = stack.enter_context(idle_kernels(device, recorder.forget, values.assume))
        stack.enter_context(recorder.watching())
        stack.enter_context(stand_ins(values))
        stack.enter_context(_among_ranks(spec, rank, recorder))
        recorder.default_place = "device" if device.kind == "cpu" else "host"
        progress("building the model")
        source = load()
        surroundings = Recorded(recorder)
        model = build_model(source, spec, surroundings)
        facts = _facts(model, spec)
        model = _shared(model, source, spec)
        compiled.whole(model)
        steps = Steps(recorder)
        with surroundings.steppers.watching():
            steps.run(make_loop(source, model, spec, surroundings), progress)
        names = {op.name for op in recorder.ops}
        # Still inside the fake world: there the garbage collector is off, which walks all these records otherwise.
        return Trace(
            device=device,
            model=facts,
            ops=tuple(recorder.ops),
            storages=recorder.ledger.storages(),
            events=tuple(recorder.ledger.events),
            steps=tuple(steps.ranges),
            repeats=steps.repeats,
            seq_len=spec.seq_len or source.default_seq_len,
            provenance=dict(source.provenance)
            | {f"forward.{name}": item for name, item in surroundings.arguments.items()},
            assumptions=(
                *_untried(),
                *values.assumptions,
                *decisions.said,
                *means.assumptions(names),
                *compiled.assumptions,
            ),
            not_modelled=(
                *lacking(device, recorder.dtypes),
                *means.not_modelled(names),
                *_bounded(device, recorder),
                *compiled.not_modelled(),
                *kernels,
                *_unknown(recorder),
                *decisions.unbounded,
            ),
            trace_seconds=time.perf_counter() - started,
            graph=recorder.step_graph.graph,
            constants=recorder.step_graph.graph.constants,
            nvme_bytes=offloaded.nbytes,
            batch=surroundings.batch,
            optimizers=surroundings.steppers.names,
            cache=surroundings.cache,
            unsure=values.unsure,
            causal=causal_ops(recorder.step_graph.graph.nodes),
        )


def _bounded(device: DeviceTraits, recorder: Recorder) -> tuple[str, ...]:
    """Ops of a CPU step whose work space lies between bounds; CUDA's say so among the assumptions."""
    if device.kind != "cpu":
        return ()
    known = [name for name in recorder.bounded if CPU_VERDICTS.get(name) is not unexamined]
    return tuple(f"{name}: its work space is known between bounds only" for name in sorted(known))


def _deepspeed(spec: JobSpec) -> AbstractContextManager[Disk]:
    """Before the fake world begins: DeepSpeed is imported here."""
    if not is_zero(spec.parallel):
        return nullcontext(Disk())
    from memplan.tracing.sharding.zero.world import deepspeed_world

    return deepspeed_world(spec.parallel)


def _among_ranks(spec: JobSpec, rank: int, recorder: Recorder) -> AbstractContextManager[object]:
    if spec.parallel == ALONE:
        # Importing what follows takes half a second, and not every torch has it.
        return nullcontext()
    from memplan.tracing.sharding.world import world

    return world(spec.parallel, rank, recorder)


def _shared(model: torch.nn.Module, source: ModelSource, spec: JobSpec) -> torch.nn.Module:
    if spec.parallel == ALONE:
        return model
    from memplan.tracing.sharding.apply import share

    return share(model, source, spec)


def _unknown(recorder: Recorder) -> list[str]:
    """On the CPU an unknown op's result has no elements; for CUDA what kernels take is the CPU's."""
    what = "work space of its kernel" if recorder.device.kind == "cuda" else "what it makes of them"
    return [f"sparse tensors in {name}: {what}" for name in recorder.unknown_sparse]


def _untried() -> tuple[str, ...]:
    sentence = untried(torch.__version__)
    return () if sentence is None else (sentence,)


def _facts(model: torch.nn.Module, spec: JobSpec) -> ModelFacts:
    if spec.parallel != ALONE:
        from memplan.tracing.sharding import fsdp1

        if fsdp1.is_wrapped(model):
            found, learn = fsdp1.sharded_elements(model)
            return ModelFacts(parameters=found, trainable_parameters=learn)
    parameters = list(model.parameters())
    return ModelFacts(
        parameters=sum(map(elements, parameters)),
        trainable_parameters=sum(elements(parameter) for parameter in parameters if parameter.requires_grad),
    )
