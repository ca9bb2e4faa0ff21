"""``with memplan.on("h100-80g") as cell: …``: what the block would take of a GPU; ``cell.estimate`` afterwards."""

import copy
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from memplan.api.copies import like, model_maker, optimizer_maker, tensors_inside
from memplan.api.estimates import LiveEstimate, shown
from memplan.api.jobs import DEFAULT_GPU, alone
from memplan.errors import EstimateError, UsageError
from memplan.hardware.catalog import load_profile
from memplan.job.spec import JobSpec, ScriptTarget

if TYPE_CHECKING:
    from memplan.tracing.records import DeviceTraits, Trace, Way

NAME: Final = "with memplan.on"
PLACED = "models, optimizers and tensors that stood there before the block lie on the device"


@dataclass(slots=True)
class Cell:
    """A block of code that is traced instead of run."""

    answer: LiveEstimate | None = None
    """The same; None before it is there."""

    @property
    def estimate(self) -> LiveEstimate:
        """Return what the block would take; after its end.

        Raises:
            UsageError: It has not ended.
        """
        if self.answer is None:
            raise UsageError("the block has not ended, or it failed", hint="ask for cell.estimate behind it")
        return self.answer


@contextmanager
def on(gpu: str = DEFAULT_GPU, *, alloc_conf: str = "") -> Iterator[Cell]:
    """Trace what the block does, at the top of a notebook cell or script; nothing of it is computed.

    Models, optimizers, schedulers and tensors that have names stand there as copies without data. A training loop ends
    as soon as its step repeats, and the block with it. What the block bound to names is undone behind it, so that
    ``cell.estimate`` is all that stays.

    Args:
        gpu: A profile, as ``memplan gpus`` lists them.
        alloc_conf: Value of ``PYTORCH_CUDA_ALLOC_CONF``.

    Raises:
        UsageError: The block stands in a function, whose names cannot be exchanged; or another trace runs.
        EstimateError: An op has no answer on tensors without data.
    """
    frame = sys._getframe(2)  # noqa: SLF001 - of the block; contextlib's lies between.
    names, is_top = frame.f_globals, frame.f_locals is frame.f_globals
    del frame
    if not is_top:
        raise UsageError("memplan.on stands in a function", hint="put it at the top of a cell, or use memplan.estimate")
    profile = load_profile(gpu)
    from memplan.measure.local import record_here
    from memplan.tracing.decisions import Decisions
    from memplan.tracing.records import DeviceTraits
    from memplan.tracing.script.run import Program, following
    from memplan.tracing.session import session

    spec, cell, before = JobSpec(target=ScriptTarget(path=Path("cell"))), Cell(), dict(names)
    program = Program(name=NAME, run=lambda: None, provenance={"model": NAME}, assumptions=(PLACED,))
    traits = DeviceTraits.of(profile)
    with alone():
        with (
            session(spec, traits, rank=0, decisions=Decisions("likely", {}, given={})) as here,
            following(here, program, lambda _: None) as (traces, periods),
        ):
            names.update(_copies(before, profile.kind))
            for optimizer in _of_kind(names, "Optimizer"):
                periods.optimizers.append(optimizer)
                periods.made()
            try:
                yield cell
            finally:
                for name in [name for name, value in names.items() if value is not cell]:
                    del names[name]
                names.update({name: value for name, value in before.items() if name not in names})
        [trace] = traces
        once: Any = _Once(trace)
        [recorded] = record_here(spec, [profile], alloc_conf=alloc_conf, whole=False, kept=once)
    cell.answer = shown(recorded, NAME)


class _Once:
    """The one trace that there is."""

    def __init__(self, trace: "Trace") -> None:
        self._trace = trace

    def find(self, spec: JobSpec, traits: "DeviceTraits", rank: int, way: "Way") -> "Trace":
        """Return it.

        Raises:
            EstimateError: Another one is asked for.
        """
        del traits, rank
        if way != "likely" or spec.target != ScriptTarget(path=Path("cell")) or spec != JobSpec(target=spec.target):
            raise EstimateError("a block runs once")
        return self._trace

    def keep(self, *_: object) -> None:
        """It is kept nowhere."""


def _of_kind(names: Mapping[str, Any], kind: str) -> "list[Any]":
    import torch

    return list(
        {id(value): value for value in names.values() if isinstance(value, getattr(torch.optim, kind))}.values()
    )


def _copies(names: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Return name → copy without data, of all that holds tensors; what shares parts shares its copies, too."""
    import torch

    def of(kind: type) -> dict[str, Any]:
        return {name: value for name, value in names.items() if isinstance(value, kind)}

    modules, optimizers = of(torch.nn.Module), of(torch.optim.Optimizer)
    whole = torch.nn.ModuleList(modules.values())
    hollow: Any = model_maker(whole)().to(device)
    made: dict[str, Any] = dict(zip(modules, hollow, strict=True))
    new = {id(each): optimizer_maker(each, whole)(hollow.parameters()) for each in optimizers.values()}
    made |= {name: new[id(optimizer)] for name, optimizer in optimizers.items()}
    for name, scheduler in of(torch.optim.lr_scheduler.LRScheduler).items():
        made[name] = copy.copy(scheduler)
        made[name].optimizer = new.get(id(scheduler.optimizer), scheduler.optimizer)
    return made | {
        name: like(value, device)
        for name, value in names.items()
        if name not in made and any(True for _ in tensors_inside([value]))
    }
