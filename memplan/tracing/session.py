"""A fake world with a recorder in it, and the record that comes of what ran there."""

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass

import torch

from memplan.job.missing_packages import missing_packages
from memplan.job.parallel import ALONE
from memplan.job.spec import JobSpec, ScriptTarget
from memplan.seam.find import no_loss_is_hidden
from memplan.seam.releases import untried
from memplan.tracing.alloc_conf import OwnOptions
from memplan.tracing.causal import causal_ops
from memplan.tracing.compiled import Compiling, compiling
from memplan.tracing.decisions import Decisions
from memplan.tracing.dtypes import computing, lacking
from memplan.tracing.host_reads import stand_ins
from memplan.tracing.ledger import HELD_BACK
from memplan.tracing.recorder import Recorder
from memplan.tracing.records import CacheLayer, DeviceTraits, ModelFacts, Trace
from memplan.tracing.results import results_of
from memplan.tracing.routing import Routing
from memplan.tracing.scratch.cpu_table import CPU_VERDICTS, unexamined
from memplan.tracing.script import loggers
from memplan.tracing.semantics import Semantics, semantics
from memplan.tracing.sharding.zero.disk import Disk
from memplan.tracing.sharding.zero.settings import is_approximated, is_zero
from memplan.tracing.sparse.table import bodies_of
from memplan.tracing.steps import Steps
from memplan.tracing.tracing_branches import fakes_pass_for_real
from memplan.tracing.triton_kernels import idle_kernels
from memplan.tracing.values import Values
from memplan.tracing.world import fake_world
from memplan.units import Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A fake world with a recorder in it, while it lasts."""

    recorder: Recorder
    """Watches everything that runs."""
    compiled: Compiling
    """What ``torch.compile`` means."""
    means: Semantics
    """What the device means for kernels and places."""
    decisions: Decisions
    """How what nobody knows of the data turns out."""
    kernels: Iterable[str]
    """Triton kernels that ran, as the report names them."""
    missing: Iterable[str]
    """Packages that the program imports and that are not installed, likewise."""
    disk: Disk
    """What DeepSpeed keeps there."""
    may_leave_out: bool
    """May turns that repeat the one before them be left out?"""
    own_options: OwnOptions
    """Options of the allocator that the target has itself."""
    started: float
    """Reading of ``time.perf_counter``."""

    def trace(
        self,
        steps: Steps,
        model: ModelFacts,
        *,
        seq_len: int | None,
        provenance: Mapping[str, str],
        batch: tuple[Bytes, ...],
        optimizers: tuple[str, ...],
        cache: tuple[CacheLayer, ...] = (),
    ) -> Trace:
        """Return the record of all that has run."""
        recorder, values = self.recorder, self.recorder.values
        names = {op.name for op in recorder.ops}
        return Trace(
            device=recorder.device,
            model=model,
            ops=tuple(recorder.ops),
            storages=recorder.ledger.storages(),
            events=tuple(recorder.ledger.events),
            steps=tuple(steps.ranges),
            repeats=steps.repeats,
            seq_len=seq_len,
            provenance=provenance,
            assumptions=(
                *_untried(),
                *values.assumptions,
                *values.on_routing(),
                *self.decisions.account.said,
                *self.means.assumptions(names),
                *([HELD_BACK] if any(entry.pending for entry in recorder.ledger.entries) else []),
                *self.compiled.assumptions,
            ),
            not_modelled=(
                *self.missing,
                *lacking(recorder.device, recorder.log.dtypes),
                *self.means.not_modelled(names),
                *_bounded(recorder.device, recorder),
                *self.compiled.not_modelled(),
                *self.kernels,
                *_unknown(recorder),
                *self.decisions.account.unbounded,
            ),
            trace_seconds=time.perf_counter() - self.started,
            graph=recorder.step_graph.graph,
            constants=recorder.step_graph.graph.constants,
            nvme_bytes=self.disk.nbytes,
            batch=batch,
            optimizers=optimizers,
            computes_in=computing(recorder.log.arithmetic),
            cache=cache,
            unsure=values.unsure,
            causal=causal_ops(recorder.step_graph.graph.nodes),
            alloc_conf=self.own_options.found(),
            turns=tuple(recorder.turns),
        )


@contextmanager
def session(spec: JobSpec, device: DeviceTraits, *, rank: int, decisions: Decisions) -> Iterator[Session]:
    """Enter a fake world in which everything that runs is recorded.

    Args:
        spec: Says how data turns out, what is compiled and who else runs.
        device: What is traced for.
        rank: Which of several ranks is traced.
        decisions: How what nobody knows of the data turns out.
    """
    started = time.perf_counter()
    results = results_of((device, spec.attention, spec.compile))
    routing = Routing(kind=spec.data_dependent, ranks=spec.parallel.expert)
    values = Values(routing=routing, decisions=decisions, results=results)
    with no_loss_is_hidden(), ExitStack() as stack:
        disk = stack.enter_context(_deepspeed(spec))
        stack.enter_context(decisions.host_draws.playing())
        stack.enter_context(fake_world())
        missing = stack.enter_context(missing_packages(loggers.showing))
        stack.enter_context(fakes_pass_for_real())
        compiled = stack.enter_context(compiling(spec.compile))
        means = stack.enter_context(semantics(device, spec.attention))
        recorder = Recorder(device, means.scratch_rules, means.place_rule, values, bodies_of(device))
        means.ask_host(recorder.references.is_host)
        means.ask_pinned(recorder.references.is_pinned)
        means.ask_read(recorder.host_ops.read)
        means.ask_stream(recorder.ledger)
        recorder.user_code = means.user_code
        compiled.begin(recorder)
        kernels = stack.enter_context(idle_kernels(device, recorder.references.forget, values.assume))
        stack.enter_context(recorder.watching())
        stack.enter_context(stand_ins(values))
        stack.enter_context(_among_ranks(spec, rank, recorder))
        recorder.references.default_place = "device" if device.kind == "cpu" else "host"
        yield Session(
            recorder=recorder, compiled=compiled, means=means, decisions=decisions, kernels=kernels, missing=missing,
            disk=disk, may_leave_out=not spec.no_fold and spec.compile == "eager",
            own_options=OwnOptions(is_program=isinstance(spec.target, ScriptTarget)), started=started,
        )  # fmt: skip


def _bounded(device: DeviceTraits, recorder: Recorder) -> tuple[str, ...]:
    """Ops of a CPU step whose work space lies between bounds; CUDA's say so among the assumptions."""
    if device.kind != "cpu":
        return ()
    known = [name for name in recorder.bounded if CPU_VERDICTS.get(name) is not unexamined]
    return tuple(f"{name}: its work space is known between bounds only" for name in sorted(known))


def _deepspeed(spec: JobSpec) -> AbstractContextManager[Disk]:
    """Before the fake world begins: DeepSpeed is imported here."""
    if not is_zero(spec.parallel) or is_approximated(spec.parallel):
        return nullcontext(Disk())
    from memplan.tracing.sharding.zero.world import deepspeed_world

    return deepspeed_world(spec.parallel)


def _among_ranks(spec: JobSpec, rank: int, recorder: Recorder) -> AbstractContextManager[object]:
    if spec.parallel == ALONE:
        # Importing what follows takes half a second, and not every torch has it.
        return nullcontext()
    from memplan.tracing.sharding.world import world

    return world(spec.parallel, rank, recorder)


def _unknown(recorder: Recorder) -> list[str]:
    """On the CPU an unknown op's result has no elements; for CUDA what kernels take is the CPU's."""
    what = "work space of its kernel" if recorder.device.kind == "cuda" else "what it makes of them"
    return [f"sparse tensors in {name}: {what}" for name in recorder.log.unknown_sparse]


def _untried() -> tuple[str, ...]:
    sentence = untried(torch.__version__)
    return () if sentence is None else (sentence,)
