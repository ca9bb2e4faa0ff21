"""Laws of the clocks, on steps made by hand."""

from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan.hardware.catalog import load_profile
from memplan.hardware.nodes import Node
from memplan.job.parallel import Parallel
from memplan.job.spec import JobSpec, PresetTarget
from memplan.timing.clock import bubble_share, step_time
from memplan.timing.collectives import Collective, seconds
from memplan.timing.rates import Rates
from memplan.tracing.records import DeviceTraits, Event, ModelFacts, Op, StepRange, Storage, Trace, Turn
from memplan.units import Bytes, OpIndex, StorageId

PROFILE = load_profile("h100-80g")
SHARDED = JobSpec(target=PresetTarget(name="gpt2"), precision="bf16", parallel=Parallel(data="fsdp2", shards=8))
ALONE = JobSpec(target=PresetTarget(name="gpt2"), precision="bf16")
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


def _time(*ops: Op, spec: JobSpec = SHARDED, storages=STORAGES, events=(), card=PROFILE, turn=None):
    trace = Trace(
        device=DeviceTraits.of(PROFILE), model=ModelFacts(parameters=0, trainable_parameters=0), ops=ops,
        storages=storages, events=events, steps=(StepRange(first_op=0, end_op=len(ops), first_event=0, end_event=0),),
        repeats=True, seq_len=None, provenance={}, assumptions=(), not_modelled=(), trace_seconds=0.0, graph=None,
        constants={}, turns=() if turn is None else (turn,),
    )  # fmt: skip
    return step_time(trace, spec, card)


def _turn(first: int, length: int, further: int) -> Turn:
    return Turn(
        former_op=0, former_event=0, first_op=first, end_op=first + length, first_event=0, end_event=0, further=further
    )


GATHER_SECONDS = seconds(GATHER, Node.of(PROFILE))
HIDING = int(10 * GATHER_SECONDS * Rates.of(PROFILE, "bf16").matmul)
"""FLOPs that take ten times as long as the message."""


def test_numbers_of_amd_cards_are_no_compute_capabilities_of_nvidia() -> None:
    """An MI250X calls itself 9.0, as Hopper does; how near attention comes to the peak was measured on Hopper."""
    older, newer = (load_profile(name) for name in ("mi250x", "mi325x"))
    shares = [Rates.of(card, "bf16").attention / card.peak_flops["bf16"] for card in (older, newer)]
    assert shares[0] == pytest.approx(shares[1])


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


@given(
    before=_OPS, turn=_OPS.filter(bool), after=_OPS, further=st.integers(0, 40), spec=st.sampled_from((ALONE, SHARDED))
)
def test_a_turn_takes_as_long_as_often_as_it_comes(
    before: list[Op], turn: list[Op], after: list[Op], further: int, spec: JobSpec
) -> None:
    end = [*after, matmul(HIDING, "optimizer")]
    few = _time(*before, *turn, *end, spec=spec, turn=_turn(len(before), len(turn), further))
    every = _time(*before, *turn * (1 + further), *end, spec=spec)
    assert asdict(few) == pytest.approx(asdict(every), rel=1e-6)


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
        _op("aten.empty_like.default", moved=0, reads=(ON_DEVICE,), writes=(ON_HOST,)),
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


def _fetch(size: int = 1 << 30) -> Op:
    return _op("aten._to_copy.default", "backward", moved=2 * size, reads=(ON_HOST,), writes=(ON_DEVICE,))


def test_fetches_hide_behind_the_node_before_and_no_earlier_one() -> None:
    rates = Rates.of(PROFILE, "bf16")
    link = (1 << 30) / rates.host_link
    hiding = matmul(int(2 * link * rates.matmul), "backward")
    quick = matmul(1, "backward")
    # Nothing hides the first; the second hides behind what the first is for.
    assert _time(hiding, _fetch(), hiding, _fetch(), hiding, spec=ONE_GPU).offload == pytest.approx(0, abs=1e-4)
    assert _time(_fetch(), hiding, _fetch(), hiding, spec=ONE_GPU).offload == pytest.approx(link, rel=1e-3)
    assert _time(_fetch(), quick, _fetch(), quick, spec=ONE_GPU).offload == pytest.approx(2 * link, rel=1e-3)
    # The tensor of two nodes ago was freed too late to make room for the third before the second is done.
    late = _time(_fetch(), quick, _fetch(), hiding, _fetch(), quick, spec=ONE_GPU).offload
    assert late == pytest.approx(2 * link, rel=1e-3)


def test_tensors_of_one_node_come_back_together() -> None:
    rates = Rates.of(PROFILE, "bf16")
    link = (1 << 30) / rates.host_link
    hiding = matmul(int(3 * link * rates.matmul), "backward")
    both = _time(_fetch(), hiding, _fetch(), _fetch(), matmul(1, "backward"), spec=ONE_GPU)
    assert both.offload == pytest.approx(link, rel=1e-3)


def test_dispatch_hides_behind_long_kernels_of_any_phase() -> None:
    rates = Rates.of(PROFILE, "bf16")
    long = matmul(int(1000 * rates.dispatch * rates.matmul))
    assert _time(long, *[matmul(1)] * 900).launch == pytest.approx(0, abs=1e-9)
    assert _time(*[matmul(1)] * 900, long).launch == pytest.approx(900 * rates.dispatch, rel=1e-3)


def test_halts_take_away_the_lead() -> None:
    rates = Rates.of(PROFILE, "bf16")
    long = matmul(int(1000 * rates.dispatch * rates.matmul))
    item = _op("aten._local_scalar_dense.default", moved=1)
    assert _time(long, item, *[matmul(1)] * 100).launch == pytest.approx(100 * rates.dispatch, rel=1e-2)


def _optimizer(optimizer, *, states: int, states_on="device", weights: int = 1 << 30, card=PROFILE):
    """One update by bitsandbytes: the op that stands for it reads the gradient, and reads and writes the weight."""
    parameter, gradient, state = (StorageId(index) for index in range(3))
    sizes = ((parameter, weights, "device", "parameter"), (gradient, weights, "device", "gradient"),
             (state, states, states_on, "optimizer_state"))  # fmt: skip
    storages = tuple(
        Storage(id=identity, nbytes=Bytes(size), place=place, role=role, birth=OpIndex(0), name="")
        for identity, size, place, role in sizes
    )
    update = _op("aten.add_.Tensor", "optimizer", moved=3 * weights, reads=(parameter, gradient), writes=(parameter,))
    events = tuple(Event(action="alloc", storage=each.id, op=OpIndex(0)) for each in storages)
    spec = JobSpec(target=PresetTarget(name="gpt2"), precision="bf16", optimizer=optimizer)
    return _time(update, spec=spec, storages=storages, events=events, card=card)


@pytest.mark.parametrize("optimizer", ["adamw-8bit", "paged-adamw-8bit"])
def test_8_bit_updates_read_and_write_their_states(optimizer) -> None:
    time = _optimizer(optimizer, states=1 << 30)
    assert time.optimizer == pytest.approx(5 * (1 << 30) / Rates.of(PROFILE, "bf16").bandwidth)
    assert time.offload == 0


def test_other_optimizers_move_what_their_ops_say() -> None:
    time = _optimizer("adamw", states=1 << 30)
    assert time.optimizer == pytest.approx(3 * (1 << 30) / Rates.of(PROFILE, "bf16").bandwidth)


ROOM = PROFILE.usable_bytes - PROFILE.context_bytes - 2 * (1 << 30)
"""What weights and gradients leave."""


@given(states=st.integers(1, 2 * ROOM))
def test_paged_states_stay_while_there_is_room_and_come_and_go_otherwise(states: int) -> None:
    paged = _optimizer("paged-adamw-8bit", states=states, states_on="host")
    moved = 2 * states if states > ROOM else 0
    assert paged.offload == pytest.approx(moved / Rates.of(PROFILE, "bf16").host_link)
    assert paged.total == pytest.approx(paged.optimizer + paged.offload)


def _list_op(name: str, *, reads=(ON_DEVICE, SHARD), writes=(SHARD,)) -> Op:
    moved = sum(STORAGES[each].nbytes for each in reads)
    return _op(name, "optimizer", moved=moved, reads=reads, writes=writes)


def test_lists_are_written_too_where_they_are_changed_in_place() -> None:
    read, shard = (1 << 30) + (1 << 26), 1 << 26
    bandwidth = Rates.of(PROFILE, "bf16").bandwidth
    for name, moved in (
        ("aten._foreach_add_.List", read + shard),
        ("aten._fused_adamw_.default", read + shard),
        # Its results are counted with what it reads.
        ("aten._foreach_sqrt.default", read),
        ("aten.add_.Tensor", read),
    ):
        assert _time(_list_op(name)).compute == pytest.approx(moved / bandwidth), name


def test_views_of_a_large_buffer_write_no_more_than_they_read() -> None:
    views = _op("aten._foreach_mul_.Scalar", "optimizer", moved=1 << 20)
    assert _time(views).compute == pytest.approx((2 << 20) / Rates.of(PROFILE, "bf16").bandwidth)


def test_ranks_of_a_node_share_its_memory() -> None:
    work = _op("aten._fused_adamw_.default", "optimizer", moved=1 << 30, reads=(ON_HOST,), writes=(ON_HOST,))
    alone, together = (_time(work, spec=spec).offload for spec in (ONE_GPU, SHARDED))
    assert together == pytest.approx(8 * alone)
    assert alone == pytest.approx((2 << 30) / Node.of(PROFILE).host_bandwidth)


def test_tensor_parallelism_does_not_queue_behind_shards() -> None:
    spec = replace(SHARDED, parallel=replace(SHARDED.parallel, tensor=2))
    scatter = _op("c10d._reduce_scatter_base_.default", "backward", reads=(MESSAGE,), writes=(SHARD,), moved=9 << 26)
    reduce = _op(
        "_c10d_functional.all_reduce.default", "backward", reads=(ON_DEVICE,), writes=(ON_DEVICE,), moved=2 << 30
    )
    own = _time(reduce, spec=spec).exposed_communication
    assert own > 0
    both = _time(scatter, reduce, matmul(HIDING, "backward"), matmul(1, "optimizer"), spec=spec)
    assert both.exposed_communication == pytest.approx(own)


def test_numbers_on_the_host_halt_nobody() -> None:
    rates = Rates.of(PROFILE, "bf16")
    long = matmul(int(1000 * rates.dispatch * rates.matmul))
    item = _op("aten._local_scalar_dense.default", moved=4, reads=(ON_HOST,), writes=())
    assert _time(long, item, *[matmul(1)] * 100).launch == pytest.approx(0, abs=1e-9)


def test_updates_in_backward_do_not_wait_for_what_leaves() -> None:
    copy = _op("aten._to_copy.default", moved=2 << 30, reads=(ON_DEVICE,), writes=(ON_HOST,))
    rates = Rates.of(PROFILE, "bf16")
    step = (copy, matmul(1, "backward"), matmul(1, "optimizer"), matmul(int(rates.matmul), "backward"))
    assert _time(*step, spec=replace(ONE_GPU, optimizer_in_backward=True)).offload == 0
    assert _time(*step, spec=ONE_GPU).offload == pytest.approx((1 << 30) / rates.host_link, rel=1e-3)


def test_gathers_do_not_queue_behind_what_backward_sends() -> None:
    scatter = _op("c10d._reduce_scatter_base_.default", "backward", reads=(MESSAGE,), writes=(SHARD,), moved=9 << 26)
    block = matmul(HIDING // 5, "backward")
    both = _time(gather(), block, *[scatter] * 2, gather(), *[block] * 2, matmul(1, "optimizer"))
    assert both.exposed_communication == pytest.approx(GATHER_SECONDS)


def test_numbers_on_the_host_beside_a_kernels_tensors_do_not_cross_the_link() -> None:
    """Attention has its seed and offset there; a copy has all its bytes there."""
    seed = replace(STORAGES[ON_HOST], nbytes=Bytes(8))
    reads = (ON_DEVICE, ON_HOST)
    attention = _op("aten._scaled_dot_product_efficient_attention.default", moved=1 << 30, reads=reads)
    copy = _op("aten._to_copy.default", moved=2 << 30, reads=(ON_HOST,))
    kernel = _time(attention, spec=ALONE, storages=(*STORAGES[:ON_HOST], seed))
    assert (kernel.offload, kernel.compute) == (
        0,
        pytest.approx((1 << 30) / Rates.of(PROFILE, "bf16").bandwidth, rel=1),
    )
    assert _time(copy, spec=ALONE).offload > 0
