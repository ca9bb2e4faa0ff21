"""``memplan gpus``: which GPUs there are profiles of, and where every figure comes from."""

from typing import Annotated

import typer

from memplan.cli.console import terminal_width, write_lines, write_plain
from memplan.cli.options import JsonAlone, ProfileDirs


def gpus(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A profile, an alias or nvidia-smi's name.", show_default=False)
    ] = None,
    *,
    as_json: JsonAlone = False,
    profile_dir: ProfileDirs = None,
) -> None:
    """List GPU profiles; with a name, show one with its sources."""
    from memplan.hardware.catalog import list_profiles, load_profile
    from memplan.report.gpus import render_json, render_list, render_one

    folders = tuple(profile_dir or ())
    profiles = list_profiles(profile_dirs=folders) if name is None else (load_profile(name, profile_dirs=folders),)
    if as_json:
        write_plain(render_json(profiles) + "\n")
    elif name is None:
        write_lines(render_list(profiles, width=terminal_width()))
    else:
        write_lines(render_one(profiles[0], width=terminal_width()))
