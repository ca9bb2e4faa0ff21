"""``--gpu``: the profiles that a command answers for, the same default and the same words wherever it is an option."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from memplan.cli import console, options
from memplan.errors import UsageError

if TYPE_CHECKING:
    from memplan.hardware.profile import GpuProfile


def profiles_for(names: Sequence[str] | None, folders: Sequence[Path] | None) -> "tuple[GpuProfile, ...]":
    """Return the profiles of all GPUs asked for; ``all`` and patterns stand for several.

    Args:
        names: As typed; none: those of the project, else ``options.DEFAULT_GPU``, and a note says so.
        folders: Of further profiles.

    Raises:
        UsageError: There is no such profile.
    """
    from memplan.hardware.catalog import load_profiles

    names, further = (names, ()) if names else _default()
    return load_profiles(names, profile_dirs=[*(folders or ()), *further])


def profile_for(names: Sequence[str] | None, folders: Sequence[Path] | None) -> "GpuProfile":
    """Return the profile of the one GPU that a command answers for.

    Args:
        names: As typed; none: the first of the project, else ``options.DEFAULT_GPU``, and a note says so.
        folders: Of further profiles.

    Raises:
        UsageError: There is no such profile, or several are meant.
    """
    from memplan.hardware.catalog import load_profiles

    names, further = (names, ()) if names else _default(most=1)
    found = load_profiles(names, profile_dirs=[*(folders or ()), *further])
    if len(found) > 1:
        what = f"--gpu: one GPU at a time, not {', '.join(profile.name for profile in found)}"
        raise UsageError(what, hint="estimate and batch answer for several, sweep searches for several")
    return found[0]


def _default(most: int | None = None) -> tuple[Sequence[str], tuple[Path, ...]]:
    """GPUs that a command is for where nobody types one, and folders of their profiles: the project's own, if any."""
    from memplan.project.find import gpus_of_project

    found = gpus_of_project(Path())
    if found is None:
        console.tell(f"note: no --gpu was given: this is for one {options.DEFAULT_GPU}\n")
        return [options.DEFAULT_GPU], ()
    names, folders, file = found
    console.tell(f"note: no --gpu was given: this is for {', '.join(names[:most])}, as {file} says\n")
    return names[:most], folders
