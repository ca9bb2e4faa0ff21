"""Hypothesis: any estimate that the records allow, however odd its names and sizes."""

from hypothesis import strategies as st

from memplan.lifetime.records import Category
from memplan.measure.records import (
    Advice,
    Estimate,
    Fragmentation,
    GpuFacts,
    KvCache,
    Owner,
    PeakFacts,
    Price,
    RoutedPeak,
    Verdict,
)
from tests.report.example_estimates import make_estimate

SIZES = st.integers(0, 2**62) | st.integers(0, 2**20)
NAMES = st.text(max_size=120)
SHARES = st.floats(0, 1)
CATEGORIES = [*map(str, Category), "fragmentation", "context"]
OWNERS = st.builds(
    Owner,
    module=NAMES | st.from_regex(r"layers\.\d\d?\.mlp", fullmatch=True),
    source=NAMES,
    category=st.sampled_from(CATEGORIES),
    bytes=SIZES,
)
ADVICE = st.builds(Advice, change=NAMES, device_bytes=SIZES, slowdown=st.floats(-1, 1000))
GPUS = st.builds(GpuFacts, name=NAMES, title=NAMES, total_bytes=SIZES, usable_bytes=SIZES)

PRICES = st.builds(Price, per_hour=st.floats(0, 1e6), gpus=st.integers(1, 2**31), currency=NAMES)
CACHES = st.builds(KvCache, bytes=SIZES, block_size=st.none() | st.integers(1, 2**31), blocks=SIZES, paged_bytes=SIZES)

ROUTED = st.builds(
    RoutedPeak,
    routing=st.sampled_from(["balanced", "plausible", "worst"]),
    verdict=st.sampled_from(Verdict),
    device_bytes=st.none() | SIZES,
    requested_bytes=st.none() | SIZES,
    low_bytes=st.none() | SIZES,
    high_bytes=st.none() | SIZES,
    phase=st.sampled_from(["setup", "forward", "backward", "optimizer"]),
    op=NAMES,
    module=NAMES,
    source=NAMES,
    reason=NAMES,
)


@st.composite
def estimates(draw: st.DrawFn) -> Estimate:
    breakdown = draw(st.fixed_dictionaries(dict.fromkeys(CATEGORIES, SIZES)))
    peak = draw(
        st.builds(
            PeakFacts,
            requested_bytes=SIZES,
            allocated_bytes=SIZES,
            reserved_bytes=SIZES,
            device_bytes=st.just(sum(breakdown.values())),
            low_bytes=SIZES,
            high_bytes=SIZES,
            phase=st.sampled_from(["setup", "forward", "backward", "optimizer"]),
            op=NAMES,
            module=NAMES,
            source=NAMES,
            host_bytes=SIZES,
            nvme_bytes=SIZES,
            after_epoch_bytes=SIZES,
            data_pipeline_bytes=SIZES,
        )
    )
    return make_estimate(
        draw(st.sampled_from(Verdict)),
        draw(GPUS),
        breakdown,
        peak=peak,
        target=draw(NAMES),
        parameters=draw(SIZES),
        trainable_parameters=draw(SIZES),
        options=draw(st.dictionaries(st.sampled_from(["batch_size", "seq_len", "precision", "odd"]) | NAMES, NAMES)),
        provenance=draw(st.dictionaries(st.sampled_from(["batch_size", "odd"]) | NAMES, NAMES, max_size=6)),
        owners=tuple(draw(st.lists(OWNERS, max_size=7))),
        advice=tuple(draw(st.lists(ADVICE, max_size=7))),
        fragmentation=Fragmentation(external=draw(SHARES), internal=draw(SHARES)),
        flops_per_step=draw(SIZES),
        assumptions=tuple(draw(st.lists(NAMES, max_size=3))),
        not_modelled=tuple(draw(st.lists(NAMES, max_size=3))),
        repeats=draw(st.booleans()),
        kv_cache=draw(st.none() | CACHES),
        price=draw(st.none() | PRICES),
        envelope=tuple(draw(st.lists(ROUTED, max_size=3))),
    )
