"""How long an op takes at least: its arithmetic at the device's peak rate, or its traffic at the memory's."""

from collections.abc import Iterable
from dataclasses import dataclass

from memplan.hardware.profile import GpuProfile
from memplan.job.spec import JobSpec, Precision, ScriptTarget
from memplan.tracing.records import Op, Trace

_RATE_OF: dict[Precision, str] = {
    "fp32": "fp32",
    "fp16": "fp16",
    "fp16-mixed": "fp16",
    "bf16": "bf16",
    "bf16-mixed": "bf16",
}
"""Precision of a job → key of ``GpuProfile.peak_flops``: products run in it, also under autocast. fp32 is not TF32,
which PyTorch has off by default (``torch.backends.cuda.matmul.allow_tf32``)."""

UNKNOWN_FLOPS = 1e12
"""FLOP/s where a profile says nothing (``cpu``): assumption, a server's order of magnitude. Only its ratio to
``UNKNOWN_BANDWIDTH`` matters: extra time is told as a share of the step."""
UNKNOWN_BANDWIDTH = 100e9
"""Bytes per second where a profile says nothing: assumption, some channels of DDR5."""


def computing_precision(spec: JobSpec, trace: Trace) -> Precision:
    """Return the precision whose rates hold for a step: what the options say; a program has that of its products."""
    return trace.computes_in if isinstance(spec.target, ScriptTarget) else spec.precision


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """The two rates of a device."""

    flops: float
    """FLOP/s of matrix products."""
    bandwidth: float
    """Bytes per second of its memory."""
    assumed: bool
    """Are these ``UNKNOWN_FLOPS`` and ``UNKNOWN_BANDWIDTH``, since the profile does not say?"""

    @classmethod
    def of(cls, profile: GpuProfile, precision: Precision) -> "Roofline":
        """The rates of a device for a job's precision; a card without it computes in fp32."""
        rates = profile.peak_flops
        flops = rates.get(_RATE_OF[precision]) or rates.get("fp32", 0.0)
        return cls(
            flops=flops or UNKNOWN_FLOPS,
            bandwidth=profile.memory_bandwidth or UNKNOWN_BANDWIDTH,
            assumed=not (flops and profile.memory_bandwidth),
        )

    @property
    def ridge(self) -> float:
        """FLOPs for each byte at which both rates take as long."""
        return self.flops / self.bandwidth

    def seconds(self, op: Op) -> float:
        """Time of one op; a view takes none."""
        return self.slower(op.flops, op.bytes_moved)

    def slower(self, flops: float, bytes_moved: int) -> float:
        """Time of so much arithmetic or so much traffic, whichever takes longer."""
        return max(flops / self.flops, bytes_moved / self.bandwidth)

    def total(self, ops: Iterable[Op]) -> float:
        """Time of ops one after another."""
        return sum(map(self.seconds, ops))
