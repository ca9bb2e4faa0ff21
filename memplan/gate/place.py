"""Where in the repository a finding is: the line that owns what it is about, else the job's own table."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from memplan.findings.records import Finding, Place
from memplan.gate.records import Comparison, GateResult
from memplan.job.usercode import is_user_file
from memplan.measure.records import Estimate

_SOURCE = re.compile(r"(?P<file>.+?):(?P<line>\d+)(?::\d+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The places of one job."""

    folder: Path
    """The project's; places below it are told relative to it."""
    table: Place
    """Where the job stands in the project's file."""

    def of_growth(self, comparison: Comparison) -> Place:
        """The line that owns most of what grew."""
        grown = [each for each in comparison.growth if each.grown > 0]
        found = self._largest((each.source, each.grown) for each in grown)
        return found or self._of_model(comparison.after)

    def of_peak(self, estimate: Estimate) -> Place:
        """The line that owns most at the peak."""
        found = self._largest((owner.source, owner.bytes) for owner in estimate.owners)
        return found or self._of_model(estimate)

    def of_source(self, source: str | None) -> Place:
        """A source line (``model.py:41``), where it is the repository's own."""
        return self._own(source or "") or self.table

    def _of_model(self, estimate: Estimate) -> Place:
        """Where the model is made: nobody's line owns its parameters."""
        return self.of_source(estimate.provenance.get("model"))

    def _largest(self, sizes: Iterable[tuple[str, int]]) -> Place | None:
        totals: Counter[str] = Counter()
        for source, size in sizes:
            totals[source] += size
        places = (self._own(source) for source, _ in totals.most_common())
        return next((place for place in places if place is not None), None)

    def _own(self, source: str) -> Place | None:
        match = _SOURCE.fullmatch(source)
        if match is None:
            return None
        path = Path(match["file"]).resolve()
        inside = path.is_relative_to(self.folder.resolve()) and path.is_file() and is_user_file(str(path))
        return Place(file=relative(path, self.folder), line=int(match["line"])) if inside else None


def relative(path: Path, folder: Path) -> str:
    """A path as the repository names it: from the project's folder on where it lies below, with forward slashes."""
    path, folder = path.resolve(), folder.resolve()
    return (path.relative_to(folder) if path.is_relative_to(folder) else path).as_posix()


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
