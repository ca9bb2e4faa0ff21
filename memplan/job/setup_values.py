"""What stands in a setup file, value by value: how each field of a job is written as plain data and read again."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, assert_never, get_args, get_type_hints

from memplan.job import spec
from memplan.job.adapters import Lora, Quantize
from memplan.job.parallel import Parallel, parse_parallel
from memplan.job.spec import FileTarget, HubTarget, InputSpec, JobSpec, ModuleTarget, PresetTarget, Target
from memplan.job.strict import (
    Reader,
    WrongValuesError,
    choice,
    count,
    each,
    number,
    of_type,
    optional,
    record,
    refuse,
    switch,
    text,
)
from memplan.job.zero import Zero


def plain_job(job: JobSpec) -> dict[str, Any]:
    """The fields of a job as JSON holds them; ``FILE`` reads them back."""
    return {name: _plain(getattr(job, name)) for name in JOB}


def _plain(value: Any) -> Any:
    match value:
        case FileTarget() | ModuleTarget() | HubTarget() | PresetTarget():
            return _plain_target(value)
        case Parallel():
            return str(value)
        case Zero() | Lora() | InputSpec():
            return {name: _plain(item) for name, item in asdict(value).items()}
        case Path():
            return str(value)
        case tuple():
            return [_plain(item) for item in value]
        case _:
            return value


def _plain_target(target: Target) -> dict[str, str]:
    match target:
        case FileTarget(path=path, factory=factory):
            return {"file": str(path)} | ({"factory": factory} if factory is not None else {})
        case ModuleTarget(module=module, factory=factory):
            return {"module": module, "factory": factory}
        case HubTarget(location=location):
            return {"hf": location}
        case PresetTarget(name=name):
            return {"preset": name}
    assert_never(target)


_TARGETS: Mapping[str, Reader] = {
    "file": record({"file": text, "factory": text}),
    "module": record({"module": text, "factory": text}, frozenset({"factory"})),
    "hf": record({"hf": text}),
    "preset": record({"preset": text}),
}


def _target(content: object) -> Target:
    kinds = [kind for kind in _TARGETS if isinstance(content, dict) and kind in content]
    if len(kinds) != 1:
        refuse(f"an object with one of {', '.join(_TARGETS)}", content)
    found = _TARGETS[kinds[0]](content)
    match kinds[0]:
        case "file":
            return FileTarget(path=Path(found["file"]), factory=found.get("factory"))
        case "module":
            return ModuleTarget(**found)
        case "hf":
            return HubTarget(location=found["hf"])
        case _:
            return PresetTarget(name=found["preset"])


def _dimension(content: object) -> Any:
    return content if content in ("B", "S") and isinstance(content, str) else count(0)(content)


_INPUT = record({"name": text, "dtype": text, "dims": each(_dimension)}, frozenset({"name", "dtype", "dims"}))
_ZERO = record({name: of_type(hint, whole=count(0), truth=switch) for name, hint in get_type_hints(Zero).items()})


def _share(content: object) -> float:
    if number(content) >= 1:
        refuse("a number below 1", content)
    return number(content)


def _object(content: object) -> dict[str, Any]:
    if not isinstance(content, dict):
        refuse("an object", content)
    return content


_LORA = record({
    "rank": count(1),
    "alpha": number,
    "targets": each(text),
    "dropout": _share,
    "dora": switch,
    "prepare": switch,
    "config": optional(_object),
    "path": optional(lambda content: Path(text(content))),
})  # fmt: skip


def _limit(content: object) -> float:
    if number(content) == 0:
        refuse("a number above 0", content)
    return number(content)


def _parallel(content: object) -> Parallel:
    return parse_parallel(text(content))


JOB: Mapping[str, Reader] = {
    "target": _target,
    "batch_size": count(1),
    "seq_len": optional(count(1)),
    "precision": choice(get_args(spec.Precision)),
    "optimizer": optional(choice(get_args(spec.OptimizerName))),
    "optimizer_impl": choice(get_args(spec.OptimizerImpl)),
    "grad_accum": count(1),
    "clip_grad_norm": optional(_limit),
    "attention": choice(get_args(spec.Attention)),
    "checkpoint": text,
    "compile": choice(get_args(spec.Compile)),
    "mode": choice(get_args(spec.Mode)),
    "parallel": _parallel,
    "zero": optional(lambda content: Zero(**_ZERO(content))),
    "lora": optional(lambda content: Lora(**_LORA(content))),
    "quantize": choice(get_args(Quantize)),
    "float8": choice(get_args(spec.Float8)),
    "loss_chunks": count(1),
    "optimizer_in_backward": switch,
    "offload_activations": switch,
    "compress_activations": choice(get_args(spec.Compression)),
    "data_workers": optional(count(0)),
    "prefetch": optional(count(1)),
    "pin_memory": switch,
    "replay_buffer": count(0),
    "replay_buffer_on": choice(get_args(spec.BufferPlace)),
    "inputs": each(lambda content: InputSpec(**_INPUT(content))),
    "data_dependent": choice(get_args(spec.DataDependent)),
    "allow_network": switch,
    "trust_remote_code": switch,
    "max_new_tokens": count(1),
    "kv_block_size": optional(count(1)),
}
"""Every field of ``JobSpec`` but its provenance."""
_JOB_RECORD = record(JOB, frozenset({"target"}))


def _job(content: object) -> JobSpec:
    job = JobSpec(**_JOB_RECORD(content))
    stage = job.parallel.data.removeprefix("zero")
    if job.zero is not None and str(job.zero.stage) != stage:
        raise WrongValuesError([f"zero.stage: {job.zero.stage} does not go with parallel {job.parallel}"])
    return job


_PREDICTED = record(
    {
        "device_bytes": count(0),
        "allocated_bytes": count(0),
        "reserved_bytes": count(0),
        "host_bytes": optional(count(0)),
        "step_seconds": optional(number),
    },
    frozenset({"device_bytes", "allocated_bytes", "reserved_bytes"}),
)

FILE = record(
    {
        "format": text,
        "schema_version": text,
        "memplan_version": text,
        "gpu": text,
        "predicted": _PREDICTED,
        "job": _job,
    },
    frozenset({"memplan_version", "gpu", "predicted", "job"}),
)
"""Reads the whole file; format and version have been looked at before."""
