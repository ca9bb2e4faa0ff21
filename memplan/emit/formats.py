"""The frameworks that a setup can be written for; what is written is read back, and compared with the job."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

from memplan.emit import code, training_arguments, words
from memplan.emit.quote import check, one_line
from memplan.emit.records import HEAD_ELSEWHERE, MODULES, SAYABLE, Emitted
from memplan.errors import MemplanError, UsageError
from memplan.hardware.catalog import load_profile
from memplan.job.config_files.read import FileSettings, read_config, with_given
from memplan.job.options import OPTIONS
from memplan.job.setup_file import Setup
from memplan.job.spec import HubTarget, JobSpec, PresetTarget
from memplan.job.trainer_options import refused
from memplan.job.zero import Zero
from memplan.units import Bytes, format_bytes

Peak = Callable[[JobSpec], Bytes]
"""Traces a job and gives the device peak on the setup's GPU; a ``MemplanError`` where that cannot be."""
_HEADING = "What this file does not carry, or says otherwise than the framework by itself:"
OF_THE_PROGRAM = frozenset({
    "batch_size", "seq_len", "loss", "optimizer", "parallel", "data_workers", "prefetch", "pin_memory",
    "replay_buffer", "replay_buffer_on",
})  # fmt: skip
"""Options that every program says somewhere itself where no file does: no framework has a value of its own for them."""
_BESIDE: Mapping[str, str] = {
    "lora": training_arguments.LORA_FILE,
    "quantize": training_arguments.QUANTIZE_FILE,
    "checkpoint": code.PLAN,
}
"""Option → the file of its own that carries it, where it is emitted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedSetup:
    """A job, and what came back of it."""

    lost: tuple[str, ...]
    """Fields that the framework's own file does not give back."""
    alone: JobSpec
    """The job where nothing is done that the files do not carry; what every program says itself is as it was."""


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
    alone = _in_trainer(found.alone) if module is training_arguments else found.alone
    if one_word(found.alone) != one_word(job):
        yield _without(setup, alone, peak, "without what this file does not carry")
    elif alone != found.alone and peak is not None:
        yield _without(setup, alone, peak, "in Trainer, not in a loop written by hand")
    yield from _emulated(setup)


def _in_trainer(job: JobSpec) -> JobSpec:
    """The job in the loop that reads the file, where Trainer does it."""
    can = isinstance(job.target, HubTarget | PresetTarget) and not refused(job)
    return replace(job, loop="trainer") if can else job


def _without(setup: Setup, alone: JobSpec, peak: Peak | None, where: str) -> str:
    """Which peak holds where nobody does what the file does not carry."""
    if peak is None:
        return f"{where} another peak holds, which was not traced"
    try:
        found = peak(alone)
    except MemplanError as error:
        return f"{where} another peak holds, which cannot be traced: {error.what}"
    more = found - setup.predicted.device_bytes
    far = "the same" if not more else f"{format_bytes(Bytes(abs(more)))} {'more' if more > 0 else 'less'}"
    return f"{where}: device peak {format_bytes(found)} (traced), {far}"


def _emulated(setup: Setup) -> Iterator[str]:
    """A sentence where the GPU's cores do not multiply what the setup computes in."""
    try:
        profile = load_profile(setup.gpu)
    except UsageError:
        return
    if setup.job.precision.startswith("bf16") and "bfloat16" in profile.lacks:
        mixed = "fp16-mixed (with a GradScaler)"
        yield f"bfloat16: {profile.name} has no cores for it and emulates it slowly; {mixed} is what it is made for"


def carried(job: JobSpec, files: Mapping[str, str]) -> CarriedSetup:
    """Read emitted files back: name → content, the framework's own file first."""
    with TemporaryDirectory() as folder:
        for name, content in files.items():
            (Path(folder) / name).write_text(content, encoding="utf-8")
        found = read_config(Path(folder) / next(iter(files)))
    read = one_word(_read_job(job, found))
    lost = [name for name in _NAMES if getattr(read, name) != getattr(one_word(job), name)]
    beside = {name for name, file in _BESIDE.items() if file in files}
    missing = [name for name in lost if name not in beside and not _is_left_to_the_program(name, found)]
    if job.optimizer is None and read.optimizer == "adamw" and code.is_of_a_library(job):
        # Such a target has no optimizer of its own, so that this is what was predicted.
        missing.remove("optimizer")
    alone = replace(job, **{name: getattr(read, name) for name in missing})
    kept = {"checkpoint"} & beside
    return CarriedSetup(lost=tuple(name for name in lost if name not in kept), alone=alone)


_NAMES = (*(name for name, option in OPTIONS.items() if option.about.by_hand), "zero")


def _read_job(job: JobSpec, found: FileSettings) -> JobSpec:
    values, _ = with_given(found, {})
    return replace(JobSpec(target=job.target), **values)


def _is_left_to_the_program(name: str, found: FileSettings) -> bool:
    said = "optimizer" if name == "optimizer_impl" else name
    return name in found.lacks or (said in OF_THE_PROGRAM and said not in found.values)


def one_word(job: JobSpec) -> JobSpec:
    """The same job in one of several words for the same thing: two jobs that are equal then have the same memory."""
    job = replace(job, optimizer_impl="auto") if job.optimizer_impl == "foreach" else job
    if not job.parallel.data.startswith("zero"):
        return job
    half = job.precision.removesuffix("-mixed")
    return replace(
        job,
        zero=_zero(job),
        # DeepSpeed has one mixed precision for both names, and optimizers of its own that are fused.
        precision=f"{half}-mixed" if half != "fp32" else "fp32",  # type: ignore[arg-type]
        optimizer_impl="auto" if job.optimizer_impl == "fused" else job.optimizer_impl,
    )


def _zero(job: JobSpec) -> Zero:
    """DeepSpeed's settings; what is not offloaded has no section to hold its buffers."""
    zero = job.zero or Zero(stage=int(job.parallel.data[-1]))  # type: ignore[arg-type]
    idle = [name for name in ("param", "optimizer") if getattr(zero, f"offload_{name}") == "none"]
    usual: dict[str, Any] = {
        field.name: getattr(Zero(), field.name)
        for field in fields(Zero)
        if field.name.partition("_")[0] in idle and "persistence" not in field.name
    }
    if len(idle) == 2:
        usual["pin_memory"] = Zero().pin_memory
    return replace(zero, **usual)


def untold(lost: Collection[str], notes: Collection[str]) -> list[str]:
    """Fields that are lost and that no sentence begins with."""
    return [name for name in lost if not any(note.startswith((f"{name} ", f"{name}:")) for note in notes)]
