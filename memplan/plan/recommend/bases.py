"""What a search begins with: the job as given, its layouts, or one that fills the device; and in which order."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from memplan.errors import UsageError
from memplan.findings.utilization import Utilization
from memplan.hardware.profile import GpuProfile
from memplan.job.parallel import ALONE, Parallel
from memplan.job.spec import JobSpec
from memplan.measure.cache import Cache
from memplan.plan.batch.compose import largest_batches
from memplan.plan.batch.split import splits
from memplan.plan.recommend.changes import STAGES, layouts, zero_is_offered
from memplan.plan.recommend.records import Candidate, Group, Search, shares
from memplan.plan.recommend.space import changes_for, combine, may_be_tried, wanting

FIRST_LAYOUTS = 2
"""Layouts that are traced before all else: copies of the whole state, and one state shared by all."""
_SAID: tuple[Group, ...] = ("parallel", "optimizer")
"""Groups of what files refuse (``Sayable``)."""
ORDER: tuple[Group, ...] = (
    "checkpoint", "loss", "optimizer-step", "split", "attention", "offload", "parallel", "precision", "optimizer",
    "lora", "quantize",
)  # fmt: skip
"""What people reach for when a job does not fit, the first first. A choice of this project, after what the
documentation of torchtune, torchtitan, axolotl and transformers proposes first."""
_PLACE = {group: place for place, group in enumerate(ORDER)}


def bases(spec: JobSpec, search: Search) -> tuple[Candidate, ...]:
    """The job as given, on all ranks; where nobody said how, with one state that all share, and with copies of it.

    Where there are fewer samples than ranks, layouts whose ranks share layers stand in their place.

    Raises:
        UsageError: The ranks of ``--parallel`` are not those of ``--gpus``, or cannot share the global batch; or no way
            that may be recommended can be written for all that ``--emit`` names.
    """
    found = tuple(_bases(spec, search))
    if (refusal := search.refusal(found[0].spec)) is not None:
        needed = [groups for base in found for groups in _needed(base, search)]
        if () not in needed:
            raise _unsayable(refusal, search, needed)
    return found


def _bases(spec: JobSpec, search: Search) -> Iterator[Candidate]:
    if spec.parallel != ALONE or search.gpus == 1:
        if spec.parallel.ranks != search.gpus:
            what = f"--parallel {spec.parallel} has {spec.parallel.ranks} ranks, but there are {search.gpus} GPUs"
            raise UsageError(what, where="--gpus")
        yield Candidate(spec=_with_target(spec, search), changes=())
        return
    for parallel in reversed(_layouts(spec, search)[:FIRST_LAYOUTS]):
        spread = _with_target(replace(spec, parallel=parallel), search)
        yield Candidate(spec=spread, changes=(f"--parallel {parallel}",), groups=("parallel",))


def _layouts(spec: JobSpec, search: Search) -> list[Parallel]:
    """Return the layouts that can be written, of few samples those that can share them; all where none can."""
    known = layouts(search.gpus)
    written = [each for each in known if search.refusal(replace(spec, parallel=each)) is None] or list(known)
    if search.target_batch is None or not search.has_few_samples:
        return written
    return [each for each in written if search.target_batch % shares(each) == 0] or written


def _with_target(spec: JobSpec, search: Search) -> JobSpec:
    """The job with the wanted global batch, in micro-batches of its own size if that goes, else in smaller ones."""
    parallel = spec.parallel
    if search.target_batch is None:
        return spec
    options = list(splits(search.target_batch, shares(parallel)))
    chosen = next((each for each in options if each.micro_batch <= spec.batch_size), options[-1])
    return replace(spec, batch_size=chosen.micro_batch, grad_accum=chosen.grad_accum)


def _needed(base: Candidate, search: Search) -> Iterator[tuple[Group, ...]]:
    """Yield what ``--allow`` would have to name besides for each way that can be written, as far as options say."""
    mine = [each for each in changes_for(base.spec, search, experts=True) if each.group in _SAID]
    for each in combine(base, mine, search):
        if may_be_tried(each.candidate, base, search):
            yield wanting(each.candidate, base, search, batch_statistics=False)


def _unsayable(refusal: UsageError, search: Search, needed: list[tuple[Group, ...]]) -> UsageError:
    sayable = {kind for kind in search.emitted[0].degrees if all(kind in each.degrees for each in search.emitted)}
    hint = refusal.hint
    if needed:
        fewest: tuple[Group, ...] = min(needed, key=len)
        hint = f"--allow {','.join(fewest)} lets the search take a way that can be"
    elif search.gpus == 1 and "none" not in sayable:
        hint = "--gpus says how many GPUs there are"
    elif sayable and sayable <= {*STAGES} and not zero_is_offered():
        hint = "ZeRO is traced with DeepSpeed's own code: pip install deepspeed"
    elif "parallel" in search.keep:
        hint = "leave parallel out of --keep"
    return UsageError(f"nothing that may be recommended can be written: {refusal.what}", where="--emit", hint=hint)


def usual_rank(candidate: Candidate) -> tuple[int, ...]:
    """Rank a way: all sets of the first changes come before any that has a later one.

    Nothing, checkpointing, chunked loss, both, another optimizer step, that with checkpointing, and so on: no way is
    tried before the simpler ones that it is made of.
    """
    return tuple(sorted((_PLACE[group] for group in candidate.groups), reverse=True))


def filled(
    spec: JobSpec,
    profile: GpuProfile,
    search: Search,
    utilization: Utilization,
    *,
    timeout: float,
    cache: Cache | None = None,
    progress: Callable[[str], None] | None = None,
) -> JobSpec:
    """Return the job with the largest micro-batch that keeps the target share of a device.

    Raises:
        UsageError: Not even one sample does, so that there is nothing to fill the device with.
        EstimateError: The job cannot be traced.
    """
    # Of several layouts that a search begins with, the first shares most and takes the largest batch.
    given = bases(spec, search)[0].spec
    (answer,) = largest_batches(
        given, (profile,), utilization=utilization, timeout=timeout, cache=cache, progress=progress
    )
    if not answer.value:
        what = f"not even one sample of the job as given keeps the {utilization} target of {profile.name}"
        raise UsageError(what, where="--fill", hint="without it, memplan recommend looks for what makes the job fit")
    return replace(spec, batch_size=answer.value)
