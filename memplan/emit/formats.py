"""The frameworks that a setup can be written for."""

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from types import ModuleType

from memplan.emit import words
from memplan.emit.carried import CarriedSetup, carried, one_word, untold
from memplan.emit.quote import check, one_line
from memplan.emit.records import HEAD_ELSEWHERE, MODULES, Emitted
from memplan.emit.says import SAYABLE
from memplan.errors import MemplanError, UsageError
from memplan.hardware.catalog import load_profile
from memplan.job.setup_file import Setup
from memplan.job.spec import JobSpec
from memplan.units import Bytes, format_bytes

Peak = Callable[[JobSpec], Bytes]
"""Traces a job and gives the device peak on the setup's GPU; a ``MemplanError`` where that cannot be."""
_HEADING = "What this file does not carry, or says otherwise than the framework by itself:"


def emit(setup: Setup, to: str, peak: Peak | None = None) -> Emitted:
    """Write a setup for a framework.

    What is written is read back. What the framework's file does not give back is told, in the file and in the notes,
    with the peak of the job without it.

    Args:
        setup: The setup; a checkpoint plan that it names is read where the format holds it.
        to: One of ``memplan.emit.records.FORMATS``.
        peak: Traces the job without what the file does not carry; None: that is not traced, and said so.

    Raises:
        UsageError: The framework cannot do what the setup says, or a file would not be of its language.
    """
    if (refusal := SAYABLE[to].refusal(setup.job)) is not None:
        raise refusal
    module = import_module(f"memplan.emit.{MODULES[to]}")
    bare: Mapping[str, str] = module.render(setup, ())
    check(bare)
    notes = tuple(map(one_line, _notes(setup, module, carried(setup.job, bare), peak)))
    files: Mapping[str, str] = module.render(setup, (*words.head(setup), *([_HEADING] if notes else []), *notes))
    check(files)
    # Where the framework's own file has no room for its head, that is told, too.
    head = tuple(map(one_line, words.head(setup))) if HEAD_ELSEWHERE in files else ()
    return Emitted(files=files, notes=(*head, *notes))


def _notes(setup: Setup, module: ModuleType, found: CarriedSetup, peak: Peak | None) -> Iterator[str]:
    job = setup.job
    told = tuple(module.notes(job, found.lost))
    yield from told
    yield from (f"{name}: the file does not carry what the setup says" for name in untold(found.lost, told))
    if one_word(found.alone) != one_word(job):
        yield _without(setup, found.alone, peak)
    yield from _emulated(setup)


def _without(setup: Setup, alone: JobSpec, peak: Peak | None) -> str:
    """Which peak holds where nobody does what the file does not carry."""
    if peak is None:
        return "without what this file does not carry another peak holds, which was not traced"
    try:
        found = peak(alone)
    except MemplanError as error:
        return f"without what this file does not carry another peak holds, which cannot be traced: {error.what}"
    more = found - setup.predicted.device_bytes
    far = "the same" if not more else f"{format_bytes(abs(more))} {'more' if more > 0 else 'less'}"
    return f"without what this file does not carry: device peak {format_bytes(found)} (traced), {far}"


def _emulated(setup: Setup) -> Iterator[str]:
    """A sentence where the GPU's cores do not multiply what the setup computes in."""
    try:
        profile = load_profile(setup.gpu)
    except UsageError:
        return
    if setup.job.precision.startswith("bf16") and "bfloat16" in profile.lacks:
        mixed = "fp16-mixed (with a GradScaler)"
        yield f"bfloat16: {profile.name} has no cores for it and emulates it slowly; {mixed} is what it is made for"
