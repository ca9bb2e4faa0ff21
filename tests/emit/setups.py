"""Setups that recommend might write: for laws."""

from dataclasses import replace
from typing import Any, get_args

from hypothesis import strategies as st

from memplan.job.adapters import Lora
from memplan.job.options import OPTIONS, OptionField
from memplan.job.parallel import ALONE, Parallel
from memplan.job.setup_file import Prediction, Setup, make_setup
from memplan.job.spec import HubTarget, JobSpec
from memplan.job.zero import Device, Zero

counts = st.integers(1, 64)
elements = st.integers(1, 10**10)
devices = st.sampled_from(get_args(Device))


@st.composite
def meshes(draw: st.DrawFn) -> Parallel:
    """All that --parallel can say and mean."""
    base = draw(st.sampled_from([ALONE, Parallel(data="ddp"), Parallel(data="fsdp1"), Parallel(data="fsdp2"),
                                 Parallel(data="zero1"), Parallel(data="zero2"), Parallel(data="zero3")]))  # fmt: skip
    if base.data == "none":
        return base
    if base.data == "ddp":
        return replace(base, replicas=draw(counts))
    base = replace(base, shards=draw(counts))
    if base.data.startswith("zero"):
        return base
    base = replace(base, reshard=draw(st.booleans()), offload=draw(st.booleans()))
    if base.data == "fsdp1":
        return base
    mesh = replace(
        base, replicas=draw(st.integers(1, 4)), tensor=draw(st.integers(1, 4)), context=draw(st.integers(1, 4))
    )
    return replace(mesh, reshard=draw(st.sampled_from([True, False, 2])))


zeros = st.builds(
    Zero,
    offload_optimizer=devices,
    offload_param=devices,
    overlap_comm=st.none() | st.booleans(),
    contiguous_gradients=st.booleans(),
    reduce_bucket_size=elements,
    allgather_bucket_size=elements,
    prefetch_bucket_size=elements,
    max_live_parameters=elements,
    max_reuse_distance=elements,
    param_persistence_threshold=elements,
    reduce_scatter=st.booleans(),
    round_robin_gradients=st.booleans(),
    pin_memory=st.booleans(),
    sub_group_size=elements,
    gradient_accumulation_dtype=st.sampled_from([None, "fp32", "bf16", "fp16"]),
)
loras = st.builds(
    Lora,
    rank=counts,
    alpha=st.floats(0.5, 256),
    targets=st.just(("all-linear",))
    | st.lists(st.sampled_from(["q_proj", "v_proj"]), min_size=1, unique=True).map(tuple),
    dropout=st.floats(0, 0.9),
    dora=st.booleans(),
    prepare=st.booleans(),
)


CONFIGURATION = tuple(name for name, option in OPTIONS.items() if option.about.by_hand)
"""Options that a framework has to know; the others only a prediction needs."""
_VALUES = {
    bool: st.booleans(),
    int: counts,
    float: st.floats(0.01, 100),
    str: st.sampled_from(("cross-entropy", "losses:own")),
    Lora: loras,
}


def values_of(option: OptionField) -> st.SearchStrategy[Any]:
    """Anything that an option may be."""
    values = st.sampled_from(option.choices) if option.choices else _VALUES[option.kind]
    values = st.just(option.about.least) | values if option.about.least is not None else values
    return st.none() | values if option.default is None else values


@st.composite
def jobs(draw: st.DrawFn) -> JobSpec:
    """A training job of a model on the hub."""
    parallel = draw(meshes())
    zero = draw(st.none() | zeros) if parallel.data.startswith("zero") else None
    if zero is not None:
        stage = int(parallel.data[-1])
        # Parameters are partitioned, and so offloaded, by stage 3 alone.
        param = zero.offload_param if stage == 3 else "none"
        zero = replace(zero, stage=stage, offload_param=param)  # type: ignore[arg-type]
    drawn = {name: draw(values_of(OPTIONS[name])) for name in CONFIGURATION if name not in ("checkpoint", "parallel")}
    checkpoint = draw(st.sampled_from(["none", "full"]))
    return JobSpec(target=HubTarget(location="./llama"), parallel=parallel, zero=zero, checkpoint=checkpoint, **drawn)


predictions = st.builds(
    Prediction,
    device_bytes=elements,
    allocated_bytes=elements,
    reserved_bytes=elements,
    host_bytes=st.none() | elements,
    step_seconds=st.none() | st.floats(0, 1e4),
)
setups = st.builds(make_setup, jobs(), st.just("h100-80g"), predictions)


def setup(**changes: object) -> Setup:
    """A plain one with some fields changed."""
    job = JobSpec(
        target=HubTarget(location="./llama"), batch_size=4, seq_len=2048, optimizer="adamw", precision="bf16-mixed"
    )
    predicted = Prediction(device_bytes=3 << 30, allocated_bytes=2 << 30, reserved_bytes=5 << 29, step_seconds=0.5)  # type: ignore[arg-type]
    return make_setup(replace(job, **changes), "h100-80g", predicted)  # type: ignore[arg-type]
