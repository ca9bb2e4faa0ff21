"""Seconds of a step that a way takes at least, by what was traced.

- A way that recomputes, offloads activations, or cuts the batch into more micro-batches does all that the plain way
  does and more: it takes as long at least. So does one that cuts its loss, once two traces have shown it of this model.
- Passes and the optimizer's update are apart: of two ways whose passes are equal, each takes its own update on top.
- However a batch is spread over ranks, the busiest has the average of the work that goes by the samples, and in a
  pipeline waits for its bubble. What recomputing adds to it, it adds to every spread; so it is with activations that
  come back from the host.
"""

from collections.abc import Iterable
from typing import get_args

from memplan.hardware.profile import GpuProfile
from memplan.job.spec import JobSpec, Precision, ScriptTarget
from memplan.plan.recommend.known import ADDING, PASSES, KnownWays, Traced
from memplan.plan.recommend.records import Candidate
from memplan.plan.recommend.states import degree
from memplan.timing.clock import bubble_share
from memplan.timing.rates import Rates


def least_seconds(known: KnownWays, candidate: Candidate, profile: GpuProfile) -> float:
    """Seconds of a step that a way takes at least; 0 where nothing is known."""
    spec = candidate.spec
    whole = _most(each.evaluated.time.total for each in known.plainer(spec, ADDING))
    busy = _most(each.floor.sample_seconds for each in known.spread(candidate)) * (1 + bubble_share(spec.parallel))
    fetched = _most(each.evaluated.time.fetched for each in known.offloading(candidate))
    products = _most(_products(known, each, candidate, profile) for each in known.apart())
    return max(whole, _apart(known, candidate), products, busy, fetched)


def _apart(known: KnownWays, candidate: Candidate) -> float:
    """Seconds of passes and of an update, each by what was traced of it."""
    spec, same = candidate.spec, known.same_passes(candidate.spec)
    times = [each.evaluated.time for each in same]
    kernels = _most(each.compute - each.optimizer for each in times)
    # What recomputing adds may hide what is waited for elsewhere, but neither kernels nor what blocks them.
    plain = (each.evaluated.time for each in same if each.spec.checkpoint == "none")
    again = _recomputed(known, candidate)
    recomputing = _most(each.compute - each.optimizer + each.blocking + again for each in plain)
    # What is updated in backward hides what is waited for there.
    passes = _most(each.passes for each in times)
    update, after = _update(known, spec)
    return max(kernels + update, recomputing + after, passes + after)


def _update(known: KnownWays, spec: JobSpec) -> tuple[float, float]:
    """Seconds of the update's kernels, and of all of it where it comes after the passes."""
    # Of several stages the slowest is known, whose update need not be the longest.
    own = known.alike_but(spec, PASSES) if spec.parallel.pipeline == 1 else []
    update = min((each.evaluated.time.optimizer for each in own), default=0.0)
    on_host = min((each.evaluated.time.host_update for each in own), default=0.0)
    return update, 0.0 if spec.optimizer_in_backward else max(update, on_host)


def _recomputed(known: KnownWays, candidate: Candidate) -> float:
    """Seconds of what checkpointing computes again for as many samples, spread over ranks in whatever way."""
    if candidate.spec.checkpoint == "none":
        return 0.0
    alike = [each for each in known.spread(candidate) if degree(each.spec.parallel) == 1]
    pairs = (
        (each, plain)
        for each in alike
        for plain in alike
        if each.spec.checkpoint == candidate.spec.checkpoint
        and plain.spec.checkpoint == "none"
        and _differ_by_checkpoint(each.spec, plain.spec)
    )
    return _most(each.floor.sample_seconds - plain.floor.sample_seconds for each, plain in pairs)


def _differ_by_checkpoint(one: JobSpec, other: JobSpec) -> bool:
    kept = ("parallel", "batch_size", "grad_accum", "loss_chunks", "optimizer_in_backward")
    return all(getattr(one, each) == getattr(other, each) for each in kept)


def _products(known: KnownWays, traced: Traced, candidate: Candidate, profile: GpuProfile) -> float:
    """Seconds of the products, which all ways compute: the busiest rank has the average of all ranks at least."""
    one, spec, floor = traced.spec, candidate.spec, traced.floor
    if not traced.has_batch_of(candidate) or degree(one.parallel) > 1 or spec.quantize != one.quantize:
        return 0.0
    if not known.may_tell(one, spec):
        return 0.0
    flops = floor.products
    if spec.lora != one.lora:
        flops = floor.forward_products
    elif one.checkpoint not in ("none", spec.checkpoint):
        flops -= floor.forward_products
    fewer = 1.0
    if floor.has_fixed_products:
        passes = [each.grad_accum * each.parallel.step_batches * each.parallel.data_ranks for each in (one, spec)]
        fewer = min(1.0, passes[1] / passes[0])
    return flops * fewer / _fastest(spec, profile)


def _fastest(spec: JobSpec, profile: GpuProfile) -> float:
    """FLOP/s of products; what a program computes in, its options do not say."""
    known = get_args(Precision) if isinstance(spec.target, ScriptTarget) else (spec.precision,)
    return max(Rates.of(profile, each).matmul for each in known)


def _most(values: Iterable[float]) -> float:
    return max(values, default=0.0)
