"""Setup files: one configured job and what was predicted for it, as JSON with a version.

::

    {"format": "memplan-setup", "schema_version": "1.0", "memplan_version": "0.1.0",
     "gpu": "h100-80g", "predicted": {"device_bytes": …, "allocated_bytes": …, "reserved_bytes": …},
     "job": {"target": {"file": "model.py"}, "batch_size": 8, "parallel": "fsdp=8", "lora": {"rank": 16, …}, …}}

``memplan emit`` turns them into a framework's configuration. A key that is not known is an error: half a configuration
is none. Where a value came from stays behind. Torch-free.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from memplan.errors import UsageError
from memplan.files.documents import parse_json
from memplan.files.read import SETTINGS, UnreadableError, read_text
from memplan.job.setup_values import JOB_RECORD, plain_job
from memplan.job.spec import JobSpec
from memplan.job.strict import Reader, WrongValuesError, choice, count, number, optional, record
from memplan.job.strict import text as words
from memplan.units import Bytes
from memplan.versions import installed

FORMAT = "memplan-setup"
VERSION = "1.0"
"""Of the file; a reader takes every file with its own major number."""
_HASH_DIGITS = 12
"""48 bits tell apart what a person may confuse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What was predicted of one rank's step; of all ranks, the worst."""

    device_bytes: Bytes
    """Peak as ``nvidia-smi`` shows it."""
    allocated_bytes: Bytes
    """Peak of the allocator's live blocks."""
    reserved_bytes: Bytes
    """Peak of the allocator's segments."""
    host_bytes: Bytes | None = None
    """Peak in host memory; None where nobody worked it out."""
    step_seconds: float | None = None
    """Time of one optimizer step; None where nobody worked it out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """One way to run a job."""

    job: JobSpec
    """The configuration; files hold nothing of its provenance."""
    gpu: str
    """Name of the profile that it was predicted for."""
    predicted: Prediction
    """With this configuration, on that GPU."""
    memplan_version: str
    """Of the memplan that made it."""


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
_KEYS = {
    "format": choice((FORMAT,)),
    "schema_version": Reader(words.read, {"type": "string", "pattern": r"^1\."}),
    "memplan_version": words,
    "gpu": words,
    "predicted": _PREDICTED.then(lambda found: Prediction(**found)),
    "job": JOB_RECORD,
}


def _setup(values: dict[str, Any]) -> Setup:
    return Setup(**{name: value for name, value in values.items() if name not in ("format", "schema_version")})


DOCUMENT = (
    record(_KEYS, frozenset(_KEYS))
    .then(_setup)
    .document(
        f"memplan setup {VERSION}", "One configured job and what was predicted for it. Integers are bytes or counts."
    )
)
"""Reads a whole file of this major version."""


def make_setup(job: JobSpec, gpu: str, predicted: Prediction) -> Setup:
    """A setup of this memplan."""
    return Setup(job=job, gpu=gpu, predicted=predicted, memplan_version=installed("memplan"))


def write_setup(setup: Setup) -> str:
    """A setup as a file holds it: JSON with sorted keys and a line break at the end."""
    content = {
        "format": FORMAT,
        "schema_version": VERSION,
        "memplan_version": setup.memplan_version,
        "gpu": setup.gpu,
        "predicted": {name: value for name, value in asdict(setup.predicted).items() if value is not None},
        "job": plain_job(setup.job),
    }
    return json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def setup_hash(setup: Setup) -> str:
    """What tells one setup from another, for the heads of files that are made of it; where its plan lies does not."""
    named = replace(setup, job=replace(setup.job, checkpoint=Path(setup.job.checkpoint).name))
    return hashlib.sha256(write_setup(named).encode()).hexdigest()[:_HASH_DIGITS]


def read_setup(text: str, where: str | None = None) -> Setup:
    """Read a setup.

    Raises:
        UsageError: It is no setup of this major version; names every problem.
    """
    try:
        content = parse_json(text)
    except UnreadableError as error:
        raise UsageError(f"the setup cannot be read: {error}", where=where) from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise UsageError("this is no setup file", where=where, hint=f'a setup says "format": "{FORMAT}"')
    version = content.get("schema_version")
    if not isinstance(version, str) or version.partition(".")[0] != VERSION.partition(".")[0]:
        what = f"schema_version {version!r} is not read here, {VERSION} is"
        raise UsageError(what, where=where, hint="update memplan, or make the setup anew")
    try:
        found: Setup = DOCUMENT(content)
    except WrongValuesError as error:
        listed = "".join(f"\n    {problem}" for problem in error.problems)
        raise UsageError(f"the setup is not valid:{listed}", where=where) from None
    return found


def load_setup(path: Path) -> Setup:
    """Read a setup file; a plan that it names relative to itself is named so that it is found from here.

    Raises:
        UsageError: It cannot be read or is no setup.
    """
    try:
        text = read_text(path, SETTINGS)
    except UnreadableError as error:
        raise UsageError(f"the setup cannot be read: {error}", where=str(path)) from error
    setup = read_setup(text, str(path))
    if setup.job.checkpoint in ("none", "full"):
        return setup
    return replace(setup, job=replace(setup.job, checkpoint=str(path.parent / setup.job.checkpoint)))
