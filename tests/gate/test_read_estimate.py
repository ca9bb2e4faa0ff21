"""Saved estimates are read back as they were."""

import json
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan.errors import EstimateError, UsageError
from memplan.gate.saved import read_entries
from memplan.hardware.catalog import load_profile
from memplan.job.spec import JobSpec, PresetTarget
from memplan.lifetime.records import Category
from memplan.measure.answer import unknown
from memplan.measure.document import ESTIMATE
from memplan.measure.records import Estimate, IntervalBasis, KvCache, Verdict
from tests.report.estimate_strategies import SIZES, estimates
from tests.report.example_estimates import FITS

RATIOS = st.floats(0.1, 10)
BASES = st.none() | st.builds(
    IntervalBasis,
    workload=st.text(min_size=1, max_size=9),
    level=st.none() | st.floats(0, 1),
    runs=st.integers(0, 99),
    sources=st.integers(0, 9),
    own_runs=st.integers(0, 99),
    figure=st.sampled_from(["", "reserved", "allocated"]),
    low_ratio=RATIOS,
    high_ratio=RATIOS,
)


def through_json(estimate: Estimate) -> object:
    return json.loads(json.dumps(ESTIMATE.plain(estimate), sort_keys=True, allow_nan=False))


@given(estimates(), BASES, SIZES, SIZES, st.none() | st.builds(KvCache))
def test_what_is_written_is_read_back(
    estimate: Estimate, basis: IntervalBasis | None, host: int, nvme: int, cache: KvCache | None
) -> None:
    peak = replace(estimate.peak, basis=basis, host_bytes=host, nvme_bytes=nvme)
    estimate = replace(estimate, peak=peak, kv_cache=cache)
    found = ESTIMATE.read(through_json(estimate))
    if estimate.verdict is Verdict.UNKNOWN:
        # It is written without figures, and so it comes back.
        assert ESTIMATE.plain(found) == ESTIMATE.plain(estimate)
        assert found.peak.device_bytes == 0
        return
    assert found == estimate
    assert list(found.breakdown) == [*map(str, Category), "fragmentation", "context"], "reports show it in this order"


def test_an_estimate_that_could_not_be_made_is_read_back() -> None:
    spec = JobSpec(target=PresetTarget(name="gpt2"))
    estimate = unknown(spec, load_profile("t4"), EstimateError("no answer", where="model.py:3"))
    assert ESTIMATE.read(through_json(estimate)) == estimate


def test_what_is_not_known_yet_is_passed_over_and_what_was_not_known_then_may_lack() -> None:
    content = ESTIMATE.plain(FITS) | {"schema_version": "1.9", "colour": "red"}
    content["peak"] = content["peak"] | {"smell": 3}
    del content["peak"]["nvme_bytes"]
    assert ESTIMATE.read(content) == FITS


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([], "no result of memplan"),
        ({"command": "estimate"}, "no schema_version"),
        (ESTIMATE.plain(FITS) | {"schema_version": "2.0"}, "schema_version 2.0 is not read here, 1.0 is"),
        (ESTIMATE.plain(FITS) | {"schema_version": "10.0"}, "schema_version 10.0"),
        (ESTIMATE.plain(FITS) | {"command": "simulate"}, "'simulate'"),
        (ESTIMATE.plain(FITS) | {"verdict": "splendid"}, "verdict: "),
        (ESTIMATE.plain(FITS) | {"peak": None}, "cannot be read"),
        (ESTIMATE.plain(FITS) | {"peak": 5}, "cannot be read"),
        (ESTIMATE.plain(FITS) | {"model": []}, "cannot be read"),
        (ESTIMATE.plain(FITS) | {"owners": [{"module": "a", "source": "", "category": "buffer"}]}, "owners[0].bytes: "),
        (ESTIMATE.plain(FITS) | {"trace": {"repeats": True}}, "trace.steps: "),
        ({key: value for key, value in ESTIMATE.plain(FITS).items() if key != "target"}, "target: missing"),
    ],
)  # fmt: skip
def test_what_is_broken_is_refused_with_its_place(content: object, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        ESTIMATE.read(content, "saved.json")
    assert said in caught.value.what
    assert caught.value.where == "saved.json"


@given(st.data())
def test_a_file_that_lost_a_part_is_read_or_refused_but_never_crashes(data: st.DataObject) -> None:
    content = through_json(FITS)
    inside = content
    while isinstance(inside, dict | list) and inside:
        keys = sorted(inside) if isinstance(inside, dict) else range(len(inside))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(inside[key], dict | list) or data.draw(st.booleans()):
            inside[key] = data.draw(st.none() | st.integers() | st.text(max_size=3) | st.just([]) | st.just({}))
            break
        inside = inside[key]
    with suppress(UsageError):
        assert isinstance(ESTIMATE.read(content), Estimate)


@pytest.mark.parametrize(
    ("content", "said", "hint"),
    [
        ({"format": "memplan-setup", "schema_version": "1.0"}, "this is a setup", "memplan emit"),
        ({"schema_version": "1.0", "blocks": []}, "this is a checkpoint plan", "--checkpoint FILE"),
        ({"schema_version": "1.0", "command": "batch"}, "the result of memplan batch", "estimate -f json"),
        ({"schema_version": "1.0"}, "no result of memplan", "estimate -f json"),
    ],
)
def test_a_file_without_estimates_is_named_with_who_reads_it(content: dict[str, object], said: str, hint: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_entries(content, "a.json")
    assert said in str(refused.value)
    assert hint in str(refused.value)
