"""What would make a step fit: single changes, each traced and replayed like the estimate itself."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Literal, NamedTuple, get_args

from memplan.errors import MemplanError
from memplan.job.spec import Halved, HubTarget, JobSpec, Precision, PresetTarget, ScriptTarget
from memplan.lifetime.records import Category
from memplan.measure.records import Advice, Estimate, Verdict

Half = Literal["bf16", "fp16"]
_SHARE: Final[dict[Halved, int]] = {"layers": 2, "hidden": 4, "experts": 2}
"""What is halved leaves at least so large a part of every storage: of a matrix both sides may be halved."""


class TimedEstimate(NamedTuple):
    """A job on the device at hand."""

    spec: JobSpec
    estimate: Estimate
    seconds: float
    """Of one of its steps, by the device's clocks."""

    @property
    def pace(self) -> float:
        """Seconds for each token, or sample where there are no tokens."""
        tokens = int(self.estimate.options.get("seq_len", 0)) or 1
        return self.seconds / (self.spec.batch_size * self.spec.grad_accum * tokens)

    def advises(self, text: str, given: "TimedEstimate") -> Advice:
        """Return what the change that led here, told in a text, does to a job."""
        slowdown = self.pace / given.pace - 1 if given.pace else 0.0
        return Advice(change=text, device_bytes=self.estimate.peak.device_bytes, slowdown=slowdown)


Attempt = Callable[[JobSpec], TimedEstimate]
"""Estimates a changed job on the same device."""


class Change(NamedTuple):
    """One thing to change about a job."""

    text: str
    """What to type."""
    spec: JobSpec
    """The job after it."""
    keeps: frozenset[Category] = frozenset()
    """What is of these categories at a peak before the optimizer's step stays there."""


def advise(given: TimedEstimate, attempt: Attempt, half: Half = "bf16") -> tuple[Advice, ...]:
    """Changes after which a step that does not fit does, cheapest in time first.

    ``attempt`` estimates a changed job on the same device; only changes whose own estimate fits are advice. ``half`` is
    what its cores multiply in half precision.
    """
    spec, estimate = given.spec, given.estimate
    if not needs_advice(spec, estimate):
        return ()
    found = [_advice(change, given, attempt) for change in single_changes(spec, half)]
    batch = _largest(spec.batch_size, estimate, lambda size: attempt(dataclasses.replace(spec, batch_size=size)), 0)
    if batch is not None:
        found.append(_accumulated(given, attempt, batch.value))
        found.append(batch.timed.advises(f"--batch-size {batch.value}", given))
    tokens = int(estimate.options.get("seq_len", 0))
    near = estimate.gpu.usable_bytes // _NEARLY_ALL
    length = _largest(tokens, estimate, lambda tokens: attempt(dataclasses.replace(spec, seq_len=tokens)), near)
    if length is not None:
        found.append(length.timed.advises(f"--seq-len {length.value}", given))
    if not any(found):
        # Another model is the last thing that anybody wants.
        found += [_half_model(what, given, attempt) for what in get_args(Halved)]
    return tuple(sorted((advice for advice in found if advice is not None), key=lambda advice: advice.slowdown))


def needs_advice(spec: JobSpec, estimate: Estimate) -> bool:
    """Does a job not fit, and can options change it? What a program does its own arguments decide."""
    return estimate.verdict in (Verdict.OOM, Verdict.TIGHT) and not isinstance(spec.target, ScriptTarget)


def single_changes(spec: JobSpec, half: Half = "bf16") -> Iterator[Change]:
    """Changes worth trying for a job, batch size aside."""
    if spec.mode != "train":
        if spec.precision == "fp32":
            yield Change(f"--precision {half}", dataclasses.replace(spec, precision=half))
        return
    if spec.checkpoint == "none":
        keeps = frozenset(Category) - {Category.ACTIVATION}
        yield Change("--checkpoint full", dataclasses.replace(spec, checkpoint="full"), keeps)
    if spec.precision == "fp32":
        mixed: Precision = "bf16-mixed" if half == "bf16" else "fp16-mixed"
        yield Change(f"--precision {mixed}", dataclasses.replace(spec, precision=mixed))
    if spec.optimizer in (None, "adam", "adamw"):
        keeps = frozenset(Category) - {Category.OPTIMIZER_STATE}
        if spec.optimizer_impl in ("auto", "foreach"):
            yield Change("--optimizer-impl fused", dataclasses.replace(spec, optimizer_impl="fused"), keeps)
        yield Change("--optimizer paged-adamw-8bit", dataclasses.replace(spec, optimizer="paged-adamw-8bit"), keeps)


def _advice(change: Change, given: TimedEstimate, attempt: Attempt) -> Advice | None:
    if least_after(given.estimate, change.keeps) > given.estimate.gpu.usable_bytes:
        return None
    try:
        after = attempt(change.spec)
    except MemplanError:
        # A change that this job cannot make (no repeated blocks, an optimizer of its own) is no advice.
        return None
    return after.advises(change.text, given) if after.estimate.verdict is Verdict.FITS else None


def _accumulated(given: TimedEstimate, attempt: Attempt, fitting: int) -> Advice | None:
    """The same batch in several equal parts; gradients that stay between them may make a batch that fits too large."""
    spec = given.spec
    if spec.mode != "train":
        return None
    most = min(spec.batch_size, _MOST_PARTS)
    parts = [count for count in range(2, most + 1) if not spec.batch_size % count]
    for count in [each for each in parts if spec.batch_size // each <= fitting][:2]:
        micro, steps = spec.batch_size // count, spec.grad_accum * count
        changed = dataclasses.replace(spec, batch_size=micro, grad_accum=steps)
        found = _advice(Change(f"--grad-accum {steps} --batch-size {micro}", changed), given, attempt)
        if found is not None:
            return found
    return None


_MOST_PARTS = 64
"""Chosen: each part of a batch is traced."""


def _half_model(what: Halved, given: TimedEstimate, attempt: Attempt) -> Advice | None:
    """The model of a configuration with half its layers, its width or its experts."""
    is_hopeless = least_of_half(given.estimate, what) > given.estimate.gpu.usable_bytes
    if is_hopeless or not isinstance(given.spec.target, HubTarget | PresetTarget):
        return None
    try:
        after = attempt(dataclasses.replace(given.spec, halved=what))
    except MemplanError:
        # The configuration has no such number, or an odd one.
        return None
    said = after.estimate.provenance.get("halved")
    return None if after.estimate.verdict is not Verdict.FITS or said is None else after.advises(said, given)


class _Fitting(NamedTuple):
    """The largest value of an option that fits."""

    value: int
    """What to type."""
    timed: TimedEstimate
    """The job with it."""


def _largest(above: int, estimate: Estimate, attempt: Callable[[int], TimedEstimate], near: int) -> _Fitting | None:
    """The largest batch or length that fits, by secants: each guess is traced, the line through two gives the next.

    ``above`` does not fit; 0 where there is no such thing. What fits and leaves no more than ``near`` bytes will do.
    """
    below, usable = 0, estimate.gpu.usable_bytes
    # What of a peak stays and is not told apart only adds: the lower part of what will do is met sooner.
    aim = usable - 3 * near // 4
    stays = sum(estimate.breakdown.get(each, 0) for each in _STAYS)
    sizes = {above: estimate.peak.high_bytes}
    best: TimedEstimate | None = None
    # Memory is nearly affine in both: half of what is more than twice too large is too large.
    guess = min(above // 2, max(1, int(above * (aim - stays) / max(1, estimate.peak.high_bytes - stays))))
    for _ in range(_MOST_GUESSES):
        if not below < guess < above:
            break
        try:
            after = attempt(guess)
        except MemplanError:
            # Too small for the job, none of its options, or no time for further ones: what has been found stands.
            break
        sizes[guess] = after.estimate.peak.high_bytes
        if after.estimate.verdict is Verdict.FITS:
            below, best = guess, after
            if usable - sizes[guess] <= near:
                break
        else:
            above = guess
        guess = _next_guess(sizes, below, above, aim)
    return None if best is None else _Fitting(below, best)


_STAYS = (Category.PARAMETER, Category.OPTIMIZER_STATE, Category.BUFFER, Category.WORKSPACE, "context")
"""Parts of a peak that are the same for another batch or length."""
_NEARLY_ALL = 64
"""Chosen: a length that leaves no larger a part of the device is the longest for all that anybody does with it."""
_MOST_GUESSES = 6
"""Each costs a trace. Memory is nearly affine in batch and length, so that three or four usually do."""


def _next_guess(sizes: Mapping[int, int], below: int, above: int, aim: int) -> int:
    """Where the line through the two sizes nearest to an aim meets it, kept between them."""
    first, second = sorted(sorted(sizes, key=lambda batch: abs(sizes[batch] - aim))[:2])
    slope = (sizes[second] - sizes[first]) / (second - first)
    meets = first + (aim - sizes[first]) / slope if slope > 0 else (below + above) / 2
    return int(max(below + 1, min(above - 1, meets)))


def least_after(estimate: Estimate, keeps: frozenset[Category]) -> int:
    """Bytes alive at the moment of the peak after a change that leaves what is of some categories there.

    An optimizer's own moment is gone with it, so that nothing is known of a peak there.
    """
    if estimate.peak.phase == "optimizer":
        return 0
    return sum(estimate.breakdown.get(each, 0) for each in keeps)


def least_of_half(estimate: Estimate, what: Halved) -> int:
    """The same, of a model with half of something."""
    return sum(estimate.breakdown.get(each, 0) for each in Category) // _SHARE[what]
