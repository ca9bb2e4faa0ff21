"""Experts that two ranks share: what a step of two real processes makes, and what is predicted, however tokens go."""

from collections import Counter

import pytest

from memplan.job.parallel import parse_parallel
from memplan.tracing.records import Trace
from memplan.tracing.routing import KINDS
from memplan.tracing.run import trace_job
from tests.support.libraries import library
from tests.support.ranks import real_ranks
from tests.tracing.jobs import CPU, source, spec
from tests.tracing.sharding.routed_ranks import (
    KERNELS,
    RANKS,
    TOKENS,
    batch,
    is_watched,
    mixtral,
    parallelize,
    sgd,
    told,
)
from tests.tracing.sharding.toy import needs_recent_torch

pytestmark = needs_recent_torch
experts = library("transformers.distributed.expert_parallel")


def traced(kernel: str, kind: str) -> Trace:
    given = source(lambda: mixtral(kernel), batch, optimizer=sgd, parallelize=parallelize, default_seq_len=TOKENS)
    job = spec(parallel=parse_parallel(f"fsdp={RANKS},ep={RANKS}"), data_dependent=kind)
    return trace_job(lambda: given, job, CPU)


def sizes(trace: Trace) -> Counter[str]:
    """How large results of watched ops are in the last step."""
    last = trace.steps[-1]
    return Counter(
        f"{op.name} {trace.storages[written].nbytes}"
        for op in trace.ops[last.first_op : last.end_op]
        for written in op.writes
        if is_watched(op.name)
    )


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, int]]:
    """What the first of two processes made, by kernel and way of routing."""
    return real_ranks(told, RANKS, tmp_path_factory.mktemp("ranks"))[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_tokens_come_and_experts_get_them_as_predicted(kernel: str, kind: str, real: dict[str, dict[str, int]]) -> None:
    assert sizes(traced(kernel, kind)) == real[f"{kernel} {kind}"]


@pytest.mark.parametrize("kernel", KERNELS)
def test_more_tokens_come_the_less_even_routing_is(kernel: str, real: dict[str, dict[str, int]]) -> None:
    received = [
        max(int(key.split()[1]) for key in real[f"{kernel} {kind}"] if "all_to_all" in key) // (32 * 4)
        for kind in KINDS
    ]
    # At worst every rank sends all that it has: 2 ranks, 64 tokens, 2 experts each.
    assert received == [128, 202, 256]
