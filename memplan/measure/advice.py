"""What would make a step fit: single changes, each traced and replayed like the estimate itself."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Literal, NamedTuple

from memplan.errors import MemplanError
from memplan.job.spec import JobSpec, Precision, ScriptTarget
from memplan.measure.records import Advice, Estimate, Verdict

Half = Literal["bf16", "fp16"]
Attempt = Callable[[JobSpec], Estimate]
"""Estimates a changed job on the same device."""


class Change(NamedTuple):
    """One thing to change about a job."""

    text: str
    """What to type."""
    spec: JobSpec
    """The job after it."""


def advise(spec: JobSpec, estimate: Estimate, attempt: Attempt, half: Half = "bf16") -> tuple[Advice, ...]:
    """Changes after which a step that does not fit does, cheapest in time first.

    Args:
        spec: The job.
        estimate: Its estimate; one that fits needs no advice.
        attempt: Estimates a changed job on the same device.
        half: What its cores multiply in half precision.

    Returns:
        Only changes whose own estimate fits.
    """
    if estimate.verdict not in (Verdict.OOM, Verdict.TIGHT) or isinstance(spec.target, ScriptTarget):
        # What a program does its own arguments decide, not options.
        return ()
    found = [_advice(change, spec, estimate, attempt) for change in single_changes(spec, half)]
    found.append(_smaller_batch(spec, estimate, attempt))
    return tuple(sorted((advice for advice in found if advice is not None), key=lambda advice: advice.slowdown))


def single_changes(spec: JobSpec, half: Half = "bf16") -> Iterator[Change]:
    """Changes worth trying for a job, batch size aside."""
    if spec.mode != "train":
        if spec.precision == "fp32":
            yield Change(f"--precision {half}", dataclasses.replace(spec, precision=half))
        return
    if spec.checkpoint == "none":
        yield Change("--checkpoint full", dataclasses.replace(spec, checkpoint="full"))
    if spec.precision == "fp32":
        mixed: Precision = "bf16-mixed" if half == "bf16" else "fp16-mixed"
        yield Change(f"--precision {mixed}", dataclasses.replace(spec, precision=mixed))
    if spec.optimizer in (None, "adam", "adamw"):
        if spec.optimizer_impl in ("auto", "foreach"):
            yield Change("--optimizer-impl fused", dataclasses.replace(spec, optimizer_impl="fused"))
        yield Change("--optimizer paged-adamw-8bit", dataclasses.replace(spec, optimizer="paged-adamw-8bit"))


def _advice(change: Change, spec: JobSpec, estimate: Estimate, attempt: Attempt) -> Advice | None:
    try:
        after = attempt(change.spec)
    except MemplanError:
        # A change that this job cannot make (no repeated blocks, an optimizer of its own) is no advice.
        return None
    if after.verdict is not Verdict.FITS:
        return None
    return Advice(
        change=change.text,
        device_bytes=after.peak.device_bytes,
        slowdown=_slowdown(spec, estimate, change.spec, after),
    )


def _slowdown(spec: JobSpec, before: Estimate, changed: JobSpec, after: Estimate) -> float:
    """Extra arithmetic per sample as a share; what costs memory traffic alone (an optimizer) counts nothing."""
    if not before.flops_per_step:
        return 0.0
    per_sample = after.flops_per_step / changed.batch_size / (before.flops_per_step / spec.batch_size)
    return max(0.0, per_sample - 1)


def _smaller_batch(spec: JobSpec, estimate: Estimate, attempt: Attempt) -> Advice | None:
    """The largest batch that fits, by secants: each guess is traced, the line through two of them gives the next."""
    below, above = 0, spec.batch_size
    sizes = {above: estimate.peak.high_bytes}
    best: Estimate | None = None
    guess = above // 2
    for _ in range(_MOST_GUESSES):
        if not below < guess < above:
            break
        try:
            after = attempt(dataclasses.replace(spec, batch_size=guess))
        except MemplanError:
            # A batch too small for the job, or no time for further ones: what has been found stands.
            break
        sizes[guess] = after.peak.high_bytes
        if after.verdict is Verdict.FITS:
            below, best = guess, after
        else:
            above = guess
        guess = _next_guess(sizes, below, above, estimate.gpu.usable_bytes)
    if best is None:
        return None
    return Advice(change=f"--batch-size {below}", device_bytes=best.peak.device_bytes, slowdown=0.0)


_MOST_GUESSES = 6
"""Each costs a trace. Memory is nearly affine in the batch, so that three or four usually do."""


def _next_guess(sizes: Mapping[int, int], below: int, above: int, usable: int) -> int:
    """Where the line through the two batches nearest to the edge meets what the device has, kept between them."""
    first, second = sorted(sorted(sizes, key=lambda batch: abs(sizes[batch] - usable))[:2])
    slope = (sizes[second] - sizes[first]) / (second - first)
    meets = first + (usable - sizes[first]) / slope if slope > 0 else (below + above) / 2
    return int(max(below + 1, min(above - 1, meets)))
