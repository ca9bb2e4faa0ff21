"""Traces of deep models continued from shallow ones, where that pays and is proved to hold.

job ──► how deep ──► modules of the whole and of three shallow models ──► traces of the shallow ones ──► the whole trace
          │ unknown, small   │ not alike                                         │ not alike
          └──────────────────┴───────────────────────────────────────────────────┴──► traced in full
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from memplan.errors import MemplanError
from memplan.job.source import Depth, ModelSource
from memplan.job.spec import HubTarget, JobSpec, PresetTarget
from memplan.tracing.fold.depths import DEPTHS
from memplan.tracing.records import Folded, Trace

FIRST_BLOCKS: Final = (1, 2)
"""Blocks of the shallowest model, tried in turn: the first block and the last are often like no other, and a model of
one has neither."""
LEAST_SAVED: Final = 2
"""How many times as many blocks a model must have as all shallow ones together. Chosen: a trace has a cost beside
that of its blocks."""
_BY_BLOCK = ("none", "fsdp2")
"""Ways of sharing a model that go block by block. Buckets (DDP, ZeRO) go by bytes, stages of a pipeline by depth."""

TraceOf = Callable[[ModelSource], Trace]
"""Traces the job with another target."""


def folded_trace(spec: JobSpec, trace_of: TraceOf) -> Trace | Folded | None:
    """Return a job's trace as shallower models promise it.

    Args:
        spec: The job.
        trace_of: Traces it with another target.

    Returns:
        The trace, without a graph; why there is none, where shallower models were tried in vain; None where none was.
    """
    if not _may_be_folded(spec):
        return None
    from memplan.job.load import load_source
    from memplan.tracing.results import shared_results

    whole = load_source(spec)
    tried = [] if whole.depth is None else depths_to_trace(whole.depth, shared=spec.parallel.ranks > 1)
    if whole.depth is None or not tried:
        return None
    folding = _Folding(whole, whole.depth, trace_of)
    with shared_results():
        for depths in tried:
            trace = folding.trace(depths)
            if trace is not None:
                return trace
    return Folded(blocks=whole.depth.blocks, traced=tuple(folding.traces), refused=folding.refused)


def depths_to_trace(depth: Depth, *, shared: bool) -> list[tuple[int, ...]]:
    """Return at how many blocks a model is traced instead of the whole, what costs least first; none where none pays.

    Args:
        depth: How deep it is.
        shared: Do several ranks share it? FSDP's next block is the one after this: one alone has none.
    """
    period, found = depth.period, list[tuple[int, ...]]()
    for least in FIRST_BLOCKS[shared:]:
        first = least + (depth.blocks - least) % period
        depths = tuple(first + each * period for each in DEPTHS)
        if LEAST_SAVED * sum(depths) <= depth.blocks and depths not in found:
            found.append(depths)
    return found


def _may_be_folded(spec: JobSpec) -> bool:
    parallel = spec.parallel
    return (
        not spec.no_fold
        and isinstance(spec.target, PresetTarget | HubTarget)
        and not spec.trust_remote_code
        and spec.mode in ("train", "inference")
        and spec.checkpoint in ("none", "full")
        and spec.compile == "eager"
        and spec.loop == "plain"
        and (spec.lora is None or spec.lora.config is None)
        and parallel.data in _BY_BLOCK
        and parallel.pipeline == 1
    )


class _Folding:
    """A target on the way to a folded trace."""

    def __init__(self, whole: ModelSource, depth: Depth, trace_of: TraceOf) -> None:
        self.traces: dict[int, Trace] = {}
        """Traces of shallower models, by their blocks."""
        self.refused = ""
        """Why the last depths that were tried give no trace."""
        self._whole, self._depth, self._trace_of = whole, depth, trace_of
        self._started = time.perf_counter()

    def trace(self, depths: tuple[int, ...]) -> Trace | None:
        """Return the trace as models of these depths promise it; None where they do not."""
        try:
            trace = self._continued(depths)
        except (MemplanError, OverflowError):
            # The whole model tells what is wrong, if anything is.
            self.refused = "a shallower model cannot be traced"
            return None
        if trace is None:
            return None
        folded = Folded(blocks=self._depth.blocks, traced=tuple(sorted(self.traces)))
        return replace(trace, folded=folded, trace_seconds=time.perf_counter() - self._started)

    def _continued(self, depths: tuple[int, ...]) -> Trace | None:
        from memplan.tracing.fold.continued import continued, modules_continue

        shallow = {blocks: self._depth.at(blocks) for blocks in depths}
        further = (self._depth.blocks - depths[0]) // self._depth.period
        self.refused = "its blocks are not alike"
        if not modules_continue([source.model for source in shallow.values()], self._whole.model, further):
            return None
        self.refused = "steps of shallower models do not continue one another"
        for blocks, source in shallow.items():
            if blocks not in self.traces:
                self.traces[blocks] = self._trace_of(source)
        return continued([self.traces[blocks] for blocks in depths], further)
