"""Trace a program: run it as ``__main__`` on fake tensors, and end it when its step repeats."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from torch import nn

from memplan.errors import EstimateError
from memplan.job.device_argument import for_gpu
from memplan.job.noise import printed_once
from memplan.job.spec import JobSpec, ScriptTarget
from memplan.tracing.checkpointing import apply_checkpointing, described
from memplan.tracing.cuda.graphs import NOT_CAPTURED, names_graphs
from memplan.tracing.decisions import Decisions
from memplan.tracing.recorder import Recorder
from memplan.tracing.records import DeviceTraits, ModelPlace, Trace
from memplan.tracing.script.boundaries import StepRepeated
from memplan.tracing.script.copies import real_copies
from memplan.tracing.script.engines import Engines
from memplan.tracing.script.epoch import Epoch
from memplan.tracing.script.few_micro_batches import FewMicroBatches
from memplan.tracing.script.games import Games
from memplan.tracing.script.loaders import real_loaders
from memplan.tracing.script.main import nothing_learnt, run_as_main, surroundings
from memplan.tracing.script.model import ProgramModel
from memplan.tracing.script.model_place import SeenModel
from memplan.tracing.script.periods import Periods
from memplan.tracing.script.ranks import played_ranks
from memplan.tracing.session import Session, session
from memplan.tracing.steppers import Steppers
from memplan.tracing.surroundings import Recorded
from memplan.tracing.world import scripts_run

if TYPE_CHECKING:
    from memplan.tracing.script.absent import Maker

BEYOND = "what the program does beyond these steps (an evaluation at the end of an epoch, samples) is not in the figure"


def trace_script(
    target: ScriptTarget,
    spec: JobSpec,
    device: DeviceTraits,
    *,
    rank: int,
    decisions: Decisions,
    seen: SeenModel | None,
    progress: Callable[[str], None],
) -> Trace:
    """Run a program until its step repeats.

    Args:
        target: The program and its arguments.
        spec: The job.
        device: What is traced for.
        rank: Which of several ranks is traced.
        decisions: How what nobody knows of the data turns out.
        seen: Told which model the program trains; one that it refuses is none. None: nobody asks.
        progress: Told, in a few words, what happens now.

    Returns:
        The trace: all that the program set up, then its steps.

    Raises:
        EstimateError: The program fails, or trains nothing on the device.
        UsageError: None of its models will do for what is asked.
    """
    own = Path.cwd() if target.path is None else target.path.resolve()
    program = Program(
        name=target.name,
        run=lambda: run_as_main(target, here.own_options.look),
        provenance={"model": target.name},
        for_gpu=lambda: for_gpu(target),
    )
    with printed_once(target.name), session(spec, device, rank=rank, decisions=decisions) as here:
        model = ProgramModel(_use(spec, here.recorder, seen))
        looked_at = model.watching() if seen is not None or spec.checkpoint != "none" else nullcontext()
        with played_ranks(here.recorder, spec.parallel, target.environment), looked_at:
            trace = followed(here, program, progress, Epoch(ends=decisions.way == "later"))
        model.conclude()
    if device.kind != "cuda" or not names_graphs(own):
        return trace
    return replace(trace, not_modelled=(*trace.not_modelled, NOT_CAPTURED))


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What trains by itself until it is stopped."""

    name: str
    """How messages call it."""
    run: Callable[[], None]
    """Runs it."""
    provenance: Mapping[str, str]
    """Where its parts came from."""
    seq_len: int | None = None
    """Tokens per sample, where they are known."""
    assumptions: tuple[str, ...] = ()
    """What is taken for granted."""
    for_gpu: Callable[[], str] = str
    """Says what to change in its arguments so that it takes the GPU; empty: not known."""


def followed(here: Session, program: Program, progress: Callable[[str], None], epoch: Epoch | None = None) -> Trace:
    """Run a program in a session until its step repeats. Arguments as of ``following``.

    Raises:
        EstimateError: It fails, or trains nothing on the device.
    """
    with following(here, program, progress, epoch) as (traces, _):
        program.run()
    [trace] = traces
    return trace


@contextmanager
def following(
    here: Session, program: Program, progress: Callable[[str], None], epoch: Epoch | None = None
) -> Iterator[tuple[list[Trace], Periods]]:
    """Trace what runs in the context, which ends as soon as a step repeats.

    Args:
        here: Records it.
        program: What runs.
        progress: Told, in a few words, what happens now.
        epoch: What feeds its steps, and may end; None: what follows an epoch is nobody's concern.

    Yields:
        Where the trace stands afterwards, and what counts the steps.

    Raises:
        EstimateError: At the end: nothing was trained on the device.
    """
    assume, steppers = here.recorder.values.assume, Steppers()
    periods = Periods(here.recorder, progress, epoch or Epoch(ends=False))
    traces: list[Trace] = []
    here.recorder.host_is_real = here.recorder.device.kind == "cuda"
    for sentence in program.assumptions:
        assume(sentence)
    progress(f"running {program.name}")
    played: dict[str, Maker] = {"gymnasium.wrappers.common": Games(here.decisions).time_limits}
    if here.recorder.device.kind == "cuda":
        played["deepspeed"] = Engines(periods, here.disk).played
    if here.may_leave_out:
        played["transformers.trainer"] = FewMicroBatches(here.recorder).of_trainer
    with (
        real_loaders(here.recorder, periods.epoch), real_copies(), surroundings(assume, played), steppers.watching(),
        periods.watching(), periods.calls.skipping(), scripts_run(assume),
    ):  # fmt: skip
        try:
            yield traces, periods
        except StepRepeated:
            assume(BEYOND)
            if epoch is not None and epoch.is_fed:
                here.decisions.account.ways["later"] = None
            # The frames of the program live on in the traceback, and with them what their variables hold.
            traces.append(_trace(here, program, periods, steppers))
            return
    periods.give_up()
    if not periods.steps.ranges:
        raise nothing_learnt(program.name, periods)
    assume(f"{program.name} ended by itself after {len(periods.steps.ranges)} traced steps")
    traces.append(_trace(here, program, periods, steppers))


def _use(spec: JobSpec, recorder: Recorder, seen: SeenModel | None) -> Callable[[nn.Module, ModelPlace], None]:
    """What is done with the program's model: it is shown to who asks, and a plan is put on it."""
    surroundings = Recorded(recorder)

    def use(model: nn.Module, place: ModelPlace) -> None:
        if seen is not None:
            seen(model, place)
        if spec.checkpoint != "none":
            applied = apply_checkpointing(model, spec.checkpoint, surroundings.recomputing)
            surroundings.assume(f"{described(applied)}, put on {place.expression or type(model).__name__} from outside")

    return use


def _trace(here: Session, program: Program, periods: Periods, steppers: Steppers) -> Trace:
    recorder = here.recorder
    recorder.recording = False
    periods.steps.conclude()
    there = [entry for entry in recorder.ledger.entries if entry.place == "device" and entry.nbytes]
    if any(True for root in periods.roots for _ in root.parameters()):
        # Gradients make small constants of which nobody says where they lie: a model or its input must be there.
        there = [entry for entry in there if entry.role in ("parameter", "input")]
    if recorder.device.kind == "cuda" and not there:
        hint = f"{program.for_gpu() or 'give it the argument for the device'}; or estimate it with --gpu cpu"
        raise EstimateError(f"{program.name} puts nothing on the GPU", hint=hint)
    return here.trace(
        periods.steps, periods.facts(), seq_len=program.seq_len, provenance=program.provenance, batch=(),
        optimizers=steppers.names,
    )  # fmt: skip
