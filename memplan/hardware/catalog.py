"""Finds GPU profiles by name: ``--profile-dir`` first, then the user's folder, then those that memplan ships."""

import difflib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import platformdirs

from memplan.errors import UsageError
from memplan.files.documents import read_toml
from memplan.files.read import UnreadableError
from memplan.hardware.profile import GpuProfile
from memplan.hardware.schema import make_profile

ALL = "all"
"""Every GPU that there is a profile of; the CPU is none."""
_VENDOR_PREFIX = re.compile(r"^(nvidia-|amd-|tesla-|geforce-|instinct-)+")


def load_profile(name: str, *, profile_dirs: Sequence[Path] = ()) -> GpuProfile:
    """Look up one profile.

    Args:
        name: File stem or alias, in any case; spaces and underscores count as hyphens, and a vendor's prefix as
            ``nvidia-smi`` prints it may stand in front (``NVIDIA GeForce RTX 4090``).
        profile_dirs: Folders to search before the user's and the packaged one, the first winning.

    Returns:
        The profile.

    Raises:
        UsageError: No such profile, or its file is not valid.
    """
    folders = _folders(profile_dirs)
    key = normalise(name)
    if (path := _files(folders).get(key)) is not None:
        return _load(path, folders)
    profiles = {profile.name: profile for profile in list_profiles(profile_dirs=profile_dirs)}
    known = {normalise(alias): profile.name for profile in profiles.values() for alias in profile.aliases}
    if key in known:
        return profiles[known[key]]
    raise _unknown(name, known | {name: name for name in profiles})


def load_profiles(names: Sequence[str], *, profile_dirs: Sequence[Path] = ()) -> tuple[GpuProfile, ...]:
    """Look up several profiles, each once however often and by whatever alias it is named.

    Args:
        names: As for ``load_profile``; ``all`` is every GPU, and ``*24g`` every one whose name or alias is like that
            (``fnmatch``).
        profile_dirs: As for ``load_profile``.

    Raises:
        UsageError: No such profile, nothing is like a pattern, or a file is not valid.
    """
    found = [profile for name in names for profile in _meant(name, profile_dirs)]
    return tuple({profile.name: profile for profile in found}.values())


def list_profiles(*, profile_dirs: Sequence[Path] = ()) -> tuple[GpuProfile, ...]:
    """Every profile that ``load_profile`` finds by file stem, sorted by name with numbers in numeric order.

    Args:
        profile_dirs: As for ``load_profile``.

    Raises:
        UsageError: A profile file is not valid.
    """
    folders = _folders(profile_dirs)
    files = _files(folders)
    return tuple(_load(files[name], folders) for name in sorted(files, key=_natural))


def _meant(name: str, profile_dirs: Sequence[Path]) -> tuple[GpuProfile, ...]:
    pattern = "*" if name.strip().lower() == ALL else normalise(name)
    if not set(pattern) & set("*?["):
        return (load_profile(name, profile_dirs=profile_dirs),)
    found = tuple(
        profile
        for profile in list_profiles(profile_dirs=profile_dirs)
        if profile.kind != "cpu" and any(fnmatch(normalise(each), pattern) for each in (profile.name, *profile.aliases))
    )
    if not found:
        raise UsageError(f"no GPU is like '{name}'", hint="`memplan gpus` lists every profile")
    return found


def normalise(name: str) -> str:
    """The one form in which names are compared: ``NVIDIA GeForce RTX 4090`` is ``rtx-4090``."""
    return _VENDOR_PREFIX.sub("", re.sub(r"[\s_-]+", "-", name.strip().lower()))


def packaged_folder() -> Path:
    """The shipped profiles: inside the package in a wheel, at the top of the repository in a checkout."""
    package = Path(__file__).parents[1]
    inside = package / "hardware_profiles"
    return inside if inside.is_dir() else package.parent / "hardware_profiles"


def user_folder() -> Path:
    """Where a user's own profiles live; they win over shipped ones of the same name."""
    return platformdirs.user_config_path("memplan", appauthor=False) / "gpus"


def _folders(profile_dirs: Iterable[Path]) -> tuple[Path, ...]:
    named = tuple(profile_dirs)
    for folder in named:
        if not folder.is_dir():
            raise UsageError(f"'{folder}' is not a folder", where="--profile-dir")
    return (*named, user_folder(), packaged_folder())


def _files(folders: Iterable[Path], *, without: Collection[Path] = ()) -> dict[str, Path]:
    """Name → file, the earliest folder winning."""
    found: dict[str, Path] = {}
    for folder in folders:
        for path in sorted(set(folder.glob("*.toml")) - set(without)):
            found.setdefault(normalise(path.stem), path)
    return found


def _load(path: Path, folders: tuple[Path, ...]) -> GpuProfile:
    table, chain = _table((path,), folders)
    return make_profile(table, name=normalise(path.stem), where=" over ".join(map(str, chain)))


def _table(chain: tuple[Path, ...], folders: tuple[Path, ...]) -> tuple[dict[str, Any], tuple[Path, ...]]:
    """The table of the chain's last file, laid over those that ``base`` keys lead to, and the whole chain."""
    path = chain[-1]
    own = _parse(path)
    if "base" not in own:
        return own, chain
    base = own.pop("base")
    if not isinstance(base, str):
        raise UsageError(f"base: expected the name of a profile, found {base!r}", where=str(path))
    # A file may refine the profile that it hides, so neither it nor the files that led here are candidates.
    candidates = _files(folders, without=chain)
    if normalise(base) not in candidates:
        raise _unknown(base, {name: name for name in candidates}, where=f"{path}, key base")
    below, chain = _table((*chain, candidates[normalise(base)]), folders)
    if normalise(base) != normalise(path.stem):
        below.pop("aliases", None)  # They name the base, which is still there.
    return _overlay(below, own), chain


def _overlay(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    # A figure that is replaced loses the base's source with it.
    merged = {**base, **own}
    below, above = base.get("sources"), own.get("sources", {})
    if isinstance(below, dict) and isinstance(above, dict):
        merged["sources"] = {key: source for key, source in below.items() if key not in own} | above
    return merged


def _parse(path: Path) -> dict[str, Any]:
    try:
        return read_toml(path)[0]
    except UnreadableError as error:
        raise UsageError(f"cannot read GPU profile '{path.stem}': {error}", where=str(path)) from error


def _unknown(name: str, known: Mapping[str, str], *, where: str | None = None) -> UsageError:
    """The error for a name that is neither a profile nor an alias; ``known`` leads from both to profile names."""
    key = normalise(name)
    begun = [other for other in known if key and other.startswith(key)]
    near = dict.fromkeys(known[other] for other in (*begun, *difflib.get_close_matches(key, known, n=4, cutoff=0.5)))
    guess = f"did you mean {' or '.join(list(near)[:4])}? " if near else ""
    return UsageError(f"unknown GPU '{name}'", where=where, hint=guess + "`memplan gpus` lists every profile")


def _natural(name: str) -> tuple[tuple[str, int], ...]:
    """Sort key with digits by value: ``t4`` < ``v100``, ``a10`` < ``a100``, ``rtx-3060`` < ``rtx-3080``."""
    return tuple((text, int(digits or 0)) for text, digits in re.findall(r"(\D*)(\d*)", name))
