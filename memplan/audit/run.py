"""Everything that is asked for, file by file, many on several processors; and the same as a forge names files."""

import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from memplan.audit.census import census, renamed
from memplan.audit.inspect import inspect_file
from memplan.audit.records import Audit, FileAudit
from memplan.audit.walk import files_of
from memplan.findings.rules import AUDIT
from memplan.job.side_by_side import processors

_ALONE = 200
"""Files that one process looks through in about the time that others need to start."""
_MOST = 8
"""Processes."""


def audit(
    paths: Sequence[Path], *, rules: Sequence[str] = tuple(AUDIT), exclude: Sequence[str] = (), jobs: int | None = 1
) -> Audit:
    """Look through files for memory hazards; nothing in them is run.

    Args:
        paths: Files and folders.
        rules: Codes to look for.
        exclude: Patterns of paths that are left out.
        jobs: Processes; None: as many as there are processors, for few files one. With more than one, the program's
            main module is imported again in each and must guard what it does there (``multiprocessing``).

    Raises:
        UsageError: A path does not exist.
    """
    began = time.perf_counter()
    files = files_of(paths, exclude)
    at_once = min(jobs or min(processors(), _MOST), 1 + len(files) // _ALONE) if jobs != 1 else 1
    found = tuple(_inspected(files, tuple(rules), at_once))
    names = tuple(path.as_posix() for path in paths)
    pools = census([file.pools for file in found])
    return Audit(paths=names, files=found, rules=tuple(rules), pools=pools, seconds=time.perf_counter() - began)


def _inspected(files: Sequence[tuple[Path, str]], rules: tuple[str, ...], at_once: int) -> Iterator[FileAudit]:
    look = partial(_look, rules=rules)
    if at_once <= 1:
        yield from map(look, files)
        return
    # Not "fork": whoever calls this as a library may have threads. A child imports only what is torch-free.
    with ProcessPoolExecutor(at_once, mp_context=get_context("spawn")) as executor:
        yield from executor.map(look, files, chunksize=max(1, len(files) // (8 * at_once)))


def _look(file: tuple[Path, str], rules: tuple[str, ...]) -> FileAudit:
    path, name = file
    return inspect_file(path, name, rules)


def in_repository(audit: Audit, folder: Path) -> Audit:
    """The same audit with files relative to the root of the repository that a folder lies in.

    Where there is no repository around the folder, and for files outside of it, names stay.
    """
    here = folder.resolve()
    root = next((above for above in (here, *here.parents) if (above / ".git").exists()), None)
    if root is None:
        return audit
    files = tuple(_moved(file, here, root) for file in audit.files)
    names = {file.file: moved.file for file, moved in zip(audit.files, files, strict=True)}
    return replace(audit, files=files, pools=renamed(audit.pools, names))


def _moved(file: FileAudit, here: Path, root: Path) -> FileAudit:
    path = Path(os.path.normpath(here / file.file))
    if not path.is_relative_to(root):
        return file
    name = path.relative_to(root).as_posix()
    return replace(
        file,
        file=name,
        findings=tuple(replace(each, place=replace(each.place, file=name)) for each in file.findings),
        unread=tuple(replace(each, file=name) for each in file.unread),
    )
