"""The JSON report: the contract 1.0 of the design, checked against the schema that is shipped."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import ValidationError

from memplan.measure.document import ESTIMATE
from memplan.measure.records import Estimate
from memplan.report.estimate.json import render
from tests.contract.goldens import golden, obey
from tests.report.estimate_strategies import estimates
from tests.report.example_estimates import BREAKDOWN, CPU, FITS, OOM, UNKNOWN, make_estimate

# Typed from the design document, not from the code.
CONTRACT = {
    "schema_version", "command", "target", "verdict", "gpu", "model", "peak", "breakdown", "owners", "advice",
    "assumptions", "not_modelled", "provenance", "timings",
}  # fmt: skip
ADDED = {"code", "options", "headroom_bytes", "fragmentation", "flops_per_step", "kv_cache", "trace", "versions"}


@given(st.lists(estimates(), min_size=1, max_size=3))
def test_every_report_obeys_the_schema_and_has_sorted_keys(shown: list[Estimate]) -> None:
    text = render(shown)
    read = json.loads(text, object_pairs_hook=lambda pairs: dict(_sorted(pairs)))
    obey("estimate", read)
    plain = [ESTIMATE.plain(one) for one in shown]
    assert [read] == plain or read["estimates"] == plain


def _sorted(pairs: list[tuple[str, object]]) -> list[tuple[str, object]]:
    assert [key for key, _ in pairs] == sorted(key for key, _ in pairs)
    return pairs


def test_the_keys_are_those_of_the_contract_and_of_the_schema() -> None:
    described = golden("estimate").schema["$defs"]["estimate"]["properties"]
    assert set(ESTIMATE.plain(FITS)) == CONTRACT | ADDED == set(described)
    for part in ("gpu", "model", "trace", "versions"):
        assert set(ESTIMATE.plain(FITS)[part]) == set(described[part]["properties"])
    assert set(ESTIMATE.plain(FITS)["peak"]) == set(described["peak"]["anyOf"][0]["properties"])


def test_figures_are_those_of_the_estimate() -> None:
    read = json.loads(render([OOM]))
    assert read["schema_version"] == "1.0"
    assert (read["command"], read["verdict"], read["code"]) == ("estimate", "oom", "MP001")
    assert read["breakdown"] == BREAKDOWN
    assert read["peak"]["device_bytes"] == sum(BREAKDOWN.values())
    assert read["headroom_bytes"] == 41_900_000_000 - sum(BREAKDOWN.values())
    assert read["model"] == {"parameters": 8_030_261_248, "trainable_parameters": 8_030_261_248}
    assert read["advice"][0] == {
        "change": "--checkpoint full --batch-size 2", "device_bytes": 38 << 30, "slowdown": 0.31,
    }  # fmt: skip
    assert read["provenance"]["batch_size"] == "--batch-size"


def test_unknown_carries_no_figures() -> None:
    read = json.loads(render([UNKNOWN]))
    assert [read[key] for key in ("peak", "breakdown", "headroom_bytes", "fragmentation")] == [None] * 4


def test_without_a_limit_there_is_no_headroom() -> None:
    read = json.loads(render([make_estimate(gpu=CPU)]))
    assert read["headroom_bytes"] is None
    assert read["peak"]["device_bytes"] == sum(BREAKDOWN.values())


def test_several_estimates_are_a_list_in_the_order_given() -> None:
    read = json.loads(render([OOM, FITS]))
    assert set(read) == {"schema_version", "command", "estimates"}
    assert [one["gpu"]["name"] for one in read["estimates"]] == ["a100-40g", "h100-80g"]


@pytest.mark.parametrize("key", sorted(CONTRACT))
def test_the_schema_notices_a_missing_key(key: str) -> None:
    broken = ESTIMATE.plain(FITS)
    del broken[key]
    with pytest.raises(ValidationError):
        obey("estimate", broken)


def test_the_schema_refuses_figures_without_trust() -> None:
    with pytest.raises(ValidationError):
        obey("estimate", ESTIMATE.plain(FITS) | {"verdict": "unknown"})
