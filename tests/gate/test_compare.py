"""What grew, and by how much."""

from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from memplan.gate.compare import compare
from memplan.gate.flow import newer_defaults
from memplan.measure.records import Estimate
from memplan.report.gate.growth import grouped_growth
from tests.gate.cases import owning
from tests.report.estimate_strategies import estimates

MODULES = st.sampled_from(["", "0", "1", "layers.0.mlp", "layers.1.mlp", "layers.10.mlp", "head"])
SOURCES = st.sampled_from(["", "a.py:1", "b.py:2"])
OWNERS = st.lists(
    st.tuples(MODULES, SOURCES, st.sampled_from(["activation", "parameter"]), st.integers(0, 9)), max_size=9
)
PAIRS = st.tuples(OWNERS.map(lambda owners: owning(*owners)), OWNERS.map(lambda owners: owning(*owners)))


def totals(estimate: Estimate) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for owner in estimate.owners:
        found[owner.module, owner.category] += owner.bytes
    return found


@given(PAIRS)
def test_growth_is_the_difference_of_what_modules_own(pair: tuple[Estimate, Estimate]) -> None:
    before, after = map(totals, pair)
    expected = {key: (before[key], after[key]) for key in before | after if before[key] != after[key]}
    found = compare(*pair).growth
    assert {(each.module, each.category): (each.before, each.after) for each in found} == expected
    assert [each.grown for each in found] == sorted((each.grown for each in found), reverse=True)


@given(PAIRS)
def test_back_and_forth_is_nothing(pair: tuple[Estimate, Estimate]) -> None:
    there, back = compare(*pair), compare(*reversed(pair))
    assert there.grown == -back.grown
    assert Counter((each.module, each.category, each.grown) for each in there.growth) == Counter(
        (each.module, each.category, -each.grown) for each in back.growth
    )
    assert compare(pair[0], pair[0]).growth == ()


@settings(max_examples=15)  # Each is two whole estimates.
@given(estimates(), estimates())
def test_categories_add_up_to_the_peak(before: Estimate, after: Estimate) -> None:
    found = compare(before, after)
    assert sum(pair[0] for pair in found.categories.values()) == before.peak.device_bytes
    assert sum(pair[1] for pair in found.categories.values()) == after.peak.device_bytes
    assert found.grown == sum(new - old for old, new in found.categories.values())


@given(PAIRS)
def test_groups_hold_the_same_growth(pair: tuple[Estimate, Estimate]) -> None:
    growth = compare(*pair).growth
    groups = grouped_growth(growth)
    for category in ("activation", "parameter"):
        alone = [each for each in growth if each.category == category]
        assert sum(each.grown for each in groups if each.category == category) == sum(each.grown for each in alone)
    assert all(each.grown for each in groups)


def test_blocks_are_told_together_and_bytes_that_only_moved_are_not_told() -> None:
    before = owning(("layers.3", "m.py:5", "temporary", 7), ("head", "", "parameter", 1))
    after = owning(
        *((f"layers.{index}.mlp", "m.py:9", "activation", 2) for index in range(4)),
        ("layers.4", "m.py:5", "temporary", 7),
        ("head", "", "parameter", 4),
    )
    found = [(each.module, each.grown, each.source) for each in grouped_growth(compare(before, after).growth)]
    assert found == [("layers.*.mlp x4", 8, "m.py:9"), ("head", 3, "")]


def test_a_line_is_told_as_it_is_now_and_a_moved_line_is_no_growth() -> None:
    before = owning(("head", "m.py:5", "activation", 4), ("head", "m.py:6", "activation", 1))
    moved = owning(("head", "m.py:50", "activation", 4), ("head", "m.py:60", "activation", 1))
    grown = owning(
        ("head", "m.py:50", "activation", 4), ("head", "m.py:60", "activation", 9), ("head", "", "activation", 20)
    )
    assert compare(before, moved).growth == ()
    (only,) = compare(before, grown).growth
    assert (only.before, only.after, only.source) == (5, 33, "m.py:60")


def test_choices_that_nobody_made_and_that_are_others_now_are_told() -> None:
    then = replace(owning(), options={"precision": "fp32"}, provenance={"precision": "default", "loop": "default"})
    now = replace(
        then,
        options={"precision": "bf16", "loop": "trainer"},
        provenance={"precision": "transformers==5.24.0", "loop": "transformers==5.24.0"},
    )
    assert newer_defaults(then, now) == ["precision is bf16", "loop is trainer"]
    assert newer_defaults(now, now) == []
    typed = replace(now, provenance={"precision": "memplan.toml:job.precision", "loop": "default"})
    assert newer_defaults(then, typed) == []
