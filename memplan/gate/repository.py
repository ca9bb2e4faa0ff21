"""Places as a forge names them: from the repository's root, which is not always the project's folder."""

from dataclasses import replace
from pathlib import PurePosixPath

from memplan.findings.records import Finding
from memplan.gate.place import relative
from memplan.gate.records import GateResult


def in_repository(result: GateResult) -> GateResult:
    """The same result with files relative to the root of the repository that the project file lies in.

    Where there is no repository around it, it stays as it is.
    """
    folder = result.project.resolve().parent
    root = next((above for above in (folder, *folder.parents) if (above / ".git").exists()), folder)
    prefix = PurePosixPath(relative(folder, root))
    rows = (
        replace(row, findings=tuple(_moved(finding, prefix) for finding in row.findings)) for row in result.rows
    )  # fmt: skip
    return replace(result, rows=tuple(rows))


def _moved(finding: Finding, prefix: PurePosixPath) -> Finding:
    """An absolute file stays what it is."""
    return replace(finding, place=replace(finding.place, file=(prefix / finding.place.file).as_posix()))
