"""A program run as ``__main__``, as Python or a launcher would run it."""

import os
import runpy
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, cast
from unittest import mock

from memplan.errors import EstimateError, MemplanError
from memplan.job.program import parse_program
from memplan.job.spec import ScriptTarget
from memplan.job.usercode import explain, location
from memplan.tracing.script.absent import Maker, absent
from memplan.tracing.script.boundaries import Boundaries, StepRepeated
from memplan.tracing.script.effects import no_side_effects
from memplan.tracing.script.processes import played_processes
from memplan.tracing.script.weights import weights_left_out


@contextmanager
def surroundings(assume: Callable[[str], None], further: Mapping[str, Maker] | None = None) -> Iterator[None]:
    """Let what runs in the context find what it needs, and change nothing; the same for traces and for real runs.

    Args:
        assume: Told what stands in for what.
        further: Module → what else is replaced in it.
    """
    with ExitStack() as stack:
        stack.enter_context(absent(assume, {"accelerate.commands.launch": _launches, **(further or {})}))
        stack.enter_context(no_side_effects(assume))
        stack.enter_context(weights_left_out(assume))
        stack.enter_context(played_processes(assume))
        yield


def run_as_main(target: ScriptTarget, at_end: Callable[[], None] = lambda: None) -> None:
    """Run a program as Python would.

    Args:
        target: The program.
        at_end: Called when it ends, however it does, in its environment.

    Raises:
        EstimateError: It fails, or exits with an error.
        StepRepeated: There are enough steps.
    """
    try:
        _run(target, at_end)
    except (StepRepeated, MemplanError, KeyboardInterrupt):
        raise
    except SystemExit as error:
        if error.code not in (None, 0):
            what, hint = f"{target.name} ended the program: sys.exit({error.code!r})", "check its arguments, behind --"
            raise EstimateError(what, where=location(error), hint=hint) from error
    except BaseException as error:
        raise explain(error, target.name) from error


def nothing_learnt(name: str, boundaries: Boundaries) -> EstimateError:
    """The error of a program that ended before its optimizer stepped."""
    made = "an optimizer was made, but none stepped" if boundaries.optimizers else "no optimizer was made"
    return EstimateError(
        f"{name} ended without a training step: {made}",
        hint="give it the arguments with which it trains, behind --",
    )


def _launches(module: ModuleType, stack: ExitStack, assume: Callable[[str], None]) -> None:
    """Run what ``accelerate launch`` would start in this process: other commands call it (``trl sft``)."""

    def launch(arguments: Any) -> None:
        (_, *words), environment = module.prepare_simple_launcher_cmd_env(arguments)
        target = cast("ScriptTarget", parse_program(words).target)
        assume(f"accelerate launches {target.name}: it runs in the program's own process")
        _run(replace(target, environment=environment))

    stack.enter_context(mock.patch.object(module, "simple_launcher", launch))


def _run(target: ScriptTarget, at_end: Callable[[], None] = lambda: None) -> None:
    with _as_main(target), ExitStack() as stack:
        stack.callback(at_end)
        if target.module is not None:
            runpy.run_module(target.module, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(str(target.path), run_name="__main__")


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
