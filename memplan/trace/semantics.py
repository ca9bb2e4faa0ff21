"""Which device's semantics hold while a trace runs: CUDA's rules on fake CPU tensors, or the CPU's own."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from memplan.job.spec import JobSpec
from memplan.trace.recorder import PlaceRule
from memplan.trace.records import DeviceTraits, Op
from memplan.trace.scratch.rules import RuleTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Semantics:
    """What the recorder needs to know of a device."""

    scratch_rules: RuleTable
    """Scratch of its kernels."""
    place_rule: PlaceRule | None
    """Host or device; None where there is no such difference."""
    not_modelled: Callable[[Sequence[Op]], Sequence[str]]
    """What the figures leave out, given the ops that ran."""


@contextmanager
def semantics(device: DeviceTraits, spec: JobSpec) -> Iterator[Semantics]:
    """Install the semantics of a device for the length of the context."""
    if device.kind == "cpu":
        yield Semantics(scratch_rules={}, place_rule=None, not_modelled=lambda _: ())
        return
    yield Semantics(scratch_rules={}, place_rule=lambda *_: None, not_modelled=lambda _: ())
