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

from memplan.errors import UsageError
from memplan.files.documents import parse_json
from memplan.files.read import SETTINGS, UnreadableError, read_text
from memplan.job.setup_values import FILE, plain_job
from memplan.job.spec import JobSpec
from memplan.job.strict import WrongValuesError
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

    Args:
        text: What a file holds.
        where: The file, for errors.

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
        found = FILE(content)
    except WrongValuesError as error:
        listed = "".join(f"\n    {problem}" for problem in error.problems)
        raise UsageError(f"the setup is not valid:{listed}", where=where) from None
    predicted = Prediction(**found["predicted"])
    return Setup(job=found["job"], gpu=found["gpu"], predicted=predicted, memplan_version=found["memplan_version"])


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
