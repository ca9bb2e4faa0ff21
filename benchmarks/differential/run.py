"""Run a program for real, and predict it: each in a forked child of a process that has imported torch and memplan.

A fork costs milliseconds where a fresh interpreter costs seconds of imports, and what a program does to torch (hooks,
modes, generators) dies with its child.
"""

import json
import os
import random
import runpy
import signal
import sys
import tempfile
import traceback
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import cpu_measure
import torch

from differential.layers import LAYERS
from differential.program import Block, Chosen, Program, Shape
from differential.training import LOSSES, OPTIMIZERS, PLAIN_LOOP, PLAIN_SETUP, PLAIN_WRAP
from differential.write import source
from memplan.errors import MemplanError
from memplan.hardware.catalog import load_profile
from memplan.job.spec import FileTarget, JobSpec, ScriptTarget
from memplan.measure.local import estimate_here

SECONDS = 240
"""Processor time of a run or a prediction; what takes longer is counted as failed. L-BFGS over a GRU of 128 steps, four
ways of it traced, takes 100 on an idle machine, and up to twice that beside another."""
Outcome = dict[str, Any]
"""Of one child: figures, or ``error`` and its kind."""

_PLAIN = Program(
    batch_size=1,
    start=Shape("flat", 64),
    blocks=(Block(pieces=(Chosen(LAYERS[0], 64),), wrap=PLAIN_WRAP),),
    loss=LOSSES[0],
    optimizer=OPTIMIZERS[0],
    loop=PLAIN_LOOP,
    setup=PLAIN_SETUP,
)
_CPU = load_profile("cpu", profile_dirs=())


def in_child(body: Callable[[], Outcome]) -> Outcome:
    """What ``body`` returns in a forked child, or how it failed there."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        _run_child(body, writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    return json.loads(answer) if answer else {"kind": "died", "error": f"ended by status {status}"}


def _run_child(body: Callable[[], Outcome], writer: int) -> None:
    """Never returns: nothing of the parent's clean-up may run here."""
    # Of processor time: on a busy machine others' work must not look like a program's failure.
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nothing, stream)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outcome = body()
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is the answer
        kind = "refused" if isinstance(error, MemplanError) else "crash"
        lines = traceback.format_exception(error)
        outcome = {"kind": kind, "error": f"{type(error).__name__}: {error}"[:400], "trace": "".join(lines)[-4000:]}
    with os.fdopen(writer, "wb") as pipe:
        pipe.write(json.dumps(outcome).encode())
    os._exit(0)


def real(program: Program, path: Path, steps: int) -> Outcome:
    """Run steps of a program, one thread, a fixed seed; the peak of what PyTorch's CPU allocator gave out."""
    loop = program.loop
    options = Namespace(
        batch_size=program.batch_size,
        seq_len=None,
        steps=steps,
        grad_accum=loop.grad_accum,
        clip_grad_norm=loop.clip_grad_norm,
        autocast=loop.autocast,
    )

    def whole() -> None:
        # What a file makes while it is imported is its program's, too.
        target = cpu_measure.load(path)
        make = target.batch
        target.batch = lambda batch_size, _: make(batch_size)
        cpu_measure.train(target, options)

    def body() -> Outcome:
        _seed()
        return cpu_measure.summarize(*cpu_measure.run(whole))

    return in_child(body)


def predicted(program: Program, path: Path) -> Outcome:
    """What memplan answers for the ``cpu`` profile: peak, ends of the interval, and what it says beside them."""

    def body() -> Outcome:
        _seed()
        spec = JobSpec(
            target=FileTarget(path=path),
            batch_size=program.batch_size,
            grad_accum=program.loop.grad_accum,
            clip_grad_norm=program.loop.clip_grad_norm,
            precision="bf16-mixed" if program.loop.autocast else "fp32",
        )
        return _answer_for(spec)

    return in_child(body)


def _answer_for(spec: JobSpec) -> Outcome:
    """What memplan answers for a job."""
    (answer,) = estimate_here(spec, [_CPU], advice=False)
    peak = answer.peak
    return {
        "peak": peak.requested_bytes,
        "low": peak.low_bytes,
        "high": peak.high_bytes,
        "steps": answer.steps_traced,
        "words": [*answer.assumptions, *answer.not_modelled],
        "at": [str(peak.phase), peak.op, peak.source],
    }


def both(program: Program) -> tuple[Outcome, Outcome]:
    """Truth and prediction of a program, over as many steps: one that never repeats is predicted no further."""
    with _written(program) as path:
        return both_of(program, path) if program.main is None else both_of_script(path)


def of_file(path: Path, batch_size: int) -> tuple[Outcome, Outcome]:
    """The same of a target file that somebody wrote."""
    return both_of(replace(_PLAIN, batch_size=batch_size), path.resolve())


def both_of(program: Program, path: Path) -> tuple[Outcome, Outcome]:
    """The same of a file, which runs with a program's options."""
    truth = real(program, path, program.steps)
    if "error" in truth:
        return truth, {}
    guess = predicted(program, path)
    more = guess.get("steps", 0)
    return (real(program, path, more) if more > program.steps else truth), guess


def both_of_script(path: Path) -> tuple[Outcome, Outcome]:
    """Truth and prediction of a script; truth is all of it, so that it holds what follows the steps that are traced."""

    def whole() -> None:
        runpy.run_path(str(path), run_name="__main__")

    def body() -> Outcome:
        _seed()
        sys.argv[:] = [str(path)]
        return cpu_measure.summarize(*cpu_measure.run(whole))

    def guess() -> Outcome:
        _seed()
        return _answer_for(JobSpec(target=ScriptTarget(path=path)))

    truth = in_child(body)
    return truth, {} if "error" in truth else in_child(guess)


@contextmanager
def _written(program: Program) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.py"
        path.write_text(source(program))
        yield path


def _seed() -> None:
    """One thread, and the same numbers each time."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    random.seed(0)


def usual_words() -> frozenset[str]:
    """What a report says of a plain program; it also imports here what a first estimate imports lazily."""
    with _written(_PLAIN) as path, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (answer,) = estimate_here(JobSpec(target=FileTarget(path=path)), [_CPU], advice=False)
    sys.modules.pop(path.stem, None)
    sys.path[:] = [each for each in sys.path if each != str(path.parent)]
    return frozenset([*answer.assumptions, *answer.not_modelled])
