import dataclasses
from pathlib import Path

import pytest

from memplan.errors import UsageError
from memplan.hardware.catalog import load_profile
from memplan.units import Bytes
from memplan.validate.profiles import find_profile, profile_for
from tests.validate.profiles import H200


def test_a_known_name_finds_its_profile_and_the_drivers_figures_refine_it() -> None:
    profile, note = profile_for(dataclasses.replace(H200, sm_count=130))
    shipped = load_profile("h200")
    assert "h200, by its name" in note
    assert profile.total_bytes == H200.total_bytes
    assert profile.total_bytes - profile.usable_bytes == shipped.total_bytes - shipped.usable_bytes
    assert profile.sm_count == 130
    assert profile.context_bytes == shipped.context_bytes


@pytest.mark.parametrize(
    ("name", "total", "capability", "expected"),
    [
        ("NVIDIA H100 80GB HBM3", 85_000_000_000, (9, 0), "h100-80g"),
        ("NVIDIA A100-SXM4-80GB", 85_000_000_000, (8, 0), "a100-80g"),
        ("NVIDIA A100-SXM4-40GB", 42_300_000_000, (8, 0), "a100-40g"),
        ("Tesla T4", 15_640_000_000, (7, 5), "t4"),
        ("NVIDIA GeForce RTX 4090", 25_250_000_000, (8, 9), "rtx-4090"),
    ],
)
def test_what_torch_calls_a_card_leads_to_its_profile(
    name: str, total: int, capability: tuple[int, int], expected: str
) -> None:
    shipped = load_profile(expected)
    facts = dataclasses.replace(
        H200, name=name, total_bytes=Bytes(total), capability=capability, sm_count=shipped.sm_count
    )
    found, _ = find_profile(facts)
    assert found is not None
    assert found.name == expected


def test_one_name_with_another_memory_is_not_that_card() -> None:
    found, by_name = find_profile(dataclasses.replace(H200, total_bytes=Bytes(85_000_000_000)))
    assert not by_name
    assert found is not None
    assert found.name.startswith("h100")


def test_a_card_like_none_is_made_from_what_its_driver_says() -> None:
    odd = dataclasses.replace(H200, name="NVIDIA Z1", capability=(12, 7), total_bytes=Bytes(7_000_000_000), sm_count=9)
    profile, note = profile_for(odd)
    assert "made from" in note
    assert (profile.name, profile.kind, profile.sm_count) == ("z1", "cuda", 9)
    assert profile.usable_bytes < profile.total_bytes == 7_000_000_000
    # PyTorch's rule for capability 12.
    assert profile.cublas_workspace_bytes == 32 << 20


def test_the_cpu_has_its_own_profile() -> None:
    profile, _ = profile_for(dataclasses.replace(H200, kind="cpu", name="AMD EPYC", capability=None))
    assert profile == load_profile("cpu")


def test_a_folder_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UsageError, match="not a folder"):
        profile_for(H200, profile_dirs=(Path("/nowhere"),))
