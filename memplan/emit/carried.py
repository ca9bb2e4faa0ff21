"""What emitted files carry of a job: they are read back, as ``--config`` reads them, and compared with it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from memplan.emit import code, training_arguments
from memplan.job.config_files.merge import with_given
from memplan.job.config_files.read import FileSettings, read_config
from memplan.job.options import OPTIONS
from memplan.job.spec import JobSpec
from memplan.job.zero import Zero

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
