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
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from memplan.contract.document import Document, of_version
from memplan.contract.table import Constant, Table, if_any
from memplan.errors import UsageError
from memplan.files.documents import read_json
from memplan.files.read import UnreadableError
from memplan.runtime.checkpoint.records import VERSION, Action, BlockPlan, CheckpointPlan, Segment

HINT = 'see docs/checkpoint-plan.md, or write {"modules": ["layers.0", "layers.1"]}'
"""What to do about a plan that cannot be used."""


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


def check_plan(plan: CheckpointPlan, where: str | None = None) -> None:
    """Is the plan consistent?

    Raises:
        UsageError: It is not; names every contradiction.
    """
    if problems := list(_contradictions(plan)):
        all_of_them = f" {problems[0]}" if len(problems) == 1 else "".join(f"\n  - {problem}" for problem in problems)
        raise UsageError(f"the plan cannot be used:{all_of_them}", where=where, hint=HINT)


def _contradictions(plan: CheckpointPlan) -> Iterator[str]:
    # A plan that memplan made may find that nothing is to be done; one written by hand has forgotten something.
    if not plan.blocks and not plan.segments and plan.fingerprint is None:
        yield "it names no modules"
    if "" in {name for block in plan.blocks for name in (block.module, *(entry.op for entry in block.saved))}:
        yield "a module or an op has no name"
    counts = Counter(block.module for block in plan.blocks)
    yield from (f"{name} stands in it {count} times" for name, count in counts.items() if count > 1)
    for block in plan.blocks:
        yield from _block_contradictions(block)
    for outer in plan.blocks:
        inner = [block for block in plan.blocks if block.module.startswith(f"{outer.module}.")]
        yield from (reason for block in inner if (reason := _cannot_nest(outer, block)))
    for segment in plan.segments:
        yield from _segment_contradictions(plan, segment)
    yield from (reason for pair in combinations(plan.segments, 2) if (reason := _cannot_overlap(*pair)))


def _block_contradictions(block: BlockPlan) -> Iterator[str]:
    if block.saved and block.action is not Action.SELECTIVE:
        yield f"{block.module} is no selective block, but keeps {block.saved[0].op}"
    counts = Counter(entry.op for entry in block.saved)
    yield from (f"{block.module} names {op} {count} times" for op, count in counts.items() if count > 1)
    for entry in block.saved:
        if not entry.calls or min(entry.calls) < 0 or len(set(entry.calls)) < len(entry.calls):
            yield f"{block.module} keeps calls {list(entry.calls)} of {entry.op}: name each once, counted from 0"


def _cannot_nest(outer: BlockPlan, inner: BlockPlan) -> str | None:
    if Action.KEEP in {outer.action, inner.action}:
        return None
    if outer.action is not Action.CHECKPOINT or inner.action is Action.OFFLOAD:
        return f"{inner.module} ({inner.action}) stands inside {outer.module} ({outer.action}): plan one of them"
    return None


def _segment_contradictions(plan: CheckpointPlan, segment: Segment) -> Iterator[str]:
    name = segment_name(segment)
    if len(set(segment.modules)) < 2 or len(set(segment.modules)) < len(segment.modules):
        yield f"the segment {name} needs two or more blocks, each once"
    inside = [one for one in segment.modules for other in segment.modules if one.startswith(f"{other}.")]
    yield from (f"the segment {name} holds {one} and what is around it" for one in inside)
    moved = [
        block.module
        for block in plan.blocks
        if block.action is Action.OFFLOAD and any(f"{block.module}.".startswith(f"{one}.") for one in segment.modules)
    ]
    yield from (f"{one} is offloaded and stands in the segment {name}: plan one of them" for one in moved)


def _cannot_overlap(one: Segment, other: Segment) -> str | None:
    inner, outer = sorted((one.modules, other.modules), key=len)
    if set(inner).isdisjoint(outer):
        return None
    starts = range(len(outer) - len(inner) + 1)
    if len(inner) < len(outer) and any(outer[start : start + len(inner)] == inner for start in starts):
        return None
    return f"the segments {segment_name(one)} and {segment_name(other)} overlap: one must hold the other, or none of it"


def segment_name(segment: Segment) -> str:
    """``layers.0 … layers.3``."""
    return f"{segment.modules[0]} … {segment.modules[-1]}" if segment.modules else "without blocks"
