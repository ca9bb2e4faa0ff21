"""SARIF 2.1.0 (OASIS), as GitHub's code scanning takes it.

``primaryLocationLineHash`` is the one fingerprint that GitHub reads. Its upload action would make it of the line's
text, and one line may be the cause on several GPUs; ours is of rule, job and GPU. The action warns that the two differ.
"""

from typing import Any

from memplan.gate.records import GateResult
from memplan.report import sarif
from memplan.report.gate.findings import Told, one_line, plain, told, versions
from memplan.rules import RULES


def render(result: GateResult) -> str:
    """A log with one run.

    Args:
        result: What was found; files relative to the repository's root.
    """
    notes = [plain(note) for note in result.notes]
    return sarif.log(RULES.values(), versions(result).get("memplan"), notes, map(_result, told(result)))


def _result(each: Told) -> dict[str, Any]:
    finding = each.finding
    place = sarif.location(finding.place.file, {"startLine": max(1, finding.place.line)})
    text = one_line(each)
    return sarif.result(finding.code, list(RULES), level=finding.level, text=text, place=place, identity=each.identity)
