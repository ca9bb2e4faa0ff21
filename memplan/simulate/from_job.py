"""From a job to the streams of its steps at every length that will be played. Runs in the child: user code is executed.

Few lengths are traced. Ends first, then a few between; while lengths remain whose neighbours make different requests
(a kernel that changes its mind at some size), the widest such gap is halved; where two forms of a size are possible, a
length at which they differ decides. One more trace checks the result.
"""

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise

from memplan.errors import EstimateError, UsageError
from memplan.hardware.profile import GpuProfile
from memplan.job.spec import JobSpec
from memplan.job.target import format_target
from memplan.measure.answer import options
from memplan.measure.kept_traces import KeptTraces
from memplan.measure.measurer import Measurer, measuring
from memplan.replay.stream import as_run, device_requests, request_stream
from memplan.simulate.coverage import FIRST_TRACES, MOST_TRACES, most_wanted, spread
from memplan.simulate.family import TracedLength, differing, put_together
from memplan.simulate.lengths import Distribution, Fixed, draw_lengths
from memplan.simulate.records import Workload
from memplan.tracing.records import Trace


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LengthPlan:
    """Which lengths a simulation plays."""

    distribution: Distribution
    """Where they come from."""
    steps: int
    """How many."""
    seed: int
    """Of the random numbers."""


def trace_workload(
    spec: JobSpec,
    profile: GpuProfile,
    plan: LengthPlan,
    *,
    kept: KeptTraces | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Workload:
    """Trace a job at as many lengths as it takes to know every step that will be played.

    Raises:
        UsageError: The target has no sequence length, but lengths were asked for.
        EstimateError: User code fails, or its steps do not repeat.
    """
    started = time.perf_counter()
    with measuring(kept=kept, progress=progress) as measurer:
        tracer = _Tracer(spec, profile, measurer)
        if isinstance(plan.distribution, Fixed):
            tracer.trace(plan.distribution.length)
        else:
            tracer.cover(draw_lengths(plan.distribution, plan.steps, seed=plan.seed))
    families = put_together(tracer.traced)
    default = next(iter(tracer.traced))
    return Workload(
        target=format_target(spec.target),
        families=families,
        lengths=draw_lengths(plan.distribution, plan.steps, seed=plan.seed, default=default),
        assumptions=(*tracer.assumptions, *tracer.remarks),
        not_modelled=tracer.not_modelled,
        options=tracer.options,
        traced_lengths=tuple(sorted(tracer.traced)),
        seconds=time.perf_counter() - started,
        alloc_conf=tracer.alloc_conf,
    )


class _Tracer:
    """Traces of one job, by length."""

    def __init__(self, spec: JobSpec, profile: GpuProfile, measurer: Measurer) -> None:
        self.traced: dict[int, TracedLength] = {}
        self.assumptions: tuple[str, ...] = ()
        self.not_modelled: tuple[str, ...] = ()
        self.options: dict[str, str] = {}
        self.alloc_conf = ""
        self.remarks: list[str] = []
        self._checked = ""
        self._spec, self._profile, self._measurer = spec, profile, measurer

    def trace(self, length: int | None) -> TracedLength:
        """Trace one length and remember it; None takes the job's own."""
        spec = self._spec if length is None else dataclasses.replace(self._spec, seq_len=length)
        where = f"at length {length}: " if length else ""
        with _in_this_commands_words(), self._measurer.saying(where):
            trace = self._measurer.lifetimes(spec, self._profile).trace
        streams = streams_of(trace)
        self.traced[streams.length] = streams
        self.assumptions = tuple(dict.fromkeys((*self.assumptions, *trace.assumptions)))
        self.not_modelled = tuple(dict.fromkeys((*self.not_modelled, *trace.not_modelled)))
        self.options, self.alloc_conf = self.options or options(spec, trace), trace.alloc_conf
        return streams

    def cover(self, lengths: Sequence[int]) -> None:
        """Trace until every drawn length lies in a family, or enough has been traced."""
        counts = Counter(lengths)
        for first in spread(sorted(counts), FIRST_TRACES):
            self.trace(first)
        if len(counts) > 1:
            self._refuse_without_lengths()
        while not self._foreseen(counts) and len(self.traced) < MOST_TRACES:
            pass
        self.remarks += [self._checked] if self._checked else []
        self._count_rounded(counts)

    def _refuse_without_lengths(self) -> None:
        sizes = {tuple(request.nbytes for request in traced.step) for traced in self.traced.values()}
        if len(sizes) == 1:
            raise UsageError(
                "nothing in this step depends on the sequence length", hint="leave out --seq-len-dist for this target"
            )

    def _foreseen(self, counts: Counter[int]) -> bool:
        """Trace what is most wanted, then one drawn length more: was that one foreseen?"""
        while len(self.traced) < MOST_TRACES and (length := most_wanted(put_together(self.traced), counts)) is not None:
            self.trace(length)
        families = put_together(self.traced)
        inside = [n for n in sorted(counts) if n not in self.traced and families.of(n)[1] == n]
        if not inside:
            return True
        length, known = inside[len(inside) // 3], len(self.traced)
        found = differing(families, self.trace(length))
        self._checked = _verdict(found, length, known)
        return found is not None and not found[0]

    def _count_rounded(self, counts: Counter[int]) -> None:
        families = put_together(self.traced)
        rounded = sum(count for length, count in counts.items() if families.of(length)[1] != length)
        if rounded:
            self.remarks.append(
                f"{rounded} of {counts.total()} steps are played at the next longer length that is known: "
                "between traced lengths the ops differ"
            )


@contextmanager
def _in_this_commands_words() -> Iterator[None]:
    """Hints of the stages before say ``--seq-len``; here it is a distribution that was given."""
    try:
        yield
    except UsageError as error:
        hint = error.hint and error.hint.replace("--seq-len", "--seq-len-dist")
        raise UsageError(error.what, where=error.where, hint=hint) from error


def _verdict(found: tuple[int, int] | None, length: int, traces: int) -> str:
    start = f"sizes follow the length, from {traces} traces; a trace at {length}, which was not among them, "
    if found is None:
        return f"{start}makes other requests"
    wrong, total = found
    return f"{start}{'agrees byte for byte' if not wrong else f'differs in {wrong} of {total} allocations'}"


def streams_of(trace: Trace) -> TracedLength:
    """Cut a trace into its steps.

    Raises:
        EstimateError: The last step does not leave what it found, so that nobody knows the next.
    """
    trace = as_run(trace)
    stream = request_stream(trace)
    if not stream.closes or not trace.repeats:
        raise EstimateError(
            "the traced steps do not repeat, so later ones are unknown",
            hint="look for what a step keeps: a list that grows, a cache; memplan estimate shows its first steps",
        )
    bounds = [step.first_event for step in trace.steps]
    return TracedLength(
        length=trace.seq_len or 0,
        set_up=device_requests(trace, trace.events[: bounds[0]]),
        warm_up=tuple(device_requests(trace, trace.events[start:end]) for start, end in pairwise(bounds)),
        step=stream.step,
        carried=tuple(_carried(trace, stream.rename)),
    )


def _carried(trace: Trace, heirs: Mapping[int, int]) -> Iterator[tuple[Hashable, int, int]]:
    """What passes from step to step, each under a label that says what it is, whatever its size."""
    alike: Counter[Hashable] = Counter()
    for old in sorted(heirs):
        storage = trace.storages[old]
        op = trace.ops[storage.birth] if storage.birth < len(trace.ops) and not storage.name else None
        kind = storage.role, storage.name, (op.name, op.module, op.phase) if op else None
        yield (kind, alike[kind]), old, heirs[old]
        alike[kind] += 1
