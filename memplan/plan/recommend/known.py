"""What was traced, and which of it speaks for a way that was not.

What is said of micro-batches holds between the smallest and the largest that were compared and multiply as often: a
program may do something else with others.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from memplan.job.parallel import DataParallel
from memplan.job.spec import JobSpec
from memplan.plan.recommend.evaluate import Evaluation
from memplan.plan.recommend.floors import MemoryFloor
from memplan.plan.recommend.records import Candidate, Evaluated
from memplan.plan.recommend.states import States, degree

SPLIT = ("batch_size", "grad_accum")
ADDING = ("checkpoint", "offload_activations", "loss_chunks", *SPLIT)
"""Fields that only add work to the plainest way."""
UPDATE = ("optimizer", "optimizer_impl", "optimizer_in_backward")
"""Fields of the update, which no forward or backward depends on."""
PASSES = (*ADDING, "attention", "compress_activations")
"""Fields that no update depends on."""
SIZES = (*SPLIT, "optimizer_impl")
BOTH = (*ADDING, *UPDATE)
SPREAD = (*BOTH, "parallel")
SAVED = (*SPLIT, *UPDATE, "parallel")
LAYOUT = (*SPLIT, "parallel")
LOSS = ("loss_chunks",)
DEEPSPEED = "deepspeed"
CASTING: Mapping[DataParallel, str] = {
    "none": "autocast", "ddp": "autocast", "fsdp1": "fsdp1", "fsdp2": "fsdp2",
    "zero1": DEEPSPEED, "zero2": DEEPSPEED, "zero3": DEEPSPEED,
}  # fmt: skip
"""Who casts in mixed precision: autocast leaves residuals in fp32 that weights in half do not. In any half precision
DeepSpeed casts what others leave as it is, adapters in fp32 among it."""
_FREE = (ADDING, PASSES, SIZES, BOTH, SPREAD, SAVED, LAYOUT, LOSS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """A way that was traced."""

    evaluated: Evaluated
    floor: MemoryFloor
    states: States

    @property
    def spec(self) -> JobSpec:
        """Its job."""
        return self.evaluated.candidate.spec

    def has_batch_of(self, candidate: Candidate) -> bool:
        """Return whether a way takes as many samples in a step."""
        return self.evaluated.candidate.global_batch == candidate.global_batch


class KnownWays:
    """Everything that was traced with success."""

    def __init__(self) -> None:
        self.traced: list[Traced] = []
        self._alike: dict[tuple[str, ...], list[Traced]] = defaultdict(list)
        self._apart: dict[tuple[str, ...], Traced] = {}
        self._keys: dict[tuple[int, tuple[str, ...]], tuple[JobSpec, tuple[str, ...]]] = {}
        self._moved: dict[int, tuple[JobSpec, JobSpec]] = {}
        self._compared = (0, 0)
        self._is_loss_cut = False

    def learn(self, evaluated: Evaluated, outcome: Evaluation) -> None:
        """See what came of a way."""
        traced = Traced(evaluated=evaluated, floor=outcome.floor, states=outcome.peaks.get("optimizer", {}))
        self.traced.append(traced)
        self._apart.setdefault(self._key(traced.spec, PASSES), traced)
        for free in _FREE:
            self._alike[self._key(traced.spec, free)].append(traced)
        alike = self.alike_but(traced.spec, LAYOUT)
        sizes = [each.spec.batch_size for each in alike if each.floor.forward_kernels == outcome.floor.forward_kernels]
        self._compared = max(self._compared, (min(sizes), max(sizes)), key=lambda ends: ends[1] - ends[0])
        uncut = {each.spec.loss_chunks for each in self.alike_but(traced.spec, LOSS)}
        self._is_loss_cut |= len(uncut) > 1 and not traced.spec.offload_activations

    def apart(self) -> list[Traced]:
        """Return one of all that differ by their passes alone."""
        return list(self._apart.values())

    def alike_but(self, spec: JobSpec, free: tuple[str, ...]) -> list[Traced]:
        """Return what differs from a job by nothing but these fields."""
        return self._alike.get(self._key(spec, free), [])

    def plainer(self, spec: JobSpec, free: tuple[str, ...]) -> list[Traced]:
        """Return what does nothing that a job does not do besides more."""
        return [each for each in self.alike_but(spec, free) if self._adds(each.spec, spec)]

    def same_passes(self, spec: JobSpec) -> list[Traced]:
        """Return what does nothing in its passes that a job does not do besides more.

        An update in backward brings kernels of its own into the passes. FSDP2 runs the same kernels and collectives
        where its shards come from the host, but adds the gradients of micro-batches there.
        """
        found = self.plainer(spec, BOTH)
        if spec.parallel.offload and spec.parallel.data == "fsdp2":
            on_device = self.plainer(self._on_device(spec), BOTH)
            found = [*found, *(each for each in on_device if each.spec.grad_accum == 1)]
        return [each for each in found if each.spec.optimizer_in_backward <= spec.optimizer_in_backward]

    def spread(self, candidate: Candidate) -> list[Traced]:
        """Return what does the same with its samples or less, spread over ranks in whatever way."""
        recomputing = ("none", candidate.spec.checkpoint)
        return [
            each
            for each in self._spread(candidate)
            if each.spec.checkpoint in recomputing
            and not each.spec.offload_activations
            and self._cuts(each.spec, candidate.spec)
        ]

    def offloading(self, candidate: Candidate) -> list[Traced]:
        """Return what offloads the same activations, spread over ranks in whatever way; no weights come with them."""
        spec = candidate.spec
        kept = (spec.offload_activations, spec.checkpoint, spec.loss_chunks)
        return [
            each
            for each in self._spread(candidate)
            if (each.spec.offload_activations, each.spec.checkpoint, each.spec.loss_chunks) == kept
            and not each.spec.parallel.offload
        ]

    def is_compared(self, smaller: int, larger: int) -> bool:
        """Do the laws of micro-batches speak for two of them?"""
        return smaller == larger or self._compared[0] <= smaller <= larger <= self._compared[1]

    def may_tell(self, known: JobSpec, spec: JobSpec) -> bool:
        """Does the work of one way tell that of another? Other ranks bring other micro-batches with them."""
        sizes = sorted((known.batch_size, spec.batch_size))
        return known.parallel != spec.parallel or self.is_compared(*sizes)

    def _spread(self, candidate: Candidate) -> list[Traced]:
        """Return what is spread over ranks otherwise, if its samples tell of that."""
        spec = candidate.spec
        if spec.parallel.context > 1 or spec.parallel.expert > 1:
            # Turns of a ring and exchanged tokens run other kernels.
            return []
        alike = [each for each in self.alike_but(spec, SPREAD) if self.may_tell(each.spec, spec)]
        # Layers that ranks share are known by one stage of them, or by whole ones.
        plain = [each for each in alike if degree(each.spec.parallel) in (1, _stage(each.spec, spec))]
        return [each for each in plain if each.has_batch_of(candidate) and _casts_alike(each.spec, spec)]

    def _on_device(self, spec: JobSpec) -> JobSpec:
        """The same with shards that stay on the device."""
        if id(spec) not in self._moved:
            self._moved[id(spec)] = spec, replace(spec, parallel=replace(spec.parallel, offload=False))
        return self._moved[id(spec)][1]

    def _key(self, spec: JobSpec, free: tuple[str, ...]) -> tuple[str, ...]:
        """The fields of a job but for those that are free, and which these are."""
        # The job itself is kept beside its key, so that no other job takes its place in memory.
        known = id(spec), free
        if known not in self._keys:
            kept = (repr(getattr(spec, each.name)) for each in fields(spec) if each.name not in free)
            self._keys[known] = spec, (*free, "", *kept)
        return self._keys[known][1]

    def _adds(self, plain: JobSpec, spec: JobSpec) -> bool:
        if plain.batch_size * plain.grad_accum != spec.batch_size * spec.grad_accum:
            return False
        cut = plain.batch_size >= spec.batch_size and self.is_compared(spec.batch_size, plain.batch_size)
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


def _casts_alike(one: JobSpec, other: JobSpec) -> bool:
    """Do two ways of one precision compute in the same types?"""
    kinds = {CASTING[each.parallel.data] for each in (one, other)}
    are_cast = one.precision.endswith("-mixed") or (DEEPSPEED in kinds and one.precision != "fp32")
    return len(kinds) == 1 or not are_cast


def _stage(known: JobSpec, spec: JobSpec) -> int:
    """The degree of a known way if it shares layers as another does, and nothing else."""
    return known.parallel.tensor if known.parallel.tensor == spec.parallel.tensor else 1
