"""Profile tables: every fault is named, all at once, and nothing else raises."""

import pickle
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan.errors import UsageError
from memplan.hardware.catalog import load_profile
from memplan.hardware.profile import GpuProfile
from memplan.hardware.schema import make_profile

T4: dict[str, Any] = tomllib.loads((Path(__file__).parents[2] / "hardware_profiles" / "t4.toml").read_text())
WITHOUT_SOURCES = {key: value for key, value in T4.items() if key != "sources"}


def made(**changes: Any) -> GpuProfile:
    return make_profile(T4 | changes, name="t4", where="t4.toml")


def faults_of(table: dict[str, Any]) -> str:
    with pytest.raises(UsageError) as caught:
        make_profile(table, name="mine", where="gpus/mine.toml")
    assert caught.value.where == "gpus/mine.toml"
    assert "'mine'" in caught.value.what
    return caught.value.what


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("total_bytes", -1),
        ("total_bytes", 1.5),
        ("total_bytes", True),
        ("total_bytes", "16 parsecs"),
        ("total_bytes", "9" * 400),
        ("total_bytes", 0),
        ("usable_bytes", 10**15),
        ("context_bytes", 10**14),
        ("context_bytes", 1),
        ("sm_count", "40"),
        ("kind", "tpu"),
        ("kind", ["cuda"]),
        ("title", ""),
        ("title", 4),
        ("aliases", "t4"),
        ("aliases", [4]),
        ("compute_capability", 7.5),
        ("compute_capability", [7]),
        ("compute_capability", [7, -5]),
        ("compute_capability", [True, 5]),
        ("memory_bandwidth", -1.0),
        ("memory_bandwidth", float("nan")),
        ("memory_bandwidth", float("inf")),
        ("memory_bandwidth", 10**400),
        ("memory_bandwidth", "320GB"),
        ("peak_flops", 65e12),
        ("peak_flops", {"float16": 65e12}),
        ("peak_flops", {"fp16": "fast"}),
        ("sources", "the vendor"),
        ("sources", {"total_byte": "the vendor"}),
        ("sources", {"total_bytes": 2024}),
    ],
)
def test_a_wrong_value_names_its_key(key: str, value: object) -> None:
    assert f"\n    {key}: " in faults_of(T4 | {key: value})


@pytest.mark.parametrize("key", sorted(WITHOUT_SOURCES.keys() - {"aliases", "context_low_bytes", "context_high_bytes"}))
def test_a_missing_key_is_named(key: str) -> None:
    assert f"\n    {key}: missing" in faults_of({name: value for name, value in T4.items() if name != key})


def test_an_unknown_key_suggests_the_nearest() -> None:
    assert "usable_byte: unknown key; did you mean usable_bytes?" in faults_of(T4 | {"usable_byte": 1})


def test_all_faults_are_reported_at_once() -> None:
    table = {key: value for key, value in T4.items() if key != "title"} | {"sm_count": -1, "colour": "green"}
    what = faults_of(table)
    assert what.count("\n    ") == 3
    assert all(f"\n    {key}: " in what for key in ("title", "sm_count", "colour"))


@given(st.dictionaries(st.sampled_from(sorted(T4)) | st.text(), st.none() | st.integers() | st.text() | st.floats()))
def test_any_table_gives_a_profile_or_a_usage_error(changes: dict[str, Any]) -> None:
    try:
        profile = made(**changes)
    except UsageError:
        return
    assert 0 < profile.usable_bytes <= profile.total_bytes or profile.kind == "cpu"


@given(st.integers(1, 2**53))
def test_a_size_may_be_text(size: int) -> None:
    sizes = {"total_bytes": str(size), "usable_bytes": size, "context_bytes": 0, "context_low_bytes": 0}
    # Text goes through a float, which holds 53 bits: 8 PiB.
    assert made(**sizes, context_high_bytes=0).total_bytes == size


def test_a_profile_travels_between_processes() -> None:
    profile = load_profile("h100-80g")
    assert pickle.loads(pickle.dumps(profile)) == profile


def test_optional_keys_may_be_left_out() -> None:
    optional = {"aliases", "context_low_bytes", "context_high_bytes", "sources"}
    profile = make_profile({key: T4[key] for key in T4.keys() - optional}, name="t4", where="")
    assert (profile.aliases, profile.sources) == ((), {})
    assert (profile.context_low_bytes, profile.context_high_bytes) == (0, 0)
