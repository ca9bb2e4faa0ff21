"""Estimates in one process: measured, composed, and with advice where the job does not fit. Runs in the child."""

import dataclasses
from collections.abc import Callable, Sequence

from memplan.errors import EstimateError
from memplan.hardware.profile import GpuProfile
from memplan.job.spec import JobSpec
from memplan.measure.advice import Half, TimedEstimate, advise, needs_advice
from memplan.measure.allocator import given_policy, has_expandable_segments, told
from memplan.measure.answer import compose, unknown
from memplan.measure.context import context_of
from memplan.measure.envelope import envelope
from memplan.measure.history import recorded
from memplan.measure.kept_traces import KeptTraces
from memplan.measure.measured import Measured
from memplan.measure.measurer import Measurer, measuring
from memplan.measure.played import reserved_under
from memplan.measure.records import Estimate, RecordedEstimate, Verdict
from memplan.measure.savings import Switch, savings
from memplan.replay.conf import not_modelled
from memplan.replay.policy import AllocatorPolicy
from memplan.timing.clock import step_time
from memplan.units import format_bytes

MOST_OPS_OF_ADVICE = 300_000
"""Ops traced for advice on all devices, about a minute of them, after which no further change is tried; not seconds,
so that the same job gets the same answer on any machine."""
NOT_ALL_TRIED = "not every change that could make it fit was tried: each takes as long as the estimate itself"
NOT_ALL_SWITCHED = "not every optimization was traced on and off: each takes as long as the estimate itself"
NCCL = ("NCCL's buffers: outside of PyTorch's allocator, hundreds of MiB for each communicator",)


def estimate_here(
    spec: JobSpec,
    profiles: Sequence[GpuProfile],
    *,
    advice: bool = True,
    switches: Sequence[Switch] = (),
    envelope: bool = False,
    alloc_conf: str = "",
    kept: KeptTraces | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[Estimate, ...]:
    """Estimate one job on several devices, tracing once for each kind of device that changes the step.

    Devices come in the order of the answers. Advice (changes that make it fit) and each switch cost a trace, an
    envelope two.

    Raises:
        MemplanError: As for its stages.
    """
    with measuring(given_policy(alloc_conf), kept=kept, progress=progress) as measurer:
        return _Estimator(measurer, alloc_conf, switches, envelope=envelope).estimates(spec, profiles, advice=advice)


def record_here(
    spec: JobSpec,
    profiles: Sequence[GpuProfile],
    *,
    switches: Sequence[Switch] = (),
    envelope: bool = False,
    alloc_conf: str = "",
    whole: bool = True,
    kept: KeptTraces | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[RecordedEstimate, ...]:
    """Estimate one job on several devices, and keep the history of every replay and its digest.

    Devices come in the order of the answers; each switch costs a trace, an envelope two. ``whole`` keeps the history
    itself too, not only its digest.

    Raises:
        MemplanError: As for its stages.
    """
    with measuring(given_policy(alloc_conf), kept=kept, progress=progress) as measurer:
        estimates = _Estimator(measurer, alloc_conf, switches, envelope=envelope).estimates(spec, profiles, advice=True)
        return tuple(
            RecordedEstimate(estimate=estimate, history=None)
            if estimate.verdict is Verdict.UNKNOWN
            else _recorded(measurer, spec, profile, estimate, whole=whole)
            for profile, estimate in zip(profiles, estimates, strict=True)
        )


def _recorded(
    measurer: Measurer, spec: JobSpec, profile: GpuProfile, estimate: Estimate, *, whole: bool
) -> RecordedEstimate:
    measured = measurer.measure(spec, profile)
    measurer.progress(f"writing down the replay on {profile.name}")
    history, digest = recorded(spec, profile, measured, whole=whole)
    return RecordedEstimate(estimate=estimate, history=history, digest=digest)


class _Estimator:
    """Composes answers of what is measured."""

    def __init__(self, measurer: Measurer, alloc_conf: str, switches: Sequence[Switch], *, envelope: bool) -> None:
        self._measurer, self._conf = measurer, alloc_conf
        self._switches, self._envelope = switches, envelope
        self._for_advice = 0

    def estimates(self, spec: JobSpec, profiles: Sequence[GpuProfile], *, advice: bool) -> tuple[Estimate, ...]:
        """One for each device; what fails everywhere is the job's fault and no device's."""
        answers: list[Estimate] = []
        failed: list[EstimateError] = []
        for profile in profiles:
            try:
                answers.append(self._estimate(spec, profile))
            except EstimateError as error:
                failed.append(error)
                answers.append(unknown(spec, profile, error))
        if len(failed) == len(profiles):
            raise failed[0]
        # All verdicts come first: the advice after them is limited for all devices together.
        for index, (profile, answer) in enumerate(zip(profiles, answers, strict=True)):
            if answer.verdict is not Verdict.UNKNOWN:
                advised = self._advised(spec, profile, answer) if advice else answer
                answers[index] = self._switched(profile, self._routed(spec, profile, advised))
        return tuple(answers)

    def _estimate(self, spec: JobSpec, profile: GpuProfile) -> Estimate:
        measured = self._measurer.measure(spec, profile)
        answer = compose(spec, profile, measured)
        said = (
            *_on_ranks(profile, measured, self._measurer.ranks(spec, profile)),
            *_on_allocator(spec, profile, measured, self._conf),
        )
        left_out = not_modelled(self._conf) + (NCCL if spec.parallel.ranks > 1 and profile.kind != "cpu" else ())
        return dataclasses.replace(
            answer, assumptions=answer.assumptions + said, not_modelled=answer.not_modelled + left_out
        )

    def _advised(self, spec: JobSpec, profile: GpuProfile, answer: Estimate) -> Estimate:
        """The answer with changes that make the job fit, as far as they can be tried within ``MOST_OPS_OF_ADVICE``."""
        if not needs_advice(spec, answer):
            return answer
        said = set[str]()
        before = self._measurer.ops
        attempt = self._attempts(profile, NOT_ALL_TRIED, said, MOST_OPS_OF_ADVICE - self._for_advice)

        def timed(changed: JobSpec) -> TimedEstimate:
            return self._timed(changed, profile, attempt(changed))

        half: Half = "fp16" if "bfloat16" in profile.lacks else "bf16"
        so_far = f"{profile.name}: {answer.verdict.upper()} at {format_bytes(answer.peak.device_bytes)}"
        with self._measurer.saying(f"{so_far}, what would fit? "):
            changes = advise(self._timed(spec, profile, answer), timed, half)
        self._for_advice += self._measurer.ops - before
        return dataclasses.replace(answer, advice=changes, assumptions=(*answer.assumptions, *said))

    def _timed(self, spec: JobSpec, profile: GpuProfile, answer: Estimate) -> TimedEstimate:
        """The answer with the time of a step, which is that of the rank that needs most memory."""
        trace = self._measurer.measure(spec, profile).lifetimes.trace
        return TimedEstimate(spec, answer, step_time(trace, spec, profile).total)

    def _routed(self, spec: JobSpec, profile: GpuProfile, answer: Estimate) -> Estimate:
        """The answer with the peaks of other routing, where they are wanted."""
        if not self._envelope:
            return answer
        with self._measurer.saying(f"{profile.name}: with other routing, "):
            found = envelope(spec, answer, lambda changed: self._estimate(changed, profile))
        return dataclasses.replace(answer, envelope=found)

    def _switched(self, profile: GpuProfile, answer: Estimate) -> Estimate:
        """The answer with what each optimization saves, as far as they can be traced within as many ops."""
        if not self._switches:
            return answer
        said = set[str]()
        attempt = self._attempts(profile, NOT_ALL_SWITCHED, said, MOST_OPS_OF_ADVICE)
        found = savings(self._switches, answer, attempt, profile.lacks)
        return dataclasses.replace(answer, savings=found, assumptions=(*answer.assumptions, *said))

    def _attempts(self, profile: GpuProfile, sentence: str, said: set[str], left: int) -> Callable[[JobSpec], Estimate]:
        """Estimate changed jobs until as many ops as are left are traced; then a sentence is put among what is said."""
        most = self._measurer.ops + left

        def attempt(changed: JobSpec) -> Estimate:
            if self._measurer.ops >= most:
                said.add(sentence)
                raise EstimateError(sentence)
            return self._estimate(changed, profile)

        return attempt


def _on_ranks(profile: GpuProfile, measured: Measured, ranks: Sequence[Measured]) -> tuple[str, ...]:
    """Ranks differ by their pipeline stage alone: what each needs."""
    if len(ranks) < 2:
        return ()
    contexts = [context_of(profile, each.lifetimes.trace).context_bytes for each in ranks]
    needs = [format_bytes(each.memory.peak_reserved + context) for each, context in zip(ranks, contexts, strict=True)]
    return (f"rank {measured.rank} needs most of the {len(ranks)} ranks that differ; stages need {', '.join(needs)}",)


def _on_allocator(spec: JobSpec, profile: GpuProfile, measured: Measured, conf: str) -> tuple[str, ...]:
    """The options in force, and where nobody said which, the other mode: with streams it decides some percent."""
    own = measured.lifetimes.trace.alloc_conf
    if conf or own or spec.parallel.ranks == 1 or profile.kind == "cpu" or not has_expandable_segments(profile):
        return told(given_policy(conf), own, profile)
    other = reserved_under(AllocatorPolicy(expandable_segments=True), measured, profile)
    reserved = f"{format_bytes(other)} instead of {format_bytes(measured.memory.peak_reserved)}"
    return (f"the allocator's options are PyTorch's own; under expandable_segments:True it reserves {reserved}",)
