"""What two real processes hold that train over gloo, and what the trace of one of them says."""

from typing import Any

import pytest
from torch.nn.parallel import DistributedDataParallel

from memplan.tracing.records import Trace
from tests.support.ranks import real_ranks
from tests.tracing.sharding.real_ranks import BUCKET_MIB, CPU_CAN_SHARD, RANKS, told
from tests.tracing.sharding.traces import alive, before_optimizer, held, rank_of


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, dict[str, Any]]]:
    """For each rank and kind of parallelism, what it holds."""
    return real_ranks(told, RANKS, tmp_path_factory.mktemp("ranks"))


def gradients(trace: Trace) -> int:
    return sum(each.nbytes for each in before_optimizer(trace) if each.role == "gradient")


@pytest.mark.skipif(not CPU_CAN_SHARD, reason="this torch's FSDP2 needs a GPU")
def test_fsdp2_shards_as_it_does_for_real(real: list[dict[str, dict[str, Any]]]) -> None:
    for rank, kinds in enumerate(real):
        said = kinds["fsdp2"]
        trace = rank_of(f"fsdp={RANKS}", rank=rank)
        assert {role: held(trace, role) for role in ("parameter", "optimizer_state")} == {
            role: said[role] for role in ("parameter", "optimizer_state")
        }
        assert gradients(trace) == said["gradient"]


def test_ddp_makes_and_rebuilds_the_buckets_that_it_makes_for_real(
    real: list[dict[str, dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    start = DistributedDataParallel.__init__

    def with_small_buckets(ddp: Any, *args: Any, **kwargs: Any) -> None:
        start(ddp, *args, **kwargs | {"bucket_cap_mb": BUCKET_MIB})

    monkeypatch.setattr(DistributedDataParallel, "__init__", with_small_buckets)
    said = real[0]["ddp"]
    trace = rank_of.__wrapped__(f"ddp={RANKS}")
    assert {role: held(trace, role) for role in ("parameter", "optimizer_state")} == {
        role: said[role] for role in ("parameter", "optimizer_state")
    }
    buckets = [each for each in alive(trace) if each.role == "gradient"]
    assert sorted(each.nbytes for each in buckets) == sorted(map(int, said["buckets"].split(",")))
    # Gradients of their own lie beside the buckets.
    assert gradients(trace) == 2 * said["gradient"]
