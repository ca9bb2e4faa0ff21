"""Estimates of jobs with several ranks: which is told, what the allocator's mode makes of it, what the report says."""

from pathlib import Path

import pytest

from memplan.errors import UsageError
from memplan.hardware.catalog import load_profile
from memplan.job.parallel import parse_parallel
from memplan.job.spec import FileTarget, JobSpec
from memplan.measure.local import estimate_here
from memplan.measure.records import Estimate

TARGET = """
import torch
from tests.tracing.sharding.nets import Net

def model():
    return Net()

def batch(batch_size):
    return torch.randn(batch_size, 16)
"""


def estimated(folder: Path, parallel: str, **options: str) -> Estimate:
    path = folder / "net.py"
    path.write_text(TARGET)
    spec = JobSpec(target=FileTarget(path=path), batch_size=512, parallel=parse_parallel(parallel))
    [answer] = estimate_here(spec, [load_profile("h100-80g")], advice=False, **options)
    return answer


def test_the_report_says_how_many_ranks_and_what_it_leaves_out(tmp_path: Path) -> None:
    answer = estimated(tmp_path, "fsdp=8")
    assert answer.options["parallel"] == "fsdp=8"
    assert any(phrase.startswith("NCCL") for phrase in answer.not_modelled)
    assert sum(answer.breakdown.values()) == answer.peak.device_bytes
    alone = estimated(tmp_path, "none")
    assert "parallel" not in alone.options
    assert not any(phrase.startswith("NCCL") for phrase in alone.not_modelled)


def test_the_other_mode_of_the_allocator_is_told_where_none_is_given(tmp_path: Path) -> None:
    unsaid, said = estimated(tmp_path, "fsdp=8"), estimated(tmp_path, "fsdp=8", alloc_conf="expandable_segments:True")
    assert unsaid.peak.allocated_bytes == said.peak.allocated_bytes
    assert unsaid.peak.reserved_bytes != said.peak.reserved_bytes
    [sentence] = [each for each in unsaid.assumptions if "expandable_segments" in each]
    assert f"{said.peak.reserved_bytes / 2**20:.2f} MiB instead of {unsaid.peak.reserved_bytes / 2**20:.2f}" in sentence
    assert not any("expandable_segments" in each for each in said.assumptions)


def test_a_wrong_option_of_the_allocator_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expandable"):
        estimated(tmp_path, "fsdp=8", alloc_conf="expandable:True")


def test_bitsandbytes_is_refused_what_it_cannot_update(tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    path.write_text(TARGET)
    spec = JobSpec(target=FileTarget(path=path), parallel=parse_parallel("fsdp=2"), optimizer="adamw-8bit")
    with pytest.raises(UsageError, match="crashes"):
        estimate_here(spec, [load_profile("h100-80g")], advice=False)
