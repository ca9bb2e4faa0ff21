"""Plan files: JSON that people read and write, with a version.

::

    {"schema_version": "1.0",
     "blocks": [{"module": "layers.0", "action": "checkpoint"},
                {"module": "layers.1", "action": "selective", "saved": [{"op": "aten.mm.default", "calls": [0, 2]}]}],
     "segments": [["layers.2", "layers.3"]],
     "prefetch": true,
     "fingerprint": {…}, "promise": {…}}

``{"modules": ["layers.*"]}`` is the short form for checkpointing some modules, patterns included. Unknown keys are left
to later versions. Torch-free.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memplan.contract.document import Document, of_version
from memplan.contract.table import Constant, Table, if_any
from memplan.errors import UsageError
from memplan.files.documents import read_json
from memplan.files.read import UnreadableError
from memplan.runtime.checkpoint.check import HINT, check_plan
from memplan.runtime.checkpoint.records import VERSION, BlockPlan, CheckpointPlan, Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class ModulesPlan:
    """The short form of a plan."""

    modules: tuple[str, ...]
    """What is checkpointed, patterns included."""


MODULES = Document(name="modules", root=ModulesPlan, strict=True, called="the plan", hint=HINT)
"""The short form."""


def _long_form(content: Any) -> Any:
    if not isinstance(content, dict):
        return content
    of_version({"schema_version": VERSION} | content)
    if content.get("level") == "op":
        raise UsageError("level: an op-level plan is for memplan.runtime.partition.load, not for blocks")
    if "modules" not in content:
        return {"blocks": []} | content
    if "blocks" in content:
        raise UsageError("modules: there are blocks, too; say everything under blocks")
    return {"blocks": [{"module": name, "action": "checkpoint"} for name in MODULES.read(content).modules]}


DOCUMENT = Document(
    name="plan-file",
    root=CheckpointPlan,
    tables={
        CheckpointPlan: Table(
            keys={
                "schema_version": Constant(VERSION),
                "prefetch": if_any("prefetch"),
                "fingerprint": if_any("fingerprint"),
                "promise": if_any("promise"),
            },
            before=_long_form,
        ),
        BlockPlan: Table(keys={"saved": if_any("saved")}),
        Segment: "modules",
    },
    strict=True,
    called="the plan",
    hint=HINT,
)
"""A plan as its file holds it."""


def plan_text(plan: CheckpointPlan) -> str:
    """Return a plan as a file holds it: JSON with sorted keys and a line break at the end."""
    return json.dumps(DOCUMENT.plain(plan), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def write_plan(plan: CheckpointPlan, path: Path) -> None:
    """Write a plan file.

    Raises:
        UsageError: It cannot be written.
    """
    try:
        path.write_text(plan_text(plan), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"the plan cannot be written: {error}", where=str(path)) from error


def read_plan(path: Path) -> CheckpointPlan:
    """Read a plan file.

    Raises:
        UsageError: It cannot be read or is no consistent plan; names every problem.
    """
    try:
        content = read_json(path)
    except UnreadableError as error:
        raise UsageError(f"the plan cannot be read: {error}", where=str(path)) from error
    return parse_plan(content, where=str(path))


def parse_plan(content: object, where: str | None = None) -> CheckpointPlan:
    """A plan out of what JSON holds.

    Raises:
        UsageError: It is no consistent plan; names every problem.
    """
    plan: CheckpointPlan = DOCUMENT.read(content, where)
    check_plan(plan, where)
    return plan
