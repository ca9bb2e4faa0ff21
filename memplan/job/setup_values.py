"""What stands in a setup file, value by value: how each field of a job is written as plain data and read again."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, assert_never, get_type_hints

from memplan.errors import UsageError
from memplan.job.adapters import Lora
from memplan.job.assumed import AssumedInteger, parse_assumed
from memplan.job.options import OPTIONS, OptionField
from memplan.job.parallel import Parallel, parse_parallel
from memplan.job.spec import FileTarget, HubTarget, InputSpec, JobSpec, ModuleTarget, PresetTarget, ScriptTarget, Target
from memplan.job.strict import (
    Reader,
    WrongValuesError,
    above,
    choice,
    count,
    each,
    number,
    of_type,
    optional,
    reads,
    record,
    refuse,
    switch,
    text,
)
from memplan.job.zero import Zero


def plain_job(job: JobSpec) -> dict[str, Any]:
    """The fields of a job as JSON holds them; ``JOB_RECORD`` reads them back."""
    return {name: _plain(getattr(job, name)) for name in JOB}


def _plain(value: Any) -> Any:
    match value:
        case FileTarget() | ModuleTarget() | HubTarget() | PresetTarget():
            return _plain_target(value)
        case Parallel() | AssumedInteger():
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
        case ScriptTarget():
            raise UsageError("a program cannot stand in a setup file", hint="its arguments decide what a setup would")
    assert_never(target)


_FILE = record({"file": text, "factory": text}, frozenset({"file"}))
_TARGETS: Mapping[str, Reader] = {
    "file": _FILE.then(lambda found: FileTarget(path=Path(found["file"]), factory=found.get("factory"))),
    "module": record({"module": text, "factory": text}, frozenset({"module", "factory"})).then(
        lambda found: ModuleTarget(**found)
    ),
    "hf": record({"hf": text}, frozenset({"hf"})).then(lambda found: HubTarget(location=found["hf"])),
    "preset": record({"preset": text}, frozenset({"preset"})).then(lambda found: PresetTarget(name=found["preset"])),
}
"""Key that tells its kind → what reads a target."""


@reads({"oneOf": [reader.schema for reader in _TARGETS.values()]})
def _target(content: object) -> Target:
    kinds = [kind for kind in _TARGETS if isinstance(content, dict) and kind in content]
    if len(kinds) != 1:
        refuse(f"an object with one of {', '.join(_TARGETS)}", content)
    found: Target = _TARGETS[kinds[0]](content)
    return found


@reads({"anyOf": [{"enum": ["B", "S"]}, count(0).schema]})
def _dimension(content: object) -> Any:
    return content if content in ("B", "S") and isinstance(content, str) else count(0)(content)


@reads({**number.schema, "exclusiveMaximum": 1})
def _share(content: object) -> float:
    if number(content) >= 1:
        refuse("a number below 1", content)
    return float(number(content))


@reads({"type": "object"})
def _object(content: object) -> dict[str, Any]:
    if not isinstance(content, dict):
        refuse("an object", content)
    return content


_INPUT = record({"name": text, "dtype": text, "dims": each(_dimension)}, frozenset({"name", "dtype", "dims"}))
_ZERO = record({name: of_type(hint, whole=count(0), truth=switch) for name, hint in get_type_hints(Zero).items()})
_LORA = record({
    "rank": count(1),
    "alpha": number,
    "targets": each(text),
    "dropout": _share,
    "dora": switch,
    "prepare": switch,
    "config": optional(_object),
    "path": optional(text.then(Path)),
})  # fmt: skip
_KINDS: Mapping[Any, Reader] = {
    bool: switch,
    str: text,
    float: number,
    InputSpec: _INPUT.then(lambda found: InputSpec(**found)),
    Parallel: text.then(parse_parallel).described("As --parallel takes it"),
    AssumedInteger: text.then(parse_assumed).described("As --assume takes it"),
    Lora: _LORA.then(lambda found: Lora(**found)),
}
"""Type of a value → its reader."""


def _reader(option: OptionField) -> Reader:
    """Return the reader of an option: by its type, within its limits."""
    about = option.about
    if about.least is not None:
        reader = count(about.least)
    elif about.above is not None:
        reader = above(about.above)
    else:
        reader = choice(option.choices) if option.choices else _KINDS[option.item]
    reader = reader if option.item is option.kind else each(reader)
    return (optional(reader) if option.default is None else reader).described(option.summary)


JOB: Mapping[str, Reader] = {
    "target": _target,
    **{name: _reader(option) for name, option in OPTIONS.items()},
    "zero": optional(_ZERO.then(lambda found: Zero(**found))),
}
"""Every field of ``JobSpec`` but its provenance."""


def _agreeing(values: dict[str, Any]) -> JobSpec:
    job = JobSpec(**values)
    stage = job.parallel.data.removeprefix("zero")
    if job.zero is not None and str(job.zero.stage) != stage:
        raise WrongValuesError([f"zero.stage: {job.zero.stage} does not go with parallel {job.parallel}"])
    return job


JOB_RECORD = record(JOB, frozenset({"target"})).then(_agreeing)
"""Reads a whole job."""
