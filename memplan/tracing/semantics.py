"""Which device's semantics hold while a trace runs: CUDA's rules on fake CPU tensors, or the CPU's own."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import NoReturn

import torch

from memplan.job.spec import Attention
from memplan.seam.replace import Replacement, replaced
from memplan.tracing.bitsandbytes import shape_only_bitsandbytes
from memplan.tracing.cpu_ways import cpu_ways
from memplan.tracing.cuda import flex_attention as flex
from memplan.tracing.cuda.assumptions import assumptions_of
from memplan.tracing.cuda.semantics import cuda_semantics
from memplan.tracing.cuda.streams import StreamLedger
from memplan.tracing.placing import PlaceRule
from memplan.tracing.records import DeviceTraits
from memplan.tracing.scratch import cpu_table
from memplan.tracing.scratch.cuda_table import CUDA_RULES, not_covered
from memplan.tracing.scratch.rules import RuleTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Semantics:
    """What the recorder needs to know of a device."""

    scratch_rules: RuleTable
    """Scratch of its kernels."""
    place_rule: PlaceRule | None
    """Host or device; None where there is no such difference."""
    ask_host: Callable[[Callable[[torch.Tensor], bool]], None]
    """Takes the recorder's answer to "does this tensor lie in host memory?"."""
    ask_pinned: Callable[[Callable[[torch.Tensor], bool]], None]
    """Takes the recorder's answer to "does this tensor lie in page-locked memory?"."""
    ask_read: Callable[[Callable[[torch.Tensor], None]], None]
    """Takes who is told of tensors with data that become lists and arrays."""
    ask_stream: Callable[[StreamLedger], None]
    """Takes who writes down which CUDA stream work goes to, and what streams share."""
    user_code: Callable[[], AbstractContextManager[object]]
    """The context of user code that runs inside an operator."""
    not_modelled: Callable[[Iterable[str]], Iterable[str]]
    """What the figures leave out, given the names of the ops that ran."""
    assumptions: Callable[[Iterable[str]], Iterable[str]]
    """What was taken for granted, given the names of the ops that ran."""


@contextmanager
def semantics(device: DeviceTraits, attention: Attention) -> Iterator[Semantics]:
    """Install the semantics of a device for the length of the context."""
    if device.kind == "cpu":
        with replaced(_NO_CUDA), cpu_ways():
            yield Semantics(
                scratch_rules=cpu_table.CPU_VERDICTS,
                place_rule=None,
                ask_host=lambda _: None,
                ask_pinned=lambda _: None,
                ask_read=lambda _: None,
                ask_stream=lambda _: None,
                user_code=nullcontext,
                not_modelled=lambda names: _own_work_space(cpu_table.not_examined(names)),
                assumptions=cpu_table.assumptions,
            )
        return
    with cuda_semantics(device, attention=attention) as cuda, shape_only_bitsandbytes():

        def ask_host(is_host: Callable[[torch.Tensor], bool]) -> None:
            cuda.placement.is_host = is_host

        def ask_pinned(is_pinned: Callable[[torch.Tensor], bool]) -> None:
            cuda.placement.is_pinned = is_pinned

        def ask_read(read: Callable[[torch.Tensor], None]) -> None:
            cuda.placement.read = read

        def was_flex() -> bool:
            return cuda.flex_attention.called

        def ask_stream(ledger: StreamLedger) -> None:
            cuda.streams.ledger = ledger

        yield Semantics(
            scratch_rules=CUDA_RULES,
            place_rule=cuda.placement.rule,
            ask_host=ask_host,
            ask_pinned=ask_pinned,
            ask_read=ask_read,
            ask_stream=ask_stream,
            user_code=cuda.placement.user_code,
            not_modelled=lambda names: (
                *_own_work_space(not_covered(names)),
                *([flex.NOT_MODELLED] if was_flex() else []),
            ),
            assumptions=lambda names: (*assumptions_of(names), *([flex.ASSUMPTION] if was_flex() else [])),
        )


def _refuse(*_: object, **__: object) -> NoReturn:
    raise AssertionError("Torch not compiled with CUDA enabled")


_NO_CUDA = (Replacement("torch.Tensor.cuda", _refuse), Replacement("torch.nn.Module.cuda", _refuse))
"""A CUDA build of torch would move fake tensors to a device that a CPU run does not have; its CPU build says this."""


def _own_work_space(names: Iterable[str]) -> Iterable[str]:
    return (f"{name}: its kernel's own work space" for name in names)
