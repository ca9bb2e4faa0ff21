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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from annotated_types import Ge

from memplan.contract.document import Document
from memplan.contract.table import Constant, Refused, Table, Tables, Typed, if_any
from memplan.errors import UsageError
from memplan.files.documents import parse_json
from memplan.files.read import SETTINGS, UnreadableError, read_text
from memplan.job.assumed import AssumedInteger, parse_assumed
from memplan.job.parallel import Parallel, parse_parallel
from memplan.job.spec import FileTarget, HubTarget, JobSpec, PresetTarget, ScriptTarget
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
    step_seconds: Annotated[float, Ge(0)] | None = None
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


TABLES: Tables = {
    Setup: Table(keys={"format": Constant(FORMAT), "schema_version": Constant(VERSION, str)}),
    JobSpec: Table(omit=("provenance", "halved", "few_micro_batches")),
    FileTarget: Table(keys={"file": "path", "factory": if_any("factory")}),
    HubTarget: Table(keys={"hf": "location"}),
    PresetTarget: Table(keys={"preset": "name"}),
    ScriptTarget: Refused("a program cannot stand in a setup file", "its arguments decide what a setup would"),
    Parallel: Typed(parse_parallel),
    AssumedInteger: Typed(parse_assumed),
}
"""How a job stands in files."""
DOCUMENT = Document(name="setup", root=Setup, tables=TABLES, strict=True, closed=True, called="the setup")
"""A whole file of this major version."""
JOB = Document(name="job", root=JobSpec, tables=TABLES, strict=True, closed=True, called="the job")
"""The fields of a job alone; a file that is emitted carries some of them."""


def make_setup(job: JobSpec, gpu: str, predicted: Prediction) -> Setup:
    """A setup of this memplan."""
    return Setup(job=job, gpu=gpu, predicted=predicted, memplan_version=installed("memplan"))


def write_setup(setup: Setup) -> str:
    """A setup as a file holds it: JSON with sorted keys and a line break at the end."""
    content = DOCUMENT.plain(setup)
    content["predicted"] = {name: value for name, value in content["predicted"].items() if value is not None}
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
    found: Setup = DOCUMENT.read(content, where)
    job, stage = found.job, found.job.parallel.data.removeprefix("zero")
    if job.zero is not None and str(job.zero.stage) != stage:
        what = (
            f"the setup cannot be read:\n    job.zero.stage: {job.zero.stage} does not go with parallel {job.parallel}"
        )
        raise UsageError(what, where=where)
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
