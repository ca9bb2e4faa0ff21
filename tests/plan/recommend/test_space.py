"""Laws of the space that is searched."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan.errors import UsageError
from memplan.job.parallel import Parallel, format_parallel, parse_parallel
from memplan.job.spec import JobSpec, Precision, PresetTarget
from memplan.plan.recommend.bases import bases
from memplan.plan.recommend.changes import layouts, single_changes
from memplan.plan.recommend.records import NUMERICS, Candidate, Search
from memplan.plan.recommend.space import allowed, changes_for, combine, excluded, wanting

JOB = JobSpec(target=PresetTarget(name="gpt2"), batch_size=4)


def _combinations(spec: JobSpec, search: Search):
    base = bases(spec, search)[0]
    usable = [change for change in changes_for(base.spec, search) if allowed(change, search)]
    return base, list(combine(base, usable, search))


@given(batch=st.integers(1, 12), accumulation=st.integers(1, 4), gpus=st.sampled_from((1, 2, 8, 16)))
def test_every_way_keeps_the_global_batch_the_ranks_and_the_numerics(batch: int, accumulation: int, gpus: int) -> None:
    search = Search(gpus=gpus)
    base, found = _combinations(replace(JOB, batch_size=batch, grad_accum=accumulation), search)
    for each in found:
        spec, candidate = each.candidate.spec, each.candidate
        assert candidate.global_batch == base.global_batch
        assert spec.parallel.ranks == gpus
        assert (spec.precision, spec.optimizer, spec.lora, spec.quantize) == (
            JOB.precision, JOB.optimizer, JOB.lora, JOB.quantize,
        )  # fmt: skip
        assert len(set(candidate.groups)) == len(candidate.groups)
        assert len(candidate.groups) == len(candidate.changes)
        assert not (spec.grad_accum > 1 and spec.optimizer_in_backward)


def test_whatever_goes_together_is_in_the_space_however_many_changes_it_is() -> None:
    search = Search(allow=("precision", "optimizer"))
    base, found = _combinations(replace(JOB, precision="fp32"), search)
    known = {repr(each.candidate.spec) for each in found}
    changes = [each for each in changes_for(base.spec, search) if allowed(each, search)]
    ways = [each for each in found if each.candidate.spec.grad_accum == 1]
    assert max(len(each.changes) for each in ways) == len({each.group for each in changes}) == 6
    for each in ways:
        for change in changes:
            more = change.made(each.candidate.spec)
            if change.group not in each.candidate.groups and not excluded(more):
                assert repr(more) in known


def test_inference_has_no_micro_batches_and_no_training_options() -> None:
    _, found = _combinations(replace(JOB, mode="inference"), Search(allow=NUMERICS))
    assert {each.candidate.spec.grad_accum for each in found} == {1}
    assert {group for each in found for group in each.candidate.groups} == {"precision"}


def test_no_way_is_offered_twice() -> None:
    _, found = _combinations(JOB, Search())
    specs = [repr(each.candidate.spec) for each in found]
    assert len(specs) == len(set(specs))
    assert repr(JOB) in specs


def test_numerics_change_only_where_they_may() -> None:
    changes = changes_for(JOB, Search())
    assert {change.group for change in changes} >= set(NUMERICS)
    assert not [change for change in changes if change.numerics and allowed(change, Search())]
    some = Search(allow=("optimizer",))
    assert {change.group for change in changes if change.numerics and allowed(change, some)} == {"optimizer"}
    kept = Search(keep=("checkpoint",))
    assert {change.group for change in changes} - {change.group for change in changes_for(JOB, kept)} == {"checkpoint"}


@pytest.mark.parametrize("precision", ["fp32", "bf16-mixed"])
def test_float16_is_there_for_devices_that_emulate_bfloat16(precision: Precision) -> None:
    changes = single_changes(replace(JOB, precision=precision), 1)
    assert "--precision fp16-mixed" in {change.text for change in changes}


ZERO = Parallel(data="zero3", shards=8)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "bf16-mixed", "fp16-mixed"])
def test_deepspeed_rounds_otherwise_in_16_bits(precision: Precision) -> None:
    plain = Candidate(spec=replace(JOB, precision=precision, parallel=Parallel(data="ddp", replicas=8)), changes=())
    zero = Candidate(spec=replace(plain.spec, parallel=ZERO), changes=(f"--parallel {ZERO}",), groups=("parallel",))
    needed = () if precision == "fp32" else ("precision",)
    for given_job, other in ((plain, zero), (zero, plain)):
        assert wanting(other, given_job, Search(gpus=8), batch_statistics=False) == needed
        assert wanting(other, given_job, Search(gpus=8, allow=("precision",)), batch_statistics=False) == ()
    for same in (plain, zero):
        assert wanting(same, same, Search(gpus=8), batch_statistics=False) == ()


def test_what_cannot_go_together_is_not_offered() -> None:
    pytest.importorskip("deepspeed")
    search = Search(gpus=16, allow=NUMERICS)
    long = replace(JOB, batch_size=8, seq_len=1 << 15, attention="math")
    _, found = _combinations(long, search)
    specs = [each.candidate.spec for each in found]
    assert {spec.parallel.data for spec in specs} >= {"ddp", "fsdp2", "zero1", "zero2", "zero3"}
    for degree in ("context", "tensor", "pipeline"):
        assert any(getattr(spec.parallel, degree) > 1 for spec in specs)
    for spec in specs:
        assert not (spec.optimizer_in_backward and spec.parallel.data.startswith("zero"))
        assert not (spec.optimizer_in_backward and spec.grad_accum > 1)
        assert not (spec.parallel.data == "fsdp2" and spec.optimizer in {"adamw-8bit", "paged-adamw-8bit", "adafactor"})
        assert not (spec.parallel.context > 1 and spec.attention == "math")
        assert not (spec.parallel.tensor > 1 and spec.lora is not None)
        assert not (spec.parallel.pipeline > 1 and spec.loss_chunks > 1)
        assert not (spec.optimizer == "adafactor" and spec.optimizer_impl == "fused")
    # What one layout has not, another has.
    assert any(spec.optimizer_in_backward for spec in specs)
    assert any(spec.optimizer == "adamw-8bit" for spec in specs)


@pytest.mark.parametrize(
    "fields",
    [{"clip_grad_norm": 1.0}, {"precision": "fp16-mixed"}, {"compress_activations": "int8"}],
    ids=["clip", "scaler", "compressed"],
)  # fmt: skip
def test_changes_go_with_what_was_typed(fields: dict[str, Any]) -> None:
    _, found = _combinations(replace(JOB, **fields), Search())
    clashing = {"--offload-activations"} if "compress_activations" in fields else {"--optimizer-in-backward"}
    assert not clashing & {change.text for each in found for change in each.changes}
    assert len(found) > 1


def test_a_target_batch_is_met_on_all_ranks() -> None:
    (base,) = bases(JOB, Search(target_batch=48))
    assert (base.spec.batch_size, base.spec.grad_accum, base.global_batch) == (4, 12, 48)
    for base in bases(JOB, Search(target_batch=48, gpus=8)):
        assert base.global_batch == 48
    with pytest.raises(UsageError, match="evenly"):
        bases(JOB, Search(target_batch=10, gpus=4))


def test_fewer_samples_than_ranks_are_shared_by_ranks_that_share_layers() -> None:
    found = [each.spec for each in bases(replace(JOB, batch_size=2), Search(target_batch=32, gpus=128))]
    assert [str(each.parallel) for each in found] == ["fsdp=16,tp=8", "fsdp=32,tp=4"]
    assert [each.batch_size * each.parallel.data_ranks for each in found] == [32, 32]
    with pytest.raises(UsageError, match="evenly"):
        bases(JOB, Search(target_batch=5, gpus=16))


def test_ranks_that_were_typed_must_be_those_of_the_gpus() -> None:
    typed = replace(JOB, parallel=Parallel(data="fsdp2", shards=4))
    assert [each.spec.parallel for each in bases(typed, Search(gpus=4))] == [typed.parallel]
    with pytest.raises(UsageError, match="4 ranks"):
        bases(typed, Search(gpus=8))


@pytest.mark.parametrize("gpus", [1, 2, 3, 8, 16, 64, 512])
def test_layouts_use_every_gpu_and_can_be_typed(gpus: int) -> None:
    for layout in layouts(gpus):
        assert layout.ranks == gpus
        assert parse_parallel(format_parallel(layout)) == layout
    assert len(set(layouts(gpus))) == len(layouts(gpus))


def test_every_change_changes_the_job() -> None:
    for spec in (JOB, replace(JOB, precision="bf16-mixed", grad_accum=2), replace(JOB, mode="inference")):
        for change in single_changes(spec, 8):
            assert change.made(spec) != spec


def test_a_change_takes_the_place_of_the_bases_own() -> None:
    search = Search(gpus=2)
    base = bases(JOB, search)[0]
    other = next(change for change in changes_for(base.spec, search) if change.group == "parallel")
    found = [each.candidate for each in combine(base, [other], search)]
    assert all(isinstance(each, Candidate) and each.groups.count("parallel") == 1 for each in found)
