"""Places as a forge names them: from the repository's root."""

import os
from dataclasses import replace
from pathlib import Path

from memplan.audit.census import renamed
from memplan.audit.records import Audit, FileAudit


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
