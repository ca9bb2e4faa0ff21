"""The peak with every way of routing tokens to experts: what is traced for it, and how it is told."""

import dataclasses
import json
from pathlib import Path

import pytest

from memplan.errors import EstimateError
from memplan.hardware.catalog import load_profile
from memplan.job.spec import JobSpec
from memplan.job.target import parse_target
from memplan.measure.document import ESTIMATE
from memplan.measure.envelope import envelope
from memplan.measure.local import estimate_here
from memplan.measure.records import Estimate, RoutedPeak, Verdict
from memplan.report.estimate.envelope import TITLE, envelope_lines
from memplan.report.estimate.text import render
from memplan.report.html.view import article
from memplan.report.redact import Names, redacted_estimate
from memplan.tracing.routing import ANY, KINDS, SENTENCES
from tests.report.example_estimates import FITS
from tests.support.targets import NET
from tests.tracing import moe_models

GPU = load_profile("h100-80g")
TARGET = """
from tests.tracing.moe_models import {model} as model, batch, loss, sgd as optimizer
"""


def job(folder: Path, content: str) -> JobSpec:
    (folder / "moe.py").write_text(content)
    return JobSpec(target=parse_target(str(folder / "moe.py")))


@pytest.mark.parametrize("model", [moe_models.Mixture, moe_models.Dispatched], ids=lambda model: model.__name__)
def test_each_peak_is_that_of_the_job_so_routed(model: type, tmp_path: Path) -> None:
    given = job(tmp_path, TARGET.format(model=model.__name__))
    (answer,) = estimate_here(given, [GPU], envelope=True)
    assert [each.routing for each in answer.envelope] == list(KINDS)
    for each in answer.envelope:
        (other,) = estimate_here(dataclasses.replace(given, data_dependent=each.routing), [GPU])
        peak = other.peak
        assert (each.device_bytes, each.requested_bytes) == (peak.device_bytes, peak.requested_bytes)
        assert (each.phase, each.module, each.op) == (peak.phase, peak.module, peak.op)
        assert not other.envelope
    requested = [each.requested_bytes or 0 for each in answer.envelope]
    assert (len(set(requested)) == 1) is (model is moe_models.Dispatched)
    assert requested == sorted(requested)


def test_a_job_without_routers_has_none(tmp_path: Path) -> None:
    (answer,) = estimate_here(job(tmp_path, NET), [GPU], envelope=True)
    assert answer.envelope == ()


SPEC = JobSpec(target=parse_target("preset:gpt2"), data_dependent="plausible")


def tried(said: str, *, fails: str = "") -> tuple[list[str], tuple[RoutedPeak, ...]]:
    """Which ways are traced for an answer that makes this assumption, and what comes of it."""
    traced: list[str] = []

    def attempt(changed: JobSpec) -> Estimate:
        traced.append(changed.data_dependent)
        if changed.data_dependent == fails:
            raise EstimateError("no tokens")
        return FITS

    return traced, envelope(SPEC, dataclasses.replace(FITS, assumptions=(said,)), attempt)


def test_only_other_ways_are_traced_and_none_where_no_size_hangs_on_them() -> None:
    assert tried(SENTENCES["plausible"])[0] == ["balanced", "worst"]
    assert tried(ANY)[0] == []
    assert len(tried(ANY)[1]) == len(KINDS)
    assert tried("a mask takes every element") == ([], ())


def test_a_way_that_cannot_be_traced_says_why() -> None:
    _, found = tried(SENTENCES["plausible"], fails="worst")
    assert [each.verdict for each in found] == [FITS.verdict, FITS.verdict, Verdict.UNKNOWN]
    assert (found[-1].device_bytes, found[-1].reason) == (None, "no tokens")
    assert "no tokens" in envelope_lines(found, 80)[-1].plain


def peaks(*sizes: int) -> tuple[RoutedPeak, ...]:
    return tuple(
        RoutedPeak(
            routing=kind,
            verdict=Verdict.OOM if kind == "worst" else Verdict.FITS,
            device_bytes=size,
            phase="backward",
            op="aten.mm.default",
            module=f"secret.{index}",
            source=f"private/moe.py:{index}",
        )
        for index, (kind, size) in enumerate(zip(KINDS, sizes, strict=True))
    )


def test_a_line_for_each_way_or_one_for_all() -> None:
    lines = [line.plain for line in envelope_lines(peaks(2**30, 2**31, 2**32), 100)]
    assert lines == [
        TITLE,
        "  ✓ balanced   1.00 GiB  backward/secret.0 · aten.mm · private/moe.py:0",
        "  ✓ plausible  2.00 GiB  backward/secret.1 · aten.mm · private/moe.py:1",
        "  ✗ worst      4.00 GiB  backward/secret.2 · aten.mm · private/moe.py:2",
    ]
    flat = [line.plain for line in envelope_lines(peaks(2**30, 2**30, 2**30), 80)]
    assert flat == [TITLE, "  1.00 GiB  balanced, plausible, worst"]


def test_reports_tell_it_where_it_was_asked_for() -> None:
    told = dataclasses.replace(FITS, envelope=peaks(2**30, 2**31, 2**32))
    assert TITLE in "\n".join(line.plain for line in render([told], explain=True))
    assert TITLE not in "\n".join(line.plain for line in render([FITS], explain=True))
    facts = {name: value for name, value, _ in article("a", told, None).facts}
    assert facts["routing worst"].startswith("4.00 GiB · backward/secret.2")
    plain = json.loads(json.dumps(ESTIMATE.plain(told)))
    assert [each["routing"] for each in plain["envelope"]] == list(KINDS)
    assert ESTIMATE.read(plain).envelope == told.envelope
    assert "envelope" not in ESTIMATE.plain(FITS)


def test_a_redacted_one_names_no_code() -> None:
    hidden = redacted_estimate(dataclasses.replace(FITS, envelope=peaks(1, 2, 3)), Names())
    assert not {"secret", "private"} & set(str(hidden.envelope).replace("/", ".").replace("'", ".").split("."))
    assert [each.device_bytes for each in hidden.envelope] == [1, 2, 3]
