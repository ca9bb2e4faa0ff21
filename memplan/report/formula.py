"""The reports of ``memplan formula``: each figure with the formula that it is of."""

import json
from collections.abc import Mapping, Sequence

from rich.text import Text

from memplan.plan.formula import FormulaRow, total
from memplan.report.draw.layout import pad, paragraphs
from memplan.units import format_bytes

NOTE = (
    "Arithmetic on shapes, not a trace: no allocator, no kernels' work space, no context, and logits only as a bound."
    " docs/textbook.md says where each formula breaks; memplan estimate traces the step."
)
QUANTITY_CELLS, FORMULA_CELLS = 32, 26


def render(rows: Sequence[FormulaRow], traced: Mapping[str, int] | None = None, *, width: int = 80) -> list[Text]:
    """Write the figures of formulas as lines, beside those (words → bytes) of a trace where there is one."""
    head = f"  {pad('formula', QUANTITY_CELLS)}{pad('', FORMULA_CELLS)}{'bytes':>12}"
    lines = [Text(head, style="dim"), *(_line(row) for row in rows)]
    lines.append(
        Text(f"  {pad('together', QUANTITY_CELLS)}{pad('', FORMULA_CELLS)}{_size(total(tuple(rows)))}", "bold")
    )
    for words, size in (traced or {}).items():
        lines.append(Text(f"  {pad('traced: ' + words, QUANTITY_CELLS + FORMULA_CELLS)}{_size(size)}"))
    return [*lines, Text(), *paragraphs("formulas", [NOTE], width)]


def render_json(rows: Sequence[FormulaRow], traced: Mapping[str, int] | None = None) -> str:
    """Write the figures as JSON, keys sorted."""
    content = {
        "schema_version": "1.0",
        "command": "formula",
        "rows": [
            {"quantity": row.quantity, "formula": row.formula, "bytes": row.nbytes, "counted": row.counted}
            for row in rows
        ],
        "total_bytes": total(tuple(rows)),
        "traced": dict(traced) if traced is not None else None,
        "note": NOTE,
    }
    return json.dumps(content, indent=2, sort_keys=True)


def _line(row: FormulaRow) -> Text:
    words = row.quantity if row.counted else f"({row.quantity})"
    style = "" if row.counted else "dim"
    return Text(f"  {pad(words, QUANTITY_CELLS)}{pad(row.formula, FORMULA_CELLS)}{_size(row.nbytes)}", style)


def _size(nbytes: int) -> str:
    return f"{format_bytes(nbytes):>12}"
