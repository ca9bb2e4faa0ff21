"""The file of accepted figures: which there are, and made anew."""

from collections.abc import Sequence
from pathlib import Path

from memplan.errors import UsageError
from memplan.files.read import real
from memplan.files.write import alone, write_whole
from memplan.gate.compare import with_figures
from memplan.gate.records import Row
from memplan.gate.saved import Entries, load_content, load_entries, read_entries, render_baseline
from memplan.project.records import Project


def accepted(project: Project, *, update: bool) -> Entries | None:
    """The accepted figures of a project, whose file may be to be made anew; None where there are none.

    Raises:
        UsageError: There are none, but growth over them is to be judged; or they cannot be written.
    """
    path = project.baseline
    judged = [job.name for job in project.jobs if job.policy.max_increase is not None]
    if path is None:
        if judged or update:
            what = f"max-increase of job {judged[0]}" if judged else "--update-baseline"
            hint = 'add  baseline = "memplan-baseline.json"  to the project file, or give --baseline FILE'
            raise UsageError(f"{what} needs a baseline", where=str(project.file), hint=hint)
        return None
    if real(path) == real(project.file):
        raise UsageError(f"the baseline is the project file itself, '{path}'", hint="name another file")
    if update and not real(path).parent.is_dir():
        raise UsageError(f"the baseline '{path}' lies in a folder that does not exist")
    if path.exists():
        return _existing(path, update=update)
    if judged and not update:
        what = f"there is no baseline '{path}', but job {judged[0]} has a max-increase"
        raise UsageError(what, hint="make it with  memplan gate --update-baseline  and commit it")
    return None


def _existing(path: Path, *, update: bool) -> Entries:
    if not update:
        return load_entries(path)
    content = load_content(path)
    if content.get("command") != "baseline":
        what = f"'{path}' is no baseline, but the result of {content.get('command')!r}: it is not overwritten"
        raise UsageError(what, hint="name another file: --baseline FILE")
    return read_entries(content, str(path))


def update(path: Path, rows: Sequence[Row]) -> str:
    """Write the figures of the rows that pass, those of others staying as they are; returns a sentence about it.

    Others may have written theirs since this run began, so what stands in the file is read again.

    Raises:
        UsageError: The file cannot be written, or has become something else.
    """
    passed = {
        (row.job, row.gpu): row.estimate
        for row in rows
        if row.outcome == "passed" and row.estimate is not None and with_figures(row.estimate)
    }
    try:
        with alone(path):
            entries = _existing(path, update=True) if path.exists() else {}
            write_whole(path, render_baseline({**entries, **passed}).encode())
    except OSError as error:
        raise UsageError(f"cannot write the baseline '{path}': {error.strerror}") from error
    left = len(rows) - len(passed)
    kept = f", {left} that did not pass left as before" if left else ""
    return f"baseline '{path}': {len(passed)} written{kept}"
