"""The peak when routers choose otherwise: experts that all get the same, as real ones do, and at worst."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from memplan.errors import MemplanError
from memplan.job.spec import JobSpec
from memplan.measure.records import Estimate, RoutedPeak, Verdict
from memplan.tracing.routing import ANY, KINDS, SENTENCES


def envelope(spec: JobSpec, estimate: Estimate, attempt: Callable[[JobSpec], Estimate]) -> tuple[RoutedPeak, ...]:
    """Trace a job with every way of routing but its own.

    Args:
        spec: The job.
        estimate: Its own answer.
        attempt: Estimates a changed job on the same device.

    Returns:
        One for each way, the mildest first; none where no router chooses experts.
    """
    if estimate.verdict is Verdict.UNKNOWN or {ANY, *SENTENCES.values()}.isdisjoint(estimate.assumptions):
        return ()
    return tuple(_peaks(spec, estimate, attempt))


def _peaks(spec: JobSpec, estimate: Estimate, attempt: Callable[[JobSpec], Estimate]) -> Iterator[RoutedPeak]:
    for kind in KINDS:
        # Where no size hangs on it, no trace can be another one.
        is_same = kind == spec.data_dependent or ANY in estimate.assumptions
        try:
            answer = estimate if is_same else attempt(replace(spec, data_dependent=kind))
        except MemplanError as error:
            yield RoutedPeak(routing=kind, verdict=Verdict.UNKNOWN, reason=error.what)
            continue
        peak = answer.peak
        yield RoutedPeak(
            routing=kind,
            verdict=answer.verdict,
            device_bytes=peak.device_bytes,
            requested_bytes=peak.requested_bytes,
            low_bytes=peak.low_bytes,
            high_bytes=peak.high_bytes,
            phase=peak.phase,
            op=peak.op,
            module=peak.module,
            source=peak.source,
        )
