"""The table of presets, and its JSON."""

import json
from collections.abc import Sequence

from rich.text import Text

from memplan.job.presets import Preset

_COLUMNS = (("preset", 31), ("parameters", 11), ("default input", 14), ("task", 22))


def presets_text(presets: Sequence[Preset]) -> list[Text]:
    """One line per preset under a line per family, at most 80 cells wide."""
    lines = [Text(_row(*(title for title, _width in _COLUMNS)), style="dim")]
    family = None
    for preset in presets:
        if preset.family != family:
            family = preset.family
            lines.append(Text(family, style="bold"))
        length = f"{preset.seq_len} tokens" if preset.seq_len else "one image"
        lines.append(Text(_row(preset.name, short_count(preset.parameters), length, preset.task)))
    return lines


def presets_json(presets: Sequence[Preset]) -> str:
    """The catalog's facts as JSON, keys sorted."""
    rows = [
        {
            "name": preset.name,
            "family": preset.family,
            "library": preset.library,
            "task": preset.task,
            "model_class": preset.model_class,
            "parameters": preset.parameters,
            "seq_len": preset.seq_len,
            "max_seq_len": preset.max_seq_len,
            "source": preset.source,
        }
        for preset in presets
    ]
    return json.dumps({"schema_version": "1.0", "command": "presets", "presets": rows}, indent=2, sort_keys=True)


def short_count(number: int) -> str:
    """A parameter count with three significant digits: ``8.03 B``, ``124 M``."""
    for unit, factor in (("B", 10**9), ("M", 10**6)):
        # 0.9995 of a unit would round up to it.
        if number >= factor * 0.9995:
            value = number / factor
            decimals = max(0, 2 - (len(str(int(value + 0.5))) - 1))
            return f"{value:.{decimals}f} {unit}"
    return str(number)


def _row(name: str, count: str, length: str, task: str) -> str:
    cells = (f"  {name}" if name != "preset" else name, count, length, task)
    (name_cell, *rest), widths = cells, [width for _title, width in _COLUMNS]
    padded = [name_cell.ljust(widths[0]), rest[0].rjust(widths[1]), rest[1].rjust(widths[2]), "  " + rest[2]]
    return "".join(padded).rstrip()
