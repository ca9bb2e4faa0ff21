"""What two real processes hold that train over gloo, and what the trace of one of them says."""

import json
import subprocess
import sys
from functools import cache
from typing import Any

import pytest
from torch.nn.parallel import DistributedDataParallel

from memplan.tracing.records import Trace
from tests.tracing.sharding.real_ranks import BUCKET_MIB, CPU_CAN_SHARD, RANKS
from tests.tracing.sharding.traces import alive, before_optimizer, held, rank_of


@cache
def real() -> list[dict[str, dict[str, Any]]]:
    """For each rank and kind of parallelism, what it holds."""
    command = [sys.executable, "-m", "tests.tracing.sharding.real_ranks"]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    ranks: list[dict[str, dict[str, Any]]] = json.loads(told.splitlines()[-1])
    return ranks


def gradients(trace: Trace) -> int:
    return sum(each.nbytes for each in before_optimizer(trace) if each.role == "gradient")


@pytest.mark.skipif(not CPU_CAN_SHARD, reason="this torch's FSDP2 needs a GPU")
def test_fsdp2_shards_as_it_does_for_real() -> None:
    for rank, kinds in enumerate(real()):
        told = kinds["fsdp2"]
        trace = rank_of(f"fsdp={RANKS}", rank=rank)
        assert {role: held(trace, role) for role in ("parameter", "optimizer_state")} == {
            role: told[role] for role in ("parameter", "optimizer_state")
        }
        assert gradients(trace) == told["gradient"]


def test_ddp_makes_and_rebuilds_the_buckets_that_it_makes_for_real(monkeypatch: pytest.MonkeyPatch) -> None:
    start = DistributedDataParallel.__init__

    def with_small_buckets(ddp: Any, *args: Any, **kwargs: Any) -> None:
        start(ddp, *args, **kwargs | {"bucket_cap_mb": BUCKET_MIB})

    monkeypatch.setattr(DistributedDataParallel, "__init__", with_small_buckets)
    told = real()[0]["ddp"]
    trace = rank_of.__wrapped__(f"ddp={RANKS}")
    assert {role: held(trace, role) for role in ("parameter", "optimizer_state")} == {
        role: told[role] for role in ("parameter", "optimizer_state")
    }
    buckets = [each for each in alive(trace) if each.role == "gradient"]
    assert sorted(each.nbytes for each in buckets) == sorted(map(int, told["buckets"].split(",")))
    # Gradients of their own lie beside the buckets.
    assert gradients(trace) == 2 * told["gradient"]
