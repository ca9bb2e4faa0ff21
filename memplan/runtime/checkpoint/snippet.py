"""Code to paste: two lines that apply a plan file, or all of it as torch code that needs no memplan.

It is put together out of the modules that ``memplan.apply`` runs, as far as a plan needs them. Torch-free.
"""

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from importlib.resources import files
from itertools import takewhile

from memplan.errors import UsageError
from memplan.runtime.checkpoint.plan_file import check_plan
from memplan.runtime.checkpoint.records import Action, CheckpointPlan, is_for_gpu
from memplan.seam.patch import Patch

_PACKAGE = "memplan.runtime.checkpoint"
_RECORDS = ("Action", "SavedOp", "BlockPlan", "Segment")
"""What of ``records`` is put into force."""
_PATTERN_SIGNS = frozenset("*?[")
_LINTERS_NOTES = re.compile(r"  # (type: ignore|noqa).*")
_HEAD = '''"""Activation checkpointing as planned by memplan: paste this, and call ``apply_plan(model)`` once.

The model is changed in place; gradients stay what they were. Call it before or after wrapping, on the model itself.
"""'''
_MISMATCH = '''class PlanMismatch(Exception):
    """The model runs otherwise than the plan says."""

    def __init__(self, what: str, *, where: str | None = None, hint: str | None = None) -> None:
        super().__init__("; ".join(part for part in (what, hint) if part))


class PlanFallbackWarning(UserWarning):
    """A plan for a GPU runs on the CPU, whose kernels are others."""'''


def stand_alone_code(plan: CheckpointPlan) -> str:
    """Torch code that does what a plan says, without memplan.

    Args:
        plan: The plan; its names are exact, as those of plans made by memplan are.

    Returns:
        Python source that defines ``apply_plan(model)``.

    Raises:
        UsageError: The plan is inconsistent or names modules by patterns.
    """
    check_plan(plan)
    patterns = [block.module for block in plan.blocks if _PATTERN_SIGNS & set(block.module)]
    if patterns:
        raise UsageError(f"stand-alone code needs exact names: {', '.join(patterns)}", hint="name modules one by one")
    sources = [_Source(module) for module in _modules(plan)]
    imports = "\n".join(sorted({line for source in sources for line in source.imports()}))
    names = "\n".join(sorted({line for source in sources for line in source.names_of_torch()}))
    bodies = [text for source in sources for text in source.definitions()]
    head = f"from __future__ import annotations\n\n{imports}\n\n{names}".rstrip()
    return "\n\n\n".join([_HEAD, head, _MISMATCH, *bodies, _end(plan)])


def _modules(plan: CheckpointPlan) -> Iterator[str]:
    actions = {block.action for block in plan.blocks}
    yield from ("records", "before", "rerun")
    if Action.SELECTIVE in actions:
        yield "selective"
    if Action.OFFLOAD in actions:
        yield from ("host", "offload")
    yield "planned"
    if plan.segments:
        yield from ("segments", "members")


class _Source:
    """A module of this package as text, cut at its top-level statements."""

    def __init__(self, module: str) -> None:
        text = files(_PACKAGE).joinpath(f"{module}.py").read_text(encoding="utf-8")
        self._is_records = module == "records"
        self._lines = text.splitlines()
        self._body = ast.parse(text).body

    def imports(self) -> Iterator[str]:
        """One line for each name from elsewhere."""
        for node in self._body:
            if isinstance(node, ast.Import):
                yield from (f"import {alias.name}" for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and not str(node.module).startswith("memplan"):
                yield from (f"from {node.module} import {alias.name}" for alias in node.names)
        yield from (f"import {_module_of(row)}" for row in self._lent())

    def names_of_torch(self) -> Iterator[str]:
        """One line for each name that the seam hands out under another."""
        yield from (f"{row.name.lstrip('_')} = {row.owner}.{row.name}" for row in self._lent())

    def _lent(self) -> Iterator[Patch]:
        for node in self._body:
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("memplan.seam."):
                rows = {row.name.lstrip("_"): row for row in import_module(str(node.module)).USED}
                yield from (rows[alias.name] for alias in node.names)

    def definitions(self) -> Iterator[str]:
        """Classes, functions and constants, with the first paragraph of each docstring."""
        for node in self._body:
            is_record = isinstance(node, ast.ClassDef) and node.name in _RECORDS
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.Assign | ast.AnnAssign) and (
                is_record or not self._is_records
            ):
                yield self._text(node)

    def _text(self, node: ast.ClassDef | ast.FunctionDef | ast.Assign | ast.AnnAssign) -> str:
        decorators = [item.lineno for item in getattr(node, "decorator_list", [])]
        lines = dict(enumerate(self._lines[: node.end_lineno], start=1))
        for text in _strings(node):
            paragraph = str(text.value).partition("\n\n")[0]
            indent = " " * text.col_offset
            lines.update(dict.fromkeys(range(text.lineno, (text.end_lineno or text.lineno) + 1), ""))
            lines[text.lineno] = f'{indent}"""{paragraph}"""'
        begin = min([node.lineno, *decorators])
        kept = [_LINTERS_NOTES.sub("", lines[number]) for number in range(begin, (node.end_lineno or begin) + 1)]
        return re.sub(r"\n{3,}", "\n\n", "\n".join(kept))


def _module_of(row: Patch) -> str:
    """The module that has a name, or the class that has it."""
    return ".".join(takewhile(lambda part: not part[:1].isupper(), row.owner.split(".")))


def _strings(definition: ast.stmt) -> Iterator[ast.Constant]:
    """Docstrings, those of fields included."""
    for node in ast.walk(definition):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value


def _end(plan: CheckpointPlan) -> str:
    """The plan itself and the function that puts it into force."""
    blocks = "".join(
        f"    BlockPlan(module={block.module!r}, action=Action.{block.action.name}, saved={block.saved!r}),\n"
        for block in plan.blocks
    )
    segments = "".join(f"    Segment(modules={segment.modules!r}),\n" for segment in plan.segments)
    host = "PinnedHost()" if any(block.action is Action.OFFLOAD for block in plan.blocks) else "None"
    lines = [f"BLOCKS = (\n{blocks})", *([f"SEGMENTS = (\n{segments})"] if plan.segments else [])]
    prefetch = "prefetch=True, " if plan.prefetch else ""
    calls = [
        f"put_blocks(model, BLOCKS, nullcontext, {host}, {prefetch}strict={not is_for_gpu(plan)})",
        *(["put_segments(model, SEGMENTS)"] * bool(plan.segments)),
    ]
    body = "\n    ".join(['"""Put the plan into force."""', *calls])
    return "\n".join(lines) + f"\n\n\ndef apply_plan(model: nn.Module) -> None:\n    {body}\n"
