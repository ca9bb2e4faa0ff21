"""Bounds of ways that were not traced: they need at least so much, and take at least so long, because others do.

Four laws, each checked whenever two traces meet it; a job that breaks one has no bounds any more (``holds``):

- A way that recomputes, offloads activations, or cuts the batch into more micro-batches does all that the plain way
  does and more: it takes as long at least.
- Passes and the optimizer's update are apart: of two ways whose passes are equal, each takes its own update on top.
- However a batch is spread over ranks, the busiest has the average of the work that goes by the samples.
- With a larger micro-batch every tensor is as large at least. What kernels take for themselves need not be.

What is said of micro-batches holds between the smallest and the largest that were compared and multiply as often: a
program may do something else with others. For the same reason a failure speaks for other micro-batches only where its
own works otherwise.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import get_args

from memplan.hardware.profile import GpuProfile
from memplan.job.parallel import Parallel
from memplan.job.spec import JobSpec, Precision, ScriptTarget
from memplan.lifetime.records import Category
from memplan.plan.recommend.evaluate import Evaluation
from memplan.plan.recommend.floors import MemoryFloor
from memplan.plan.recommend.records import Candidate, Evaluated, Group
from memplan.plan.recommend.space import under_deepspeed
from memplan.timing.rates import Rates

SPLIT = ("batch_size", "grad_accum")
ADDING = ("checkpoint", "offload_activations", *SPLIT)
"""Fields that only add work to the plainest way."""
UPDATE = ("optimizer", "optimizer_impl", "optimizer_in_backward")
"""Fields of the update, which no forward or backward depends on."""
PASSES = (*ADDING, "loss_chunks", "attention", "compress_activations")
"""Fields that no update depends on."""
ELSEWHERE: tuple[Group, ...] = ("parallel", "precision", "optimizer", "lora", "quantize", "attention")
"""Changes with which something may work that fails without them."""
ROUNDING = 1e-9
"""Sums in another order differ by so much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Traced:
    evaluated: Evaluated
    floor: MemoryFloor
    states: Mapping[Category, float]
    """Bytes at the peak of the optimizer's step."""

    @property
    def spec(self) -> JobSpec:
        return self.evaluated.candidate.spec


@dataclass(frozen=True, slots=True, kw_only=True)
class _Failed:
    texts: frozenset[str]
    micro_batch: int
    reason: str


class Bounds:
    """Learns from traces what other ways need at least."""

    def __init__(self, profile: GpuProfile) -> None:
        """Know nothing yet: no way needs anything."""
        self._profile = profile
        self._traced: list[_Traced] = []
        self._alike: dict[tuple[str, ...], list[_Traced]] = defaultdict(list)
        self._apart: dict[tuple[str, ...], _Traced] = {}
        self._keys: dict[tuple[int, tuple[str, ...]], tuple[JobSpec, tuple[str, ...]]] = {}
        self._failed: list[_Failed] = []
        self._compared = (0, 0)
        self.holds = True
        """Has no trace contradicted a bound?"""

    def learn(self, outcome: Evaluation) -> None:
        """See what came of a way."""
        if outcome.evaluated is None:
            texts, batch = _texts(outcome.candidate), outcome.candidate.spec.batch_size
            self._failed.append(_Failed(texts=texts, micro_batch=batch, reason=outcome.reason))
            return
        states = outcome.peaks.get("optimizer", {})
        traced = _Traced(evaluated=outcome.evaluated, floor=outcome.floor, states=states)
        self._traced.append(traced)
        self._apart.setdefault(self._key(traced.spec, PASSES), traced)
        for free in _FREE:
            self._alike[self._key(traced.spec, free)].append(traced)
        alike = self._alike_but(traced.spec, SPLIT)
        sizes = [each.spec.batch_size for each in alike if each.floor.forward_kernels == outcome.floor.forward_kernels]
        self._compared = max(self._compared, (min(sizes), max(sizes)), key=lambda ends: ends[1] - ends[0])
        self.holds &= all(map(self._agrees, self._traced))

    def failure(self, candidate: Candidate) -> str:
        """Return why a way cannot be, by a part of it that failed with its micro-batch; empty if it may be."""
        texts, size = _texts(candidate), candidate.spec.batch_size
        for each in self._failed:
            if each.texts <= texts and self._fails_with(each, size) and not _elsewhere(candidate, each.texts):
                return each.reason
        return ""

    def least_bytes(self, candidate: Candidate) -> int:
        """Device bytes that a way needs at least; 0 where nothing is known."""
        if not self.holds:
            return 0
        spec = candidate.spec
        held = max((self._held(each, spec) for each in self._alike_but(spec, _SIZES)), default=0.0)
        states = max((states_of(each.states, each.spec, spec) for each in self._apart.values()), default=0.0)
        elements = max((elements_of(each.floor, each.spec, spec) for each in self._apart.values()), default=0.0)
        most = max(held, states, elements)
        return int(most) + self._profile.context_bytes if most else 0

    def least_seconds(self, candidate: Candidate) -> float:
        """Seconds of a step that a way takes at least; 0 where nothing is known."""
        if not self.holds:
            return 0.0
        spec = candidate.spec
        whole = [each.evaluated.time.total for each in self._plainer(spec, ADDING)]
        passes = [each.evaluated.time.compute - each.evaluated.time.optimizer for each in self._plainer(spec, _BOTH)]
        update = min((each.evaluated.time.optimizer for each in self._alike_but(spec, PASSES)), default=0.0)
        products = (self._products(each, candidate) for each in self._apart.values())
        spread = [each for each in self._spread(spec) if _same_batch(each, candidate)]
        of_samples = (each.floor.sample_seconds for each in spread)
        return max(max(whole, default=0.0), max(passes, default=0.0) + update, *products, *of_samples, 0.0)

    def _agrees(self, traced: _Traced) -> bool:
        candidate = traced.evaluated.candidate
        seconds, size = traced.evaluated.time.total, traced.evaluated.device_bytes
        return seconds * (1 + ROUNDING) >= self.least_seconds(candidate) and size >= self.least_bytes(candidate)

    def _alike_but(self, spec: JobSpec, free: tuple[str, ...]) -> list[_Traced]:
        return self._alike.get(self._key(spec, free), [])

    def _key(self, spec: JobSpec, free: tuple[str, ...]) -> tuple[str, ...]:
        """The fields of a job but for those that are free, and which these are."""
        # The job itself is kept beside its key, so that no other job takes its place in memory.
        known = id(spec), free
        if known not in self._keys:
            kept = (repr(getattr(spec, each.name)) for each in fields(spec) if each.name not in free)
            self._keys[known] = spec, (*free, "", *kept)
        return self._keys[known][1]

    def _plainer(self, spec: JobSpec, free: tuple[str, ...]) -> list[_Traced]:
        """Return what was traced and does nothing that a way does not do besides more."""
        return [each for each in self._alike_but(spec, free) if self._adds(each.spec, spec)]

    def _spread(self, spec: JobSpec) -> list[_Traced]:
        """Return what was traced and does the same with its samples or less, spread over ranks in whatever way."""
        if spec.parallel.context > 1 or spec.parallel.expert > 1:
            # Turns of a ring and exchanged tokens run other kernels.
            return []
        alike = [each for each in self._alike_but(spec, _SPREAD) if self._may_tell(each.spec, spec)]
        plain = [each for each in alike if _degree(each.spec.parallel) == 1 and not each.spec.offload_activations]
        return [each for each in plain if each.spec.checkpoint in ("none", spec.checkpoint)]

    def _adds(self, plain: JobSpec, spec: JobSpec) -> bool:
        if plain.batch_size * plain.grad_accum != spec.batch_size * spec.grad_accum:
            return False
        cut = plain.batch_size >= spec.batch_size and self._is_compared(spec.batch_size, plain.batch_size)
        # What is recomputed need not come back from the host: of ways that offload, checkpointing may be the faster.
        recomputes_more = plain.checkpoint == "none" and not plain.offload_activations
        recomputes = plain.checkpoint == spec.checkpoint or recomputes_more
        return cut and recomputes and plain.offload_activations <= spec.offload_activations

    def _fails_with(self, failed: _Failed, micro_batch: int) -> bool:
        """Does what failed fail with another micro-batch? Not if that was the cause: with it something else works."""
        if micro_batch >= failed.micro_batch:
            return micro_batch == failed.micro_batch
        works = (each for each in self._traced if each.spec.batch_size == failed.micro_batch)
        return any(_texts(each.evaluated.candidate) < failed.texts for each in works)

    def _is_compared(self, smaller: int, larger: int) -> bool:
        """Do the laws of micro-batches speak for two of them?"""
        return smaller == larger or self._compared[0] <= smaller <= larger <= self._compared[1]

    def _may_tell(self, known: JobSpec, spec: JobSpec) -> bool:
        """Does the work of one way tell that of another? Other ranks bring other micro-batches with them."""
        sizes = sorted((known.batch_size, spec.batch_size))
        return known.parallel != spec.parallel or self._is_compared(*sizes)

    def _held(self, traced: _Traced, spec: JobSpec) -> float:
        known = traced.spec
        if not self._is_compared(known.batch_size, spec.batch_size):
            return 0.0
        floor = traced.floor
        live = floor.live_without_gradients if known.grad_accum > 1 and spec.grad_accum == 1 else floor.live
        # Another implementation of the update takes other temporaries in its own phase alone.
        is_same_update = known.optimizer_impl == spec.optimizer_impl
        return max((size for phase, size in live.items() if is_same_update or phase != "optimizer"), default=0.0)

    def _products(self, traced: _Traced, candidate: Candidate) -> float:
        """Seconds of the products, which all ways compute: the busiest rank has the average of all ranks at least."""
        known, spec, floor = traced.spec, candidate.spec, traced.floor
        if not _same_batch(traced, candidate) or _degree(known.parallel) > 1 or spec.quantize != known.quantize:
            return 0.0
        if not self._may_tell(known, spec):
            return 0.0
        flops = floor.products
        if spec.lora != known.lora:
            flops = floor.forward_products
        elif known.checkpoint not in ("none", spec.checkpoint):
            flops -= floor.forward_products
        fewer = 1.0
        if floor.has_fixed_products:
            passes = [each.grad_accum * each.parallel.step_batches * each.parallel.data_ranks for each in (known, spec)]
            fewer = min(1.0, passes[1] / passes[0])
        return flops * fewer / self._fastest(spec)

    def _fastest(self, spec: JobSpec) -> float:
        """FLOP/s of products; what a program computes in, its options do not say."""
        known = get_args(Precision) if isinstance(spec.target, ScriptTarget) else (spec.precision,)
        return max(Rates.of(self._profile, each).matmul for each in known)


_SIZES = (*SPLIT, "optimizer_impl")
_BOTH = (*ADDING, *UPDATE)
_SPREAD = (*_BOTH, "parallel")
_FREE = (SPLIT, ADDING, PASSES, _SIZES, _BOTH, _SPREAD)


def _same_batch(traced: _Traced, candidate: Candidate) -> bool:
    return traced.evaluated.candidate.global_batch == candidate.global_batch


def states_of(states: Mapping[Category, float], known: JobSpec, spec: JobSpec) -> float:
    """Bytes of weights, gradients and optimizer states that a way cannot do without, by those of another.

    Args:
        states: Of a traced way, in its optimizer's step.
        known: That way.
        spec: The way that was not traced.
    """
    same_ranks = known.parallel == spec.parallel
    whole = known.parallel.data in ("none", "ddp") and _degree(known.parallel) == 1
    if not same_ranks and not whole:
        return 0.0
    part = 1.0 if same_ranks else _share(spec.parallel)
    weights, gradients, update = (states.get(each, 0.0) for each in _STATES)
    if spec.precision != known.precision or under_deepspeed(spec) != under_deepspeed(known):
        # 16 bits instead of 32, at most; what was in 16 bits before is not less.
        weights, gradients, update = weights / 2, gradients / 2, update / 2
    if spec.lora != known.lora or spec.quantize != known.quantize:
        gradients = update = 0.0
    if spec.quantize != known.quantize:
        weights /= 8  # 4 bits instead of 32.
    if spec.optimizer != known.optimizer:
        update = 0.0
    if spec.optimizer_in_backward or known.optimizer_in_backward:
        gradients = 0.0
    return part * (weights + gradients + update)


def elements_of(floor: MemoryFloor, known: JobSpec, spec: JobSpec) -> float:
    """Bytes of weights and gradients at a byte an element, by the counts of a way on any ranks.

    Args:
        floor: Of a traced way.
        known: That way.
        spec: The way that was not traced.
    """
    if spec.quantize != "none" or isinstance(spec.target, ScriptTarget):
        # Four bits an element, or whatever a program makes of them.
        return 0.0
    learns = spec.mode == "train" and spec.lora == known.lora and not spec.optimizer_in_backward
    return _share(spec.parallel) * (floor.parameters + floor.trainable_parameters * learns)


_STATES = (Category.PARAMETER, Category.GRADIENT, Category.OPTIMIZER_STATE)


def _share(parallel: Parallel) -> float:
    """Share of the whole model's state that the rank with most of it has at least."""
    return 0.0 if parallel.offload else parallel.replicas / parallel.ranks


def _degree(parallel: Parallel) -> int:
    """Ranks that share the work of one sample, or the layers or experts that do it."""
    return parallel.tensor * parallel.context * parallel.pipeline * parallel.expert


def _texts(candidate: Candidate) -> frozenset[str]:
    pairs = zip(candidate.changes, candidate.groups, strict=True)
    return frozenset(text for text, group in pairs if group != "split")


def _elsewhere(candidate: Candidate, texts: frozenset[str]) -> bool:
    """Has a way, beside what failed, something with which that may work?"""
    pairs = zip(candidate.changes, candidate.groups, strict=True)
    return any(group in ELSEWHERE and text not in texts for text, group in pairs)
