"""All ways to run a job: sets of changes that go together, times the splits of its batch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from memplan.errors import UsageError
from memplan.job.parallel import ALONE
from memplan.job.spec import JobSpec
from memplan.plan.batch.split import splits
from memplan.plan.recommend.changes import Change, layouts, single_changes
from memplan.plan.recommend.records import NUMERICS, Candidate, Group, Search

MOST_CHANGES = 4
"""Changes at once: more of them are never what a person wants to explain."""
FIRST_LAYOUTS = 2
"""Layouts that are traced before all else: copies of the whole state, and one state shared by all."""
MOST_MICRO_BATCHES = 4096
"""Micro-batches per step at most: more are no training."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    """A candidate with the changes that it is made of."""

    candidate: Candidate
    """The way to run the job."""
    changes: tuple[Change, ...]
    """What makes it."""


def bases(spec: JobSpec, search: Search) -> tuple[Candidate, ...]:
    """The job as given, on all ranks; where nobody said how, as copies of the whole state and as one that is shared.

    Raises:
        UsageError: The ranks of ``--parallel`` are not those of ``--gpus``, or cannot share the global batch.
    """
    if spec.parallel != ALONE or search.gpus == 1:
        if spec.parallel.ranks != search.gpus:
            what = f"--parallel {spec.parallel} has {spec.parallel.ranks} ranks, but there are {search.gpus} GPUs"
            raise UsageError(what, where="--gpus")
        return (Candidate(spec=_with_target(spec, search), changes=()),)
    return tuple(
        Candidate(
            spec=_with_target(replace(spec, parallel=parallel), search),
            changes=(f"--parallel {parallel}",),
            groups=("parallel",),
        )
        for parallel in layouts(search.gpus)[:FIRST_LAYOUTS]
    )


def _with_target(spec: JobSpec, search: Search) -> JobSpec:
    """The job with the wanted global batch, in micro-batches of its own size if that goes, else in smaller ones."""
    parallel = spec.parallel
    if search.target_batch is None:
        return spec
    options = list(splits(search.target_batch, parallel.data_ranks))
    chosen = next((each for each in options if each.micro_batch <= spec.batch_size), options[-1])
    return replace(spec, batch_size=chosen.micro_batch, grad_accum=chosen.grad_accum)


def allowed(change: Change, search: Search) -> bool:
    """May the search use a change?"""
    return not change.numerics or change.group in search.allow


def is_allowed(candidate: Candidate, given: Candidate, search: Search, *, batch_statistics: bool) -> bool:
    """May a candidate be recommended?

    Args:
        candidate: What was tried.
        given: The job as given.
        search: What may change.
        batch_statistics: Does the model compute with statistics of its micro-batch? Another one is another result then.
    """
    changed = {group for group in candidate.groups if group in NUMERICS}
    if batch_statistics and candidate.spec.batch_size != given.spec.batch_size:
        changed.add("split")
    kept = {group for group in search.keep if group not in given.groups}
    return changed <= set(search.allow) and not kept & set(candidate.groups)


def changes_for(spec: JobSpec, search: Search) -> tuple[Change, ...]:
    """Every single change of a job, allowed or not, but for what is to stay as it is."""
    return tuple(change for change in single_changes(spec, search.gpus) if change.group not in search.keep)


def combine(base: Candidate, changes: Sequence[Change], search: Search) -> Iterator[Combination]:
    """Sets of changes that do not exclude each other, each with every split of the global batch."""
    for count in range(min(MOST_CHANGES, len(changes)) + 1):
        for chosen in combinations(changes, count):
            groups = [change.group for change in chosen]
            if len(set(groups)) == len(groups) and not {"lora", "quantize"} <= set(groups):
                yield from _with_splits(base, chosen, search)


def with_changes(base: Candidate, changes: Sequence[Change]) -> Candidate:
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


def _with_splits(base: Candidate, chosen: Sequence[Change], search: Search) -> Iterator[Combination]:
    plain, spec, global_batch = with_changes(base, chosen), base.spec, base.global_batch
    ranks = plain.spec.parallel.data_ranks
    if global_batch % ranks:
        return
    for split in splits(global_batch, ranks):
        same = (split.micro_batch, split.grad_accum) == (spec.batch_size, spec.grad_accum)
        if split.grad_accum > (MOST_MICRO_BATCHES if spec.mode == "train" else 1) or (
            not same and "split" in search.keep
        ):
            continue
        if split.grad_accum > 1 and plain.spec.optimizer_in_backward:
            continue
        words = () if same else (split_words(split.micro_batch, split.grad_accum, spec),)
        groups: tuple[Group, ...] = () if same else ("split",)
        candidate = replace(
            plain,
            spec=replace(plain.spec, batch_size=split.micro_batch, grad_accum=split.grad_accum),
            changes=(*plain.changes, *words),
            groups=(*plain.groups, *groups),
        )
        yield Combination(candidate=candidate, changes=tuple(chosen))


def split_words(micro_batch: int, grad_accum: int, spec: JobSpec) -> str:
    """``--batch-size 2 --grad-accum 4``, without what stays."""
    parts = [f"--batch-size {micro_batch}"] if micro_batch != spec.batch_size else []
    parts += [f"--grad-accum {grad_accum}"] if grad_accum != spec.grad_accum else []
    return " ".join(parts)
