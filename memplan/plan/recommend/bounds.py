"""Bounds of ways that were not traced: they need at least so much, and take at least so long, because others do.

Four laws, each checked whenever two traces meet it; a job that breaks one has no bounds any more (``holds``):

- A way that recomputes, offloads activations, or cuts the batch into more micro-batches does all that the plain way
  does and more: it takes as long at least. So does one that cuts its loss, once two traces have shown it of this model.
- Passes and the optimizer's update are apart: of two ways whose passes are equal, each takes its own update on top.
- However a batch is spread over ranks, the busiest has the average of the work that goes by the samples, and in a
  pipeline waits for its bubble.
- With a larger micro-batch every tensor is as large at least. What kernels take for themselves need not be. However
  ranks share the state, activations of as many samples are the same.

What is said of micro-batches holds between the smallest and the largest that were compared and multiply as often: a
program may do something else with others. For the same reason a failure speaks for other micro-batches only where its
own works otherwise.
"""

from collections import defaultdict
from dataclasses import dataclass, fields
from typing import get_args

from memplan.hardware.profile import GpuProfile
from memplan.job.spec import JobSpec, Precision, ScriptTarget
from memplan.plan.recommend.evaluate import Evaluation
from memplan.plan.recommend.floors import MemoryFloor
from memplan.plan.recommend.records import Candidate, Evaluated, Group
from memplan.plan.recommend.states import States, degree, elements_of, gathered_of, kept_of, states_of
from memplan.timing.clock import bubble_share
from memplan.timing.rates import Rates

SPLIT = ("batch_size", "grad_accum")
ADDING = ("checkpoint", "offload_activations", "loss_chunks", *SPLIT)
"""Fields that only add work to the plainest way."""
UPDATE = ("optimizer", "optimizer_impl", "optimizer_in_backward")
"""Fields of the update, which no forward or backward depends on."""
PASSES = (*ADDING, "attention", "compress_activations")
"""Fields that no update depends on."""
ELSEWHERE: tuple[Group, ...] = ("parallel", "precision", "optimizer", "lora", "quantize", "attention")
"""Changes with which something may work that fails without them."""
ROUNDING = 1e-9
"""Sums in another order differ by so much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Traced:
    evaluated: Evaluated
    floor: MemoryFloor
    states: States

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
        self._is_loss_cut = False
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
        uncut = {each.spec.loss_chunks for each in self._alike_but(traced.spec, _LOSS)}
        self._is_loss_cut |= len(uncut) > 1 and not traced.spec.offload_activations
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
        spec, known = candidate.spec, self._apart.values()
        held = max((self._held(each, spec) for each in self._alike_but(spec, _SIZES)), default=0.0)
        states = max((states_of(each.floor, each.states, each.spec, spec) for each in known), default=0.0)
        elements = max((elements_of(each.floor, each.spec, spec) for each in known), default=0.0)
        most = max(held, states, elements, self._forward(spec))
        return int(most) + self._profile.context_bytes if most else 0

    def least_seconds(self, candidate: Candidate) -> float:
        """Seconds of a step that a way takes at least; 0 where nothing is known."""
        if not self.holds:
            return 0.0
        spec = candidate.spec
        whole = [each.evaluated.time.total for each in self._plainer(spec, ADDING)]
        # An update in backward brings kernels of its own into the passes.
        own_passes = [each for each in self._plainer(spec, _BOTH) if _updates_no_earlier(each.spec, spec)]
        plainer = [each.evaluated.time for each in own_passes]
        kernels = max((each.compute - each.optimizer for each in plainer), default=0.0)
        # What is updated in backward hides what is waited for there.
        passes = max((each.passes for each in plainer), default=0.0)
        # Of several stages the slowest is known, whose update need not be the longest.
        own = self._alike_but(spec, PASSES) if spec.parallel.pipeline == 1 else []
        update = min((each.evaluated.time.optimizer for each in own), default=0.0)
        apart = passes + update * (not spec.optimizer_in_backward)
        products = (self._products(each, candidate) for each in self._apart.values())
        spread = [each for each in self._spread(spec) if _same_batch(each, candidate)]
        busy = max((each.floor.sample_seconds for each in spread), default=0.0) * (1 + bubble_share(spec.parallel))
        return max(max(whole, default=0.0), kernels + update, apart, *products, busy, 0.0)

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
        # Layers that ranks share are known by one stage of them, or by whole ones.
        plain = [each for each in alike if degree(each.spec.parallel) in (1, _stage(each.spec, spec))]
        recomputing = ("none", spec.checkpoint)
        return [
            each
            for each in plain
            if each.spec.checkpoint in recomputing and not each.spec.offload_activations and self._cuts(each.spec, spec)
        ]

    def _adds(self, plain: JobSpec, spec: JobSpec) -> bool:
        if plain.batch_size * plain.grad_accum != spec.batch_size * spec.grad_accum:
            return False
        cut = plain.batch_size >= spec.batch_size and self._is_compared(spec.batch_size, plain.batch_size)
        # What is recomputed need not come back from the host: of ways that offload, checkpointing may be the faster.
        recomputes_more = plain.checkpoint == "none" and not plain.offload_activations
        recomputes = plain.checkpoint == spec.checkpoint or recomputes_more
        offloads = plain.offload_activations <= spec.offload_activations
        return cut and recomputes and offloads and self._cuts(plain, spec)

    def _cuts(self, plain: JobSpec, spec: JobSpec) -> bool:
        """Is the loss in as many parts, or is it known that these only add to the plain one?"""
        # Logits that are made again need not come back from the host, either.
        adds = plain.loss_chunks == 1 and not plain.offload_activations
        return plain.loss_chunks == spec.loss_chunks or (adds and self._is_loss_cut)

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

    def _forward(self, spec: JobSpec) -> float:
        """Bytes in forward: states that are kept, and what is gathered then or activations of such samples."""
        known = self._apart.values()
        kept = max((kept_of(each.floor, each.states, each.spec, spec) for each in known), default=0.0)
        gathered = max((gathered_of(each.floor, each.states, each.spec, spec) for each in known), default=0.0)
        alike = [each for each in self._alike_but(spec, _SAVED) if self._saves(each.spec, spec)]
        return kept + max((gathered, *(each.floor.activations for each in alike)))

    def _saves(self, known: JobSpec, spec: JobSpec) -> bool:
        """Has a way all activations of another? What an implementation of data parallelism casts, another does not."""
        if degree(known.parallel) > 1 or degree(spec.parallel) > 1 or known.parallel.data != spec.parallel.data:
            return False
        # Outputs of a former micro-batch may be there, too.
        is_first = known.grad_accum == 1 or spec.grad_accum > 1
        smaller = known.batch_size <= spec.batch_size and self._is_compared(known.batch_size, spec.batch_size)
        return is_first and smaller

    def _products(self, traced: _Traced, candidate: Candidate) -> float:
        """Seconds of the products, which all ways compute: the busiest rank has the average of all ranks at least."""
        known, spec, floor = traced.spec, candidate.spec, traced.floor
        if not _same_batch(traced, candidate) or degree(known.parallel) > 1 or spec.quantize != known.quantize:
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
_SAVED = (*SPLIT, *UPDATE, "parallel")
_LOSS = ("loss_chunks",)
_FREE = (SPLIT, ADDING, PASSES, _SIZES, _BOTH, _SPREAD, _SAVED, _LOSS)


def _updates_no_earlier(known: JobSpec, spec: JobSpec) -> bool:
    return known.optimizer_in_backward <= spec.optimizer_in_backward


def _stage(known: JobSpec, spec: JobSpec) -> int:
    """The degree of a known way if it shares layers as another does, and nothing else."""
    return known.parallel.tensor if known.parallel.tensor == spec.parallel.tensor else 1


def _same_batch(traced: _Traced, candidate: Candidate) -> bool:
    return traced.evaluated.candidate.global_batch == candidate.global_batch


def _texts(candidate: Candidate) -> frozenset[str]:
    pairs = zip(candidate.changes, candidate.groups, strict=True)
    return frozenset(text for text, group in pairs if group != "split")


def _elsewhere(candidate: Candidate, texts: frozenset[str]) -> bool:
    """Has a way, beside what failed, something with which that may work?"""
    pairs = zip(candidate.changes, candidate.groups, strict=True)
    return any(group in ELSEWHERE and text not in texts for text, group in pairs)
