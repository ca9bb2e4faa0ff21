"""Trace a job: build its model in the fake world, run its loop until the step repeats, and hand over the record."""

from collections.abc import Callable
from functools import partial

import torch

from memplan.errors import UsageError
from memplan.job.defaults import NoLossError
from memplan.job.noise import printed_once
from memplan.job.parallel import ALONE
from memplan.job.source import ModelSource
from memplan.job.spec import JobSpec, ScriptTarget
from memplan.tracing.attempts import attempt
from memplan.tracing.decisions import Decisions
from memplan.tracing.fitting import lightning
from memplan.tracing.fitting.loops import LibraryLoop, library_loop
from memplan.tracing.inferred.complete import complete
from memplan.tracing.moved_draws import with_draws
from memplan.tracing.moved_integers import settled
from memplan.tracing.parameter_kinds import elements
from memplan.tracing.prepare import build_model, make_loop
from memplan.tracing.records import DeviceTraits, ModelFacts, Trace, Way
from memplan.tracing.rehearsal import rehearse
from memplan.tracing.script.model_place import SeenModel
from memplan.tracing.script.run import Program, followed, trace_script
from memplan.tracing.session import session
from memplan.tracing.sharding.zero.settings import is_approximated
from memplan.tracing.steps import Steps
from memplan.tracing.surroundings import Recorded

Completed = Callable[[ModelSource, JobSpec, Callable[[str], None]], ModelSource]
"""Works out what a target does not say; told what is assumed."""


def trace_job(
    load: Callable[[], ModelSource],
    spec: JobSpec,
    device: DeviceTraits,
    *,
    rank: int = 0,
    way: Way = "likely",
    seen: SeenModel | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Trace:
    """Run a job's steps on fake tensors and record them.

    Args:
        load: Loads the target; called in the fake world, since user modules may build tensors when imported.
        spec: The job.
        device: What the step is traced for.
        rank: Which of several ranks is traced.
        way: How what nobody knows of the data turns out.
        seen: Told which model is trained, before options change it; None: nobody asks.
        progress: Told, in a few words, what happens now.

    Returns:
        The trace: set-up, then at least two steps, up to the first that repeats.

    Raises:
        UsageError: The options do not fit the target.
        EstimateError: User code fails, or an op has no answer on fake tensors.
    """
    if isinstance(spec.target, ScriptTarget):
        return _program_traced(spec.target, spec, device, rank=rank, way=way, seen=seen, progress=progress)
    given = {each.place: each.number for each in spec.assume}
    heard = rehearse(load, spec, progress) if way == "heard" else None

    def run(completed: Completed) -> Trace:
        def traced(decisions: Decisions) -> Trace:
            return _trace(load, completed, spec, device, rank=rank, decisions=decisions, seen=seen, progress=progress)

        if heard is not None:
            return traced(Decisions(given=given, heard=heard.again()))
        trace, decisions = attempt(lambda decisions: (traced(decisions), decisions), way, given)
        return with_draws(trace, decisions, traced, given) if way == "likely" else trace

    try:
        return run(complete)
    except NoLossError:
        return run(partial(complete, loss=True))


def _program_traced(
    target: ScriptTarget,
    spec: JobSpec,
    device: DeviceTraits,
    *,
    rank: int,
    way: Way,
    seen: SeenModel | None,
    progress: Callable[[str], None],
) -> Trace:
    given = {each.place: each.number for each in spec.assume}

    def run(decisions: Decisions) -> Trace:
        return trace_script(target, spec, device, rank=rank, decisions=decisions, seen=seen, progress=progress)

    trace, decisions = attempt(lambda decisions: (run(decisions), decisions), way, given)
    if way != "likely":
        return trace
    settled_trace = settled(trace, decisions, run, given) if decisions.integers else trace
    for place in sorted(decisions.unused):
        raise UsageError(f"{target.name} reads no integer at {place} that nobody knows", where="--assume")
    return with_draws(settled_trace, decisions, run, given)


def _trace(
    load: Callable[[], ModelSource],
    completed: Completed,
    spec: JobSpec,
    device: DeviceTraits,
    *,
    rank: int,
    decisions: Decisions,
    seen: SeenModel | None,
    progress: Callable[[str], None],
) -> Trace:
    asked, spec = spec, _traced_instead(spec)
    with printed_once(str(spec.target)), session(spec, device, rank=rank, decisions=decisions) as here:
        progress("building the model")
        source = completed(load(), spec, here.recorder.values.assume)
        for sentence in (*source.assumptions, *_padding(asked, spec)):
            here.recorder.values.assume(sentence)
        surroundings = Recorded(here.recorder)
        model = build_model(source, spec, surroundings, seen)
        loop = library_loop(model, source, spec)
        if loop is not None:
            return followed(here, _program(loop, source, spec, device), progress)
        if lightning.is_lightning(model) and spec.mode == "train":
            here.recorder.values.assume(lightning.LEFT_ASIDE)
        facts = _facts(model, spec)
        model = _shared(model, source, spec)
        _alive = _beside(model, asked, surroundings)
        here.compiled.whole(model)
        steps = Steps(here.recorder)
        with surroundings.steppers.watching():
            steps.run(make_loop(source, model, spec, surroundings), progress)
        # Still inside the fake world: there the garbage collector is off, which walks all these records otherwise.
        return here.trace(
            steps,
            facts,
            seq_len=spec.seq_len or source.default_seq_len,
            provenance=dict(source.provenance)
            | {f"forward.{name}": item for name, item in surroundings.arguments.items()},
            batch=surroundings.batch,
            optimizers=surroundings.steppers.names,
            cache=surroundings.cache,
        )


def _program(loop: LibraryLoop, source: ModelSource, spec: JobSpec, device: DeviceTraits) -> Program:
    return Program(
        name=loop.name,
        run=lambda: loop.fit(device.kind),
        provenance={**source.provenance, **loop.provenance},
        seq_len=spec.seq_len or source.default_seq_len,
        assumptions=(loop.said,),
    )


def _shared(model: torch.nn.Module, source: ModelSource, spec: JobSpec) -> torch.nn.Module:
    if spec.parallel == ALONE:
        return model
    from memplan.tracing.sharding.apply import share

    return share(model, source, spec)


def _traced_instead(spec: JobSpec) -> JobSpec:
    """The job with sequences that its ranks can share, and with the stand-in of DeepSpeed where that is missing."""
    if spec.parallel.context > 1:
        from memplan.tracing.sharding.context_parallel import padded

        spec = padded(spec)
    if not is_approximated(spec.parallel):
        return spec
    from memplan.tracing.sharding.zero.approximate import stand_in

    return stand_in(spec)


def _padding(asked: JobSpec, spec: JobSpec) -> tuple[str, ...]:
    """What is said where sequences of a length that was asked for are traced longer."""
    if asked.seq_len == spec.seq_len:
        return ()
    parts = f"{2 * spec.parallel.context} equal parts, two for each rank"
    return (f"sequences of {asked.seq_len} tokens are padded to {spec.seq_len}, to be cut into {parts}",)


def _beside(model: torch.nn.Module, spec: JobSpec, surroundings: Recorded) -> object:
    """What an approximation of ZeRO holds beside what is traced."""
    if not is_approximated(spec.parallel):
        return None
    from memplan.tracing.sharding.zero.approximate import hold_beside

    return hold_beside(model, spec, surroundings)


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
