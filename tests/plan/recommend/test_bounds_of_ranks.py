"""Ways to spread a job over nodes: no bound is above what it bounds, whatever was traced before."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest

from memplan.hardware.catalog import load_profile
from memplan.job.parallel import Parallel, parse_parallel
from memplan.job.spec import FileTarget, JobSpec
from memplan.measure.interval import least_high
from memplan.plan.recommend.bounds import Bounds
from memplan.plan.recommend.evaluate import Evaluation, evaluate_here
from memplan.plan.recommend.records import Candidate, StepLimits
from tests.tracing.sharding.toy import needs_recent_torch

pytestmark = [
    needs_recent_torch,
    pytest.mark.usefixtures("workspaces_stay"),
    pytest.mark.filterwarnings("ignore:FSDP2-wrapped module:UserWarning"),
]
PROFILE = load_profile("h100-80g")
MODEL = """
import torch
from transformers import LlamaConfig, LlamaForCausalLM

def model():
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=4096, hidden_size=4096, intermediate_size=8192, num_hidden_layers=2, num_attention_heads=8))

def batch(batch_size):
    ids = torch.randint(4096, (batch_size, 2048))
    return {"input_ids": ids, "labels": ids}
"""
LAYOUTS = ("fsdp=16", "hsdp=2x8", "fsdp=8,tp=2")
CHANGES: tuple[dict[str, object], ...] = (
    {},
    {"checkpoint": "full"},
    {"loss_chunks": 8},
    {"offload_activations": True, "loss_chunks": 8},
    {"offload_activations": True},
    {"optimizer_in_backward": True},
    {"optimizer_impl": "fused"},
)


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> list[Evaluation]:
    path = tmp_path_factory.mktemp("ranks") / "small.py"
    path.write_text(MODEL, encoding="utf-8")
    job = JobSpec(target=FileTarget(path=path), precision="bf16")
    found = [_traced(job, parse_parallel(layout), change) for layout, change in product(LAYOUTS, CHANGES)]
    halved = {"batch_size": 1, "grad_accum": 2}
    found += [_traced(job, parse_parallel(f"fsdp=8,tp=2{offload}"), halved) for offload in ("", ",offload=yes")]
    others = [("fsdp=16,reshard=no", CHANGES[0]), *product(("fsdp=16,offload=yes", "ddp=16"), (CHANGES[0], CHANGES[5]))]
    others += [("fsdp=16,offload=yes", {"checkpoint": "full"}), ("fsdp=8,tp=2", {"checkpoint": "full", **CHANGES[5]})]
    return found + [_traced(job, parse_parallel(layout), change) for layout, change in others]


def _traced(job: JobSpec, parallel: Parallel, change: dict[str, object]) -> Evaluation:
    spec = replace(job, parallel=parallel, batch_size=parallel.tensor)
    spec = replace(spec, **change)  # type: ignore[arg-type]
    words = (f"--parallel {parallel}", str(change))
    return evaluate_here(Candidate(spec=spec, changes=words, groups=("parallel", "loss")), PROFILE, StepLimits())


def _of(learned: Sequence[Evaluation]) -> Bounds:
    bounds = Bounds(PROFILE)
    for each in learned:
        bounds.learn(each)
    assert bounds.holds
    return bounds


def test_no_bound_is_above_what_it_bounds(known: list[Evaluation]) -> None:
    for learned in [known, *([one, other] for one, other in product(known, known[::3]))]:
        bounds = _of(learned)
        for each in known:
            found = each.evaluated
            assert found is not None, each.reason
            needed = bounds.least_bytes(found.candidate)
            assert needed <= found.device_bytes
            assert least_high(PROFILE, found.candidate.spec, needed) <= found.high_bytes
            assert bounds.least_seconds(found.candidate) <= found.time.total * (1 + 1e-9)


def _one(known: list[Evaluation], layout: str, **fields: object) -> Evaluation:
    return next(
        each
        for each in known
        if str(each.candidate.spec.parallel) == layout
        and all(getattr(each.candidate.spec, name) == value for name, value in fields.items())
    )


def test_even_shards_tell_the_states_of_any_others(known: list[Evaluation]) -> None:
    bounds = _of([_one(known, "fsdp=16")])
    parameters = known[0].parameters
    for layout, share, gathered in (("hsdp=2x8", 8, 0), ("fsdp=16,reshard=no", 16, 2)):
        other = _one(known, layout).candidate
        # Weights, and two states of as many bytes; what is gathered is there with them.
        least = 3 * 2 * parameters // share + gathered * parameters
        assert bounds.least_bytes(other) >= PROFILE.context_bytes + least


def test_a_cut_loss_adds_once_it_was_seen_to(known: list[Evaluation]) -> None:
    plain, other = _one(known, "fsdp=16"), _one(known, "hsdp=2x8")
    cut, other_cut = _one(known, "fsdp=16", loss_chunks=8), _one(known, "hsdp=2x8", loss_chunks=8)
    assert other.evaluated is not None
    assert _of([plain, other]).least_seconds(other_cut.candidate) < other.evaluated.time.total
    assert _of([plain, other, cut]).least_seconds(other_cut.candidate) >= other.evaluated.time.total


def test_passes_are_no_shorter_with_another_update(known: list[Evaluation]) -> None:
    plain = _one(known, "fsdp=8,tp=2")
    assert plain.evaluated is not None
    bounds = _of([plain])
    for fields in ({"optimizer_impl": "fused"}, {"optimizer_in_backward": True}):
        other = _one(known, "fsdp=8,tp=2", **fields)
        assert bounds.least_seconds(other.candidate) >= plain.evaluated.time.passes > 0


def test_what_one_layout_computes_again_the_others_do_too(known: list[Evaluation]) -> None:
    plain, other = _one(known, "fsdp=16"), _one(known, "fsdp=8,tp=2")
    again, other_again = _one(known, "fsdp=16", checkpoint="full"), _one(known, "fsdp=8,tp=2", checkpoint="full")
    assert other.evaluated is not None
    before, after = _of([other, plain]), _of([other, plain, again])
    added = again.floor.sample_seconds - plain.floor.sample_seconds
    busy = other.evaluated.time.compute + other.evaluated.time.blocking
    assert before.least_seconds(other_again.candidate) < busy + added
    assert after.least_seconds(other_again.candidate) >= (busy + added) * (1 - 1e-9) > other.evaluated.time.compute


def test_what_comes_back_from_the_host_comes_back_in_every_layout(known: list[Evaluation]) -> None:
    one, other = (_one(known, layout, offload_activations=True) for layout in ("fsdp=16", "fsdp=8,tp=2"))
    assert one.evaluated is not None
    assert _of([one]).least_seconds(other.candidate) >= one.evaluated.time.fetched > one.evaluated.time.compute


def test_an_update_on_the_host_comes_after_the_passes_of_the_same_layout(known: list[Evaluation]) -> None:
    again, plain = _one(known, "fsdp=16", checkpoint="full"), _one(known, "fsdp=16,offload=yes")
    assert again.evaluated is not None
    assert plain.evaluated is not None
    other = _one(known, "fsdp=16,offload=yes", checkpoint="full").candidate
    update = plain.evaluated.time.host_update
    assert update > 0
    assert _of([again]).least_seconds(other) >= again.evaluated.time.passes
    assert _of([again, plain]).least_seconds(other) >= again.evaluated.time.passes + update


def test_what_autocast_leaves_in_fp32_says_nothing_of_weights_in_half(known: list[Evaluation]) -> None:
    mixed = replace(known[0].candidate.spec, precision="bf16-mixed")
    copies, shards = (_traced(mixed, parse_parallel(layout), {}) for layout in ("ddp=16", "fsdp=16"))
    assert copies.floor.sample_seconds > shards.floor.sample_seconds
    bounds = _of([copies])
    assert bounds.least_seconds(shards.candidate) < copies.floor.sample_seconds
    assert _of([shards]).least_seconds(copies.candidate) < shards.floor.sample_seconds


def test_what_deepspeed_casts_computes_no_longer_than_its_products(known: list[Evaluation]) -> None:
    """Adapters stay in fp32 elsewhere."""
    plain = _one(known, "fsdp=16")
    zero = replace(plain.candidate, spec=replace(plain.candidate.spec, parallel=parse_parallel("zero1=16")))
    assert 0 < _of([plain]).least_seconds(zero) < plain.floor.sample_seconds


def test_shards_from_the_host_are_cast_and_gathered_as_those_of_the_device(known: list[Evaluation]) -> None:
    """A copy into lists does not read what it writes: one by one its parts take as long."""
    mixed = replace(known[0].candidate.spec, precision="bf16-mixed", clip_grad_norm=1.0)
    found = [_traced(mixed, parse_parallel(layout), {}) for layout in ("fsdp=16", "fsdp=16,offload=yes")]
    _of(found)
    device, host = (each.evaluated.time for each in found if each.evaluated is not None)
    assert host.compute == pytest.approx(device.compute - device.optimizer, rel=1e-9)


def test_activations_of_a_layout_are_there_however_it_updates(known: list[Evaluation]) -> None:
    plain, other = _one(known, "fsdp=8,tp=2"), _one(known, "fsdp=8,tp=2", optimizer_in_backward=True)
    assert _of([plain]).least_bytes(other.candidate) >= plain.floor.activations > 0


def test_stages_wait_for_their_bubble(known: list[Evaluation]) -> None:
    plain = _one(known, "fsdp=8,tp=2")
    spec = replace(plain.candidate.spec, parallel=parse_parallel("fsdp=4,tp=2,pp=2"), batch_size=1)
    stages = replace(plain.candidate, spec=spec)
    assert _of([plain]).least_seconds(stages) == pytest.approx(1.25 * plain.floor.sample_seconds)
