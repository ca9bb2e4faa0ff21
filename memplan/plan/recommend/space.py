"""All ways to run a job: sets of changes that go together, times the splits of its batch; what cannot go together."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product

from memplan.job.optimizers import IMPLEMENTATIONS
from memplan.job.spec import JobSpec, OptimizerName, ScriptTarget
from memplan.plan.batch.records import BatchSplit
from memplan.plan.batch.split import splits
from memplan.plan.recommend.changes import JobChange, single_changes
from memplan.plan.recommend.programs import program_changes, split_in_words
from memplan.plan.recommend.records import ALLOWABLE, NUMERICS, Candidate, Group, Search, shares

MOST_MICRO_BATCHES = 4096
"""Micro-batches per step at most: more are no training."""
MOST_OF_A_PROGRAM = 64
"""The same of programs, unless they are given more. Chosen: a program runs each of them while it is traced."""
UNSHARDABLE: frozenset[OptimizerName] = frozenset({"adamw-8bit", "paged-adamw-8bit", "adafactor"})
"""Optimizers that stop at FSDP2's DTensors: bitsandbytes' kernels (its issue 1633), and torch's Adafactor, which takes
the power of a partial norm in place (torch 2.13)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    """A candidate with the changes that it is made of."""

    candidate: Candidate
    """The way to run the job."""
    changes: tuple[JobChange, ...]
    """What makes it."""


def allowed(change: JobChange, search: Search) -> bool:
    """May the search use a change?"""
    return not change.numerics or change.group in search.allow


def wanting(candidate: Candidate, given: Candidate, search: Search, *, batch_statistics: bool) -> tuple[Group, ...]:
    """Return what ``--allow`` would have to name besides for a candidate to be recommended.

    Args:
        candidate: What was tried.
        given: The job as given.
        search: What may change.
        batch_statistics: Does the model compute with statistics of its micro-batch? Another one is another result then.
    """
    changed = [group for group in candidate.groups if group in NUMERICS]
    if _rounds_otherwise(candidate.spec, given.spec):
        changed.append("precision")
    if batch_statistics and candidate.spec.batch_size != given.spec.batch_size:
        changed.append("split")
    return tuple(group for group in ALLOWABLE if group in changed and group not in search.allow)


def _rounds_otherwise(one: JobSpec, other: JobSpec) -> bool:
    """Does DeepSpeed run one of two jobs in 16 bits? It casts the weights, keeps fp32 ones beside, and no autocast."""
    return under_deepspeed(one) != under_deepspeed(other) and not one.precision == other.precision == "fp32"


def may_be_tried(candidate: Candidate, given: Candidate, search: Search) -> bool:
    """Does a candidate leave alone what is to stay as it is, and can it be written for all that ``--emit`` names?"""
    is_kept = not {group for group in search.keep if group not in given.groups} & set(candidate.groups)
    return is_kept and search.refusal(candidate.spec) is None


def is_allowed(candidate: Candidate, given: Candidate, search: Search, *, batch_statistics: bool) -> bool:
    """May a candidate be recommended? Arguments as those of ``wanting``."""
    return may_be_tried(candidate, given, search) and not wanting(
        candidate, given, search, batch_statistics=batch_statistics
    )


def changes_for(spec: JobSpec, search: Search, *, experts: bool = False) -> tuple[JobChange, ...]:
    """Every single change of a job, allowed or not, but for what is to stay as it is."""
    found = program_changes(single_changes(spec, search.gpus, experts=experts), spec)
    return tuple(change for change in found if change.group not in search.keep)


def made_of_whole_batches(candidate: Candidate, global_batch: int) -> bool:
    """Can its ranks share a global batch evenly?"""
    return global_batch % shares(candidate.spec.parallel) == 0


def with_split(candidate: Candidate, given: Candidate, split: BatchSplit) -> Candidate:
    """A candidate with another split of the batch, in words where it differs from that of the job as given."""
    spec = replace(candidate.spec, batch_size=split.micro_batch, grad_accum=split.grad_accum)
    words = split_in_words(split.micro_batch, split.grad_accum, given.spec)
    groups: tuple[Group, ...] = ("split",) if words else ()
    return Candidate(
        spec=spec,
        changes=(*candidate.changes, *([words] if words else [])),
        groups=(*candidate.groups, *groups),
    )


def combine(base: Candidate, changes: Sequence[JobChange], search: Search) -> Iterator[Combination]:
    """Sets of changes that do not exclude each other, small ones first, each with every split of the global batch."""
    grouped: dict[Group, list[JobChange]] = {}
    for change in changes:
        grouped.setdefault(change.group, []).append(change)
    for count in range(len(grouped) + 1):
        for groups in combinations(grouped, count):
            for chosen in product(*(grouped[group] for group in groups)):
                # Quantisation brings its own adapters.
                if not {"lora", "quantize"} <= set(groups):
                    yield from _with_splits(base, chosen, search)


def with_changes(base: Candidate, changes: Sequence[JobChange]) -> Candidate:
    """A job with some changes, its batch as it is; what they replace of the base is left out."""
    made, groups = base.spec, {change.group for change in changes}
    for change in changes:
        made = change.made(made)
    kept = [pair for pair in zip(base.changes, base.groups, strict=True) if pair[1] not in groups]
    return Candidate(
        spec=made,
        changes=(*(text for text, _ in kept), *(change.text for change in changes)),
        groups=(*(group for _, group in kept), *(change.group for change in changes)),
    )


def _most_micro_batches(spec: JobSpec) -> int:
    if spec.mode != "train":
        return 1
    return MOST_OF_A_PROGRAM if isinstance(spec.target, ScriptTarget) else MOST_MICRO_BATCHES


def _with_splits(base: Candidate, chosen: Sequence[JobChange], search: Search) -> Iterator[Combination]:
    plain, spec, global_batch = with_changes(base, chosen), base.spec, base.global_batch
    if not made_of_whole_batches(plain, global_batch):
        return
    most = _most_micro_batches(spec)
    for split in splits(global_batch, shares(plain.spec.parallel)):
        same = (split.micro_batch, split.grad_accum) == (spec.batch_size, spec.grad_accum)
        if not same and (split.grad_accum > most or "split" in search.keep):
            continue
        candidate = with_split(plain, base, split)
        if not excluded(candidate.spec):
            yield Combination(candidate=candidate, changes=tuple(chosen))


def excluded(spec: JobSpec) -> bool:
    """Does a job ask for what cannot be had together?"""
    return any(rule(spec) for rule in _RULES)


def under_deepspeed(spec: JobSpec) -> bool:
    """Does DeepSpeed's engine run the steps?"""
    return spec.parallel.data.startswith("zero")


def _gradient_is_needed_later(spec: JobSpec) -> bool:
    """``tracing/in_backward.py`` refuses it."""
    waits = spec.grad_accum > 1 or spec.clip_grad_norm is not None or spec.precision == "fp16-mixed"
    return spec.optimizer_in_backward and (waits or under_deepspeed(spec))


def _optimizer_takes_no_shards(spec: JobSpec) -> bool:
    return spec.parallel.data == "fsdp2" and spec.optimizer in UNSHARDABLE


def _optimizer_is_not_made_so(spec: JobSpec) -> bool:
    return spec.optimizer is not None and spec.optimizer_impl not in IMPLEMENTATIONS[spec.optimizer]


def _ring_has_no_kernel(spec: JobSpec) -> bool:
    """Keys and values go around the ring of fused kernels alone (``torch.distributed.tensor.experimental``)."""
    return spec.parallel.context > 1 and spec.attention == "math"


def _adapters_are_not_shared(spec: JobSpec) -> bool:
    """Layers that transformers shared by columns and rows meet adapters of peft that nobody has shared (peft 0.21)."""
    return spec.parallel.tensor > 1 and spec.lora is not None


def _loss_is_not_in_the_chain(spec: JobSpec) -> bool:
    """A chunked loss is inside the model's forward, a pipeline's after its last block."""
    return spec.parallel.pipeline > 1 and spec.loss_chunks > 1


def _saved_twice(spec: JobSpec) -> bool:
    """``tracing/saved.py`` refuses it."""
    return spec.offload_activations and spec.compress_activations != "none"


_RULES: tuple[Callable[[JobSpec], bool], ...] = (
    _gradient_is_needed_later,
    _optimizer_takes_no_shards,
    _optimizer_is_not_made_so,
    _ring_has_no_kernel,
    _adapters_are_not_shared,
    _loss_is_not_in_the_chain,
    _saved_twice,
)
