"""``memplan presets``: the architectures that need no model file."""

from memplan.cli import console
from memplan.cli.options import JsonAlone


def presets(*, as_json: JsonAlone = False) -> None:
    """List the architectures that 'preset:NAME' builds."""
    from memplan.job.presets import list_presets
    from memplan.report.presets import presets_json, presets_text

    if as_json:
        console.write_plain(presets_json(list_presets()) + "\n")
    else:
        console.write_lines(presets_text(list_presets()))
