"""``memplan presets``: the architectures that need no model file."""

from typing import Annotated

import typer

from memplan.cli import console


def presets(
    *,
    json: Annotated[bool, typer.Option("--json", help="Write JSON instead of the table.", show_default=False)] = False,
) -> None:
    """List the architectures that 'preset:NAME' builds."""
    from memplan.job.presets import list_presets
    from memplan.report.presets import presets_json, presets_text

    if json:
        console.write_plain(presets_json(list_presets()) + "\n")
    else:
        console.write_lines(presets_text(list_presets()))
