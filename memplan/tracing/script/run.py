"""Trace a program: run it as ``__main__`` on fake tensors, and end it when its step repeats."""

import os
import runpy
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from memplan.errors import EstimateError, MemplanError
from memplan.job.spec import JobSpec, ScriptTarget
from memplan.job.usercode import explain, location
from memplan.tracing.decisions import Decisions
from memplan.tracing.records import DeviceTraits, Trace
from memplan.tracing.script.absent import absent
from memplan.tracing.script.effects import no_side_effects
from memplan.tracing.script.loaders import real_loaders
from memplan.tracing.script.periods import Periods, StepRepeated
from memplan.tracing.script.ranks import played_ranks
from memplan.tracing.script.weights import weights_left_out
from memplan.tracing.session import Session, session
from memplan.tracing.steppers import Steppers

LOADERS = "batches that the program's data loaders make are not counted: a real run on the CPU has them besides"


def trace_script(
    target: ScriptTarget,
    spec: JobSpec,
    device: DeviceTraits,
    *,
    rank: int,
    decisions: Decisions,
    progress: Callable[[str], None],
) -> Trace:
    """Run a program until its step repeats.

    Args:
        target: The program and its arguments.
        spec: The job.
        device: What is traced for.
        rank: Which of several ranks is traced.
        decisions: How what nobody knows of the data turns out.
        progress: Told, in a few words, what happens now.

    Returns:
        The trace: all that the program set up, then its steps.

    Raises:
        EstimateError: The program fails, or trains nothing on the device.
    """
    with session(spec, device, rank=rank, decisions=decisions) as here:
        assume, steppers = here.recorder.values.assume, Steppers()
        periods = Periods(here.recorder, progress)
        here.recorder.host_is_real = device.kind == "cuda"
        if device.kind == "cpu":
            assume(LOADERS)
        progress(f"running {target.name}")
        with (
            absent(assume), weights_left_out(assume), played_ranks(here.recorder), real_loaders(),
            no_side_effects(assume), steppers.watching(), periods.watching(),
        ):  # fmt: skip
            try:
                _run(target)
            except StepRepeated:
                # The frames of the program live on in the traceback, and with them what their variables hold.
                return _trace(here, target, periods, steppers)
        periods.steps.give_up()
        if not periods.steps.ranges:
            raise _nothing_learnt(target, periods)
        assume(f"{target.name} ended by itself after {len(periods.steps.ranges)} traced steps")
        return _trace(here, target, periods, steppers)


def _trace(here: Session, target: ScriptTarget, periods: Periods, steppers: Steppers) -> Trace:
    recorder = here.recorder
    recorder.recording = False
    periods.steps.conclude()
    if recorder.device.kind == "cuda" and not any(
        entry.place == "device" and entry.nbytes for entry in recorder.ledger.entries
    ):
        what = f"{target.name} puts nothing on the GPU"
        raise EstimateError(what, hint="give it the argument that chooses the device, or estimate it with --gpu cpu")
    return here.trace(
        periods.steps, periods.facts(), seq_len=None, provenance={"model": target.name}, batch=(),
        optimizers=steppers.names,
    )  # fmt: skip


def _nothing_learnt(target: ScriptTarget, periods: Periods) -> EstimateError:
    made = "an optimizer was made, but none stepped" if periods.optimizers else "no optimizer was made"
    return EstimateError(
        f"{target.name} ended without a training step: {made}",
        hint="give it the arguments with which it trains, behind --",
    )


def _run(target: ScriptTarget) -> None:
    """Run it as Python would; what it raises is told as an error of its own."""
    try:
        with _as_main(target):
            if target.module is not None:
                runpy.run_module(target.module, run_name="__main__", alter_sys=True)
            else:
                runpy.run_path(str(target.path), run_name="__main__")
    except (StepRepeated, MemplanError, KeyboardInterrupt):
        raise
    except SystemExit as error:
        if error.code not in (None, 0):
            what, hint = f"{target.name} ended the program: sys.exit({error.code!r})", "check its arguments, behind --"
            raise EstimateError(what, where=location(error), hint=hint) from error
    except BaseException as error:
        raise explain(error, target.name) from error


@contextmanager
def _as_main(target: ScriptTarget) -> Iterator[None]:
    """Arguments, import path and environment as ``python`` (or a launcher) would set them."""
    folder = Path.cwd() if target.path is None else target.path.resolve().parent
    argv = [target.module or str(target.path), *target.arguments]
    with (
        mock.patch.object(sys, "argv", argv),
        mock.patch.object(sys, "path", [str(folder), *sys.path]),
        mock.patch.dict(os.environ, target.environment),
    ):
        yield
