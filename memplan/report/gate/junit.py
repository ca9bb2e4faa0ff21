"""JUnit's XML, in the dialect that Jenkins describes and GitLab, GitHub's actions and others read.

One test case for each job and GPU. ``failure``: the policy says no. ``error``: there is no figure, exit code 3.
``skipped``: there is none, and the job is informational. Every other case passes, and says its peak.
"""

from collections.abc import Iterable
from xml.etree import ElementTree as ET

from memplan.gate.compare import with_figures
from memplan.gate.records import GateResult, Row
from memplan.report.gate.findings import growth_sentences, name, peak_of_limit, versions
from memplan.text import clean, plain


def render(result: GateResult) -> str:
    """A document with one suite."""
    kinds = [_kind(row) for row in result.rows]
    counts = {
        "tests": str(len(kinds)),
        "failures": str(kinds.count("failure")),
        "errors": str(kinds.count("error")),
        "time": f"{result.seconds:.3f}",
    }
    root = ET.Element("testsuites", {"name": "memplan gate", **counts})
    suite = ET.SubElement(root, "testsuite", {"name": "memplan gate", **counts, "skipped": str(kinds.count("skipped"))})
    properties = ET.SubElement(suite, "properties")
    for key, value in _properties(result).items():
        ET.SubElement(properties, "property", {"name": key, "value": clean(value)})
    for row, kind in zip(result.rows, kinds, strict=True):
        _case(suite, row, kind)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=False)


def _kind(row: Row) -> str:
    if row.outcome == "failed":
        return "failure"
    if row.outcome == "unknown":
        return "error"
    return "passed" if with_figures(row.estimate) else "skipped"


def _properties(result: GateResult) -> dict[str, str]:
    baseline = {"baseline": result.baseline.as_posix()} if result.baseline else {}
    return {"project": result.project.as_posix(), **baseline, **versions(result)}


def _case(suite: ET.Element, row: Row, kind: str) -> None:
    case = ET.SubElement(suite, "testcase", {"classname": "memplan.gate", "name": name(row), "time": _seconds(row)})
    text = "\n".join(_body(row))
    if kind == "skipped":
        ET.SubElement(case, "skipped").text = text
    elif kind != "passed":
        first = row.findings[0] if row.findings else None
        told = {"type": first.code, "message": plain(first.message)} if first else {}
        ET.SubElement(case, kind, told).text = text
    else:
        ET.SubElement(case, "system-out").text = text


def _body(row: Row) -> Iterable[str]:
    yield f"peak {peak_of_limit(row)}"
    for finding in row.findings:
        place = f"{clean(finding.place.file)}:{finding.place.line}"
        yield f"{finding.code} {finding.severity}: {plain(finding.message)}, at {place}"
        yield from [f"  {plain(finding.fix)}"] if finding.fix else []
    yield from growth_sentences(row)


def _seconds(row: Row) -> str:
    """What the row's trace and replay took; nothing where it was not run. GPUs of one job share the trace."""
    timings = row.estimate.timings if row.estimate and not row.cached else {}
    return f"{sum(timings.get(part, 0.0) for part in ('trace_seconds', 'replay_seconds')):.3f}"
