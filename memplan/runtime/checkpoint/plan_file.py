"""Plan files: JSON that people read and write, with a version.

::

    {"schema_version": "1.0",
     "blocks": [{"module": "layers.0", "action": "checkpoint"},
                {"module": "layers.1", "action": "selective", "saved": [{"op": "aten.mm.default", "calls": [0, 2]}]}],
     "segments": [["layers.2", "layers.3"]],
     "fingerprint": {…}, "promise": {…}}

``{"modules": ["layers.*"]}`` is the short form for checkpointing some modules, patterns included. Unknown keys are left
to later versions. Torch-free.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar

from memplan.errors import UsageError
from memplan.files.documents import read_json
from memplan.files.read import UnreadableError
from memplan.runtime.checkpoint.check import check_plan, refuse
from memplan.runtime.checkpoint.records import (
    VERSION,
    Action,
    BlockFingerprint,
    BlockPlan,
    CheckpointPlan,
    Fingerprint,
    Promise,
    SavedOp,
    Segment,
)

T = TypeVar("T")

_ACTIONS = {action.value: action for action in Action}

_JSON_NAMES = {str: "a string", int: "an integer", float: "a number", list: "a list", dict: "an object"}


def plan_text(plan: CheckpointPlan) -> str:
    """A plan as a file holds it: JSON with sorted keys and a line break at the end."""
    content: dict[str, Any] = {
        "schema_version": VERSION,
        "blocks": [_block_content(block) for block in plan.blocks],
        "segments": [list(segment.modules) for segment in plan.segments],
    }
    if plan.fingerprint is not None:
        content["fingerprint"] = asdict(plan.fingerprint)
    if plan.promise is not None:
        content["promise"] = asdict(plan.promise)
    return json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


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

    Args:
        content: The decoded JSON.
        where: Its file, for errors.

    Raises:
        UsageError: It is no consistent plan; names every problem.
    """
    reader = _Reader()
    plan = reader.plan(content)
    refuse(reader.problems, where)
    check_plan(plan, where)
    return plan


def _block_content(block: BlockPlan) -> dict[str, Any]:
    content: dict[str, Any] = {"module": block.module, "action": block.action}
    if block.saved:
        content["saved"] = [{"op": entry.op, "calls": list(entry.calls)} for entry in block.saved]
    return content


class _Reader:
    """Reads records out of JSON and collects what is wrong, with its place: ``blocks[2].action: …``."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def plan(self, content: object) -> CheckpointPlan:
        found = self._as(dict, content, "the file")
        self._version(found)
        if found.get("level") == "op":
            self.problems.append("level: an op-level plan is for memplan.runtime.partition.load, not for blocks")
        if "modules" in found and "blocks" in found:
            self.problems.append("modules: there are blocks, too; say everything under blocks")
        if "modules" in found:
            names = self._strings(found["modules"], "modules")
            return CheckpointPlan(blocks=tuple(BlockPlan(module=name, action=Action.CHECKPOINT) for name in names))
        fingerprint, promise = found.get("fingerprint"), found.get("promise")
        return CheckpointPlan(
            blocks=self._all(self._block, found.get("blocks", []), "blocks"),
            segments=self._all(self._segment, found.get("segments", []), "segments"),
            fingerprint=None if fingerprint is None else self._fingerprint(fingerprint, "fingerprint"),
            promise=None if promise is None else Promise(**self._fields(Promise, promise, "promise")),
        )

    def _version(self, found: Mapping[str, Any]) -> None:
        version = self._as(str, found.get("schema_version", VERSION), "schema_version")
        if version.partition(".")[0] != VERSION.partition(".")[0]:
            self.problems.append(f"schema_version: {version!r} is not read here, {VERSION} is; update memplan")

    def _block(self, content: object, place: str) -> BlockPlan:
        found = self._as(dict, content, place)
        name = self._as(str, found.get("action"), f"{place}.action")
        if name and name not in _ACTIONS:
            self.problems.append(f"{place}.action: {name!r} is none of {', '.join(_ACTIONS)}")
        return BlockPlan(
            module=self._as(str, found.get("module"), f"{place}.module"),
            action=_ACTIONS.get(name, Action.KEEP),
            saved=self._all(self._saved, found.get("saved", []), f"{place}.saved"),
        )

    def _saved(self, content: object, place: str) -> SavedOp:
        found = self._as(dict, content, place)
        calls = self._all(lambda call, at: self._as(int, call, at), found.get("calls"), f"{place}.calls")
        return SavedOp(op=self._as(str, found.get("op"), f"{place}.op"), calls=calls)

    def _segment(self, content: object, place: str) -> Segment:
        return Segment(modules=self._strings(content, place))

    def _fingerprint(self, content: object, place: str) -> Fingerprint:
        found = self._fields(Fingerprint, content, place, skip="each")
        each = self._as(dict, content, place).get("each", [])

        def one(entry: object, at: str) -> BlockFingerprint:
            return BlockFingerprint(**self._fields(BlockFingerprint, entry, at))

        return Fingerprint(**found, each=self._all(one, each, f"{place}.each"))

    def _fields(self, kind: type[Any], content: object, place: str, skip: str = "") -> dict[str, Any]:
        """Plain fields of a record by the types of their annotations."""
        found = self._as(dict, content, place)
        # ``Bytes`` is an ``int`` with another name.
        types = {field.name: field.type if field.type in _JSON_NAMES else int for field in fields(kind)}
        return {
            name: self._as(type_, found.get(name), f"{place}.{name}") for name, type_ in types.items() if name != skip
        }

    def _strings(self, content: object, place: str) -> tuple[str, ...]:
        return self._all(lambda name, at: self._as(str, name, at), content, place)

    def _all(self, read: Callable[[object, str], T], content: object, place: str) -> tuple[T, ...]:
        items = self._as(list, content, place)
        return tuple(read(item, f"{place}[{index}]") for index, item in enumerate(items))

    def _as(self, kind: Any, content: object, place: str) -> Any:
        """The content if it is of this kind, else a problem and an empty value to go on with."""
        right = isinstance(content, kind | int if kind is float else kind) and not isinstance(content, bool)
        empty = right and kind is str and not content
        if right and not empty:
            return float(content) if kind is float else content  # type: ignore[arg-type]
        found = "nothing" if isinstance(content, NoneType) or empty else json.dumps(content)[:40]
        self.problems.append(f"{place}: {_JSON_NAMES[kind]} is needed, {found} is there")
        return kind()
