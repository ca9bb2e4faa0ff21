"""Laws of the clocks, on steps made by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan.hardware.catalog import load_profile
from memplan.hardware.nodes import Node
from memplan.job.parallel import Parallel
from memplan.job.spec import JobSpec, PresetTarget
from memplan.plan.time.clock import bubble_share, step_time, with_micro_batches
from memplan.plan.time.collectives import Collective, seconds
from memplan.plan.time.rates import Rates
from memplan.trace.records import DeviceTraits, ModelFacts, Op, StepRange, Storage, Trace
from memplan.units import Bytes, OpIndex, StorageId

PROFILE = load_profile("h100-80g")
SHARDED = JobSpec(target=PresetTarget(name="gpt2"), precision="bf16", parallel=Parallel(data="fsdp2", shards=8))
MESSAGE, SHARD, ON_DEVICE, ON_HOST = (StorageId(index) for index in range(4))
STORAGES = tuple(
    Storage(id=identity, nbytes=Bytes(size), place=place, role="intermediate", birth=OpIndex(0), name="")
    for identity, size, place in (
        (MESSAGE, 8 << 26, "device"),
        (SHARD, 1 << 26, "device"),
        (ON_DEVICE, 1 << 30, "device"),
        (ON_HOST, 1 << 30, "host"),
    )
)
GATHER = Collective(kind="gather", nbytes=8 << 26, ranks=8, spread=1, blocking=False)


def _op(name: str, phase="forward", *, flops: int = 0, moved: int = 0, reads=(ON_DEVICE,), writes=(ON_DEVICE,)) -> Op:
    return Op(
        index=OpIndex(0), name=name, phase=phase, module="", source="", flops=flops, bytes_moved=Bytes(moved),
        reads=reads, writes=writes,
    )  # fmt: skip


def gather() -> Op:
    return _op("c10d._allgather_base_.default", moved=9 << 26, reads=(SHARD,), writes=(MESSAGE,))


def matmul(flops: int, phase="forward") -> Op:
    return _op("aten.mm.default", phase, flops=flops, moved=1)


def _time(*ops: Op, spec: JobSpec = SHARDED):
    trace = Trace(
        device=DeviceTraits.of(PROFILE), model=ModelFacts(parameters=0, trainable_parameters=0), ops=ops,
        storages=STORAGES, events=(), steps=(StepRange(first_op=0, end_op=len(ops), first_event=0, end_event=0),),
        repeats=True, seq_len=None, provenance={}, assumptions=(), not_modelled=(), trace_seconds=0.0, graph=None,
        constants={},
    )  # fmt: skip
    return step_time(trace, spec, PROFILE)


GATHER_SECONDS = seconds(GATHER, Node.of(PROFILE))
HIDING = int(10 * GATHER_SECONDS * Rates.of(PROFILE, "bf16").matmul)
"""FLOPs that take ten times as long as the message."""


def test_long_blocks_hide_all_gathers_but_the_first() -> None:
    blocks = [op for _ in range(5) for op in (gather(), matmul(HIDING))]
    time = _time(*blocks)
    assert time.communication == pytest.approx(5 * GATHER_SECONDS)
    assert time.exposed_communication == pytest.approx(GATHER_SECONDS)


def test_short_blocks_hide_no_more_than_they_last() -> None:
    blocks = [op for _ in range(5) for op in (gather(), matmul(HIDING // 20))]
    time = _time(*blocks)
    # Each block lasts half a message; the last one hides nothing.
    assert time.exposed_communication == pytest.approx(5 * GATHER_SECONDS - 4 * GATHER_SECONDS / 2)


def test_what_backward_sends_is_waited_for_before_the_optimizer() -> None:
    scatter = _op("c10d._reduce_scatter_base_.default", "backward", reads=(MESSAGE,), writes=(SHARD,), moved=9 << 26)
    hidden = _time(scatter, matmul(HIDING, "backward"), matmul(1, "optimizer"))
    shown = _time(matmul(HIDING, "backward"), scatter, matmul(1, "optimizer"))
    assert hidden.exposed_communication == 0
    assert shown.exposed_communication == pytest.approx(GATHER_SECONDS)


def test_copies_to_the_host_hide_behind_computation_too() -> None:
    copy = _op("aten._to_copy.default", moved=2 << 30, reads=(ON_DEVICE,), writes=(ON_HOST,))
    rates = Rates.of(PROFILE, "bf16")
    assert _time(copy).offload == pytest.approx((1 << 30) / rates.host_link)
    assert _time(copy, matmul(int(rates.matmul))).offload == 0


def test_small_kernels_wait_for_the_cpu() -> None:
    rates = Rates.of(PROFILE, "bf16")
    time = _time(*[matmul(1)] * 1000)
    assert time.total == pytest.approx(1000 * rates.dispatch, rel=1e-3)


_OPS = st.lists(
    st.one_of(
        st.builds(gather),
        st.integers(1, HIDING).map(matmul),
        st.integers(1, HIDING).map(lambda flops: matmul(flops, "backward")),
    ),
    max_size=30,
)


@given(ops=_OPS)
def test_parts_and_the_whole_agree(ops: list[Op]) -> None:
    time = _time(*ops)
    assert 0 <= time.exposed_communication <= time.communication * (1 + 1e-9)
    longest = max(time.compute, time.communication)
    assert longest * (1 - 1e-9) <= time.total
    assert time.total <= (time.compute + time.communication + time.launch) * (1 + 1e-9) + 1e-12


@given(ops=_OPS, more=st.integers(1, HIDING))
def test_more_work_never_takes_less_time(ops: list[Op], more: int) -> None:
    assert _time(*ops, matmul(more)).total >= _time(*ops).total * (1 - 1e-9)


@given(traced=st.integers(1, 3), wanted=st.integers(1, 64))
def test_micro_batches_repeat_all_but_the_optimizer(traced: int, wanted: int) -> None:
    step = [matmul(HIDING), matmul(2 * HIDING, "backward")]
    few = _time(*(step * traced), matmul(HIDING, "optimizer"))
    many = _time(*(step * wanted), matmul(HIDING, "optimizer"))
    assert with_micro_batches(few, traced, wanted).total == pytest.approx(many.total)


def test_bubbles_are_those_of_the_paper() -> None:
    # Narayanan et al. 2021, section 2.2: (p - 1) / m, and a v-th of it interleaved.
    assert bubble_share(Parallel(pipeline=4, micro_batches=8)) == pytest.approx(3 / 8)
    assert bubble_share(Parallel(pipeline=4, micro_batches=8, schedule="interleaved")) == pytest.approx(3 / 16)
    assert bubble_share(Parallel()) == 0


def _offloaded(*, forward: int, backward: int, spec: JobSpec):
    """A tensor goes away as ``--offload-activations`` does it (allocated, copied), and comes back."""
    size = 1 << 30
    return _time(
        matmul(forward),
        _op("aten.empty_like.default", moved=2 * size, reads=(ON_DEVICE,), writes=(ON_HOST,)),
        _op("aten.copy_.default", moved=3 * size, reads=(ON_HOST, ON_DEVICE), writes=(ON_HOST,)),
        matmul(backward, "backward"),
        _op("aten._to_copy.default", "backward", moved=2 * size, reads=(ON_HOST,), writes=(ON_DEVICE,)),
        matmul(backward, "backward"),
        spec=spec,
    )


ONE_GPU = JobSpec(target=PresetTarget(name="gpt2"), precision="bf16", offload_activations=True)


def test_each_copy_crosses_the_link_once() -> None:
    link = (1 << 30) / Rates.of(PROFILE, "bf16").host_link
    assert _offloaded(forward=0, backward=0, spec=ONE_GPU).offload == pytest.approx(2 * link, rel=1e-3)


def test_what_comes_back_is_waited_for_and_what_leaves_is_hidden() -> None:
    rates = Rates.of(PROFILE, "bf16")
    link = (1 << 30) / rates.host_link
    hiding = int(2 * link * rates.matmul)
    assert _offloaded(forward=hiding, backward=hiding, spec=ONE_GPU).offload == pytest.approx(link, rel=1e-3)
