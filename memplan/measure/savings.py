"""What each optimization of a job saves: it is turned off, or one more is turned on, and the job traced again."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from memplan.errors import MemplanError
from memplan.job.spec import JobSpec
from memplan.measure.records import Estimate, Saving


class Switch(NamedTuple):
    """One optimization of a job, and the job in which it is the other way."""

    text: str
    """What is typed for it."""
    spec: JobSpec
    """The job without it, or with it."""
    is_on: bool
    """Does the job have it?"""
    is_usual: bool = False
    """Is it on because nobody said otherwise? Then it is told only where it saves something."""


def savings(
    switches: Sequence[Switch], estimate: Estimate, attempt: Callable[[JobSpec], Estimate], lacks: Sequence[str]
) -> tuple[Saving, ...]:
    """Trace a job with each optimization the other way.

    To turn on dtypes that the device ``lacks`` would be no optimization.

    Returns:
        Those that are on first, each with the peak that the job has without it; then what it would have with others,
        as far as they can be made of this job.
    """
    halves = _halves(lacks)
    wanted = [each for each in switches if each.is_on or each.spec.precision not in halves]
    return tuple(_saved(wanted, estimate, attempt))


def _saved(switches: Sequence[Switch], estimate: Estimate, attempt: Callable[[JobSpec], Estimate]) -> Iterator[Saving]:
    for switch in switches:
        try:
            other = attempt(switch.spec).peak.device_bytes
        except MemplanError as error:
            if switch.is_on and not switch.is_usual:
                yield Saving(optimization=switch.text, on=True, reason=error.what)
            # An optimization that this job cannot have (no blocks to checkpoint, no logits) is none that is off.
            continue
        saved = other - estimate.peak.device_bytes if switch.is_on else estimate.peak.device_bytes - other
        if saved or not switch.is_usual:
            yield Saving(optimization=switch.text, on=switch.is_on, device_bytes=other, saved_bytes=saved)


def _halves(lacks: Sequence[str]) -> tuple[str, ...]:
    """Precisions not to turn on: one of two halves is enough, the one that the device multiplies."""
    return ("bf16", "bf16-mixed") if "bfloat16" in lacks else ("fp16", "fp16-mixed")
