"""The time of a step, and the rates that a device reaches: its nominal ones times the shares of ``fractions.toml``."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from memplan.hardware.profile import GpuProfile
from memplan.job.spec import Precision
from memplan.lifetime.roofline import Roofline
from memplan.tracing.records import Op, Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """Seconds of one optimizer step of one rank. ``total`` is what passes; parts that overlap do not add up to it."""

    compute: float
    """Kernels on the device, recomputation included."""
    optimizer: float
    """The optimizer's part of it, once per step however many micro-batches there are."""
    launch: float
    """Time in which the device waits for the CPU to dispatch ops."""
    communication: float
    """Collectives, hidden or not."""
    exposed_communication: float
    """The part of it that computation does not hide."""
    offload: float
    """Transfers between device and host and work on the host that computation does not hide."""
    bubble: float
    """Time in which a pipeline's stage has nothing to do."""
    total: float
    """From one step's begin to the next one's."""
    paging: float = 0.0
    """The part of ``offload`` in which paged optimizer states come and go, once per step."""
    passes: float = 0.0
    """What has passed when the optimizer begins, a pipeline's bubble included; 0 where it runs in backward."""
    blocking: float = 0.0
    """Collectives of the passes that block whatever computes: nothing hides them."""
    fetched: float = 0.0
    """Transfers that bring activations back from the host, hidden or not."""
    host_update: float = 0.0
    """The optimizer's transfers and work in host memory, hidden or not; 0 where it runs in backward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Achievable rates of one device for one precision."""

    matmul: float
    """FLOP/s of matrix products."""
    attention: float
    """FLOP/s of attention kernels."""
    bandwidth: float
    """Bytes per second of device memory."""
    host_link: float
    """Bytes per second between host and device, one direction; 0 without a link."""
    dispatch: float
    """Seconds to dispatch one op."""

    @classmethod
    def of(cls, profile: GpuProfile, precision: Precision) -> "Rates":
        """The rates of a device."""
        nominal, shares = Roofline.of(profile, precision), _shares()
        if profile.kind == "cpu":
            return cls(
                matmul=nominal.flops, attention=nominal.flops, bandwidth=nominal.bandwidth, host_link=0.0, dispatch=0.0
            )
        # AMD's numbers count their own architectures: 9.0 is no Hopper.
        capability = ".".join(map(str, profile.compute_capability or ())) if profile.kind == "cuda" else ""
        matmul = shares["matmul_rocm" if profile.kind == "rocm" else "matmul"]
        return cls(
            matmul=nominal.flops * _share(matmul, capability),
            attention=nominal.flops * _share(shares["attention"], capability),
            bandwidth=nominal.bandwidth * _share(shares["memory"], capability),
            host_link=profile.host_link_bandwidth * _share(shares["host_link"], capability),
            dispatch=_share(shares["dispatch"], capability),
        )

    def seconds(self, op: Op, flops: float, moved: float) -> float:
        """Time of one kernel: its arithmetic or its traffic, whichever takes longer; a view takes none.

        The op's name tells which rate it reaches; ``moved`` are bytes.
        """
        return max(flops / (self.attention if "attention" in op.name else self.matmul), moved / self.bandwidth)


SILENT = ("aten._foreach_", "aten._fused_")
"""Ops on lists, which return nothing where they work in place: ``bytes_moved`` then has what they are given alone."""
_COPY = "aten._foreach_copy_"
"""Does not read what it writes, which it is given: nothing is missing."""


def written_silently(op: Op, storages: Sequence[Storage]) -> int:
    """Bytes that an op writes in place without returning them; no more than it reads, where it is told of views."""
    packet = op.name.rpartition(".")[0]
    if packet == _COPY or not (op.name.startswith(SILENT) and packet.endswith("_")):
        return 0
    return min(op.bytes_moved, sum(storages[each].nbytes for each in {*op.writes}))


def _share(table: Mapping[str, float], capability: str) -> float:
    return table.get(capability, table["other"])


@cache
def _shares() -> Mapping[str, Mapping[str, float]]:
    return tomllib.loads((files("memplan.timing") / "fractions.toml").read_text("utf-8"))
