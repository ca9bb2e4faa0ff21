"""Traces of deep models continued from shallow ones, where that pays and is proved to hold.

job ──► how deep ──► modules of the whole and of three shallow models ──► traces of the shallow ones ──► the whole trace
          │ unknown, small   │ not alike                                         │ not alike
          └──────────────────┴───────────────────────────────────────────────────┴──► traced in full
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from memplan.errors import MemplanError
from memplan.job.source import Depth, ModelSource
from memplan.job.spec import HubTarget, JobSpec, PresetTarget
from memplan.tracing.fold.depths import DEPTHS
from memplan.tracing.records import Folded, Trace

FIRST_BLOCKS: Final = (1, 2)
"""Blocks of the shallowest model: one; two where one cannot be the first and the last at once."""
LEAST_SAVED: Final = 2
"""How many times as many blocks a model must have as all shallow ones together. Chosen: a trace has a cost beside
that of its blocks."""
_BY_BLOCK = ("none", "fsdp2")
"""Ways of sharing a model that go block by block. Buckets (DDP, ZeRO) go by bytes, stages of a pipeline by depth."""

TraceOf = Callable[[ModelSource], Trace]
"""Traces the job with another target."""


def folded_trace(spec: JobSpec, trace_of: TraceOf) -> Trace | Folded | None:
    """Return a job's trace as shallower models promise it.

    Returns:
        The trace, without a graph; why there is none, where shallower models were tried in vain; None where none was.
    """
    if not _may_be_folded(spec):
        return None
    from memplan.job.load import load_source

    whole = load_source(spec)
    if whole.depth is None:
        return None
    known: dict[int, Trace] = {}
    found: Trace | Folded | None = None
    for depths in depths_to_trace(whole.depth, prefetched=spec.parallel.data == "fsdp2"):
        folded = Folded(blocks=whole.depth.blocks, traced=depths)
        try:
            found = _continued(whole, whole.depth, folded, trace_of, known)
        except (MemplanError, OverflowError):
            # The whole model tells what is wrong, if anything is.
            found = replace(folded, refused="a shallower model cannot be traced")
        if isinstance(found, Trace):
            return found
    return found


def depths_to_trace(depth: Depth, *, prefetched: bool) -> Iterator[tuple[int, ...]]:
    """Yield at how many blocks a model may be traced instead of the whole, where that pays.

    Args:
        depth: How deep it is.
        prefetched: Are weights of a block gathered while the one before runs? One alone has none before it.
    """
    for least in FIRST_BLOCKS[1:] if prefetched else FIRST_BLOCKS:
        first = least + (depth.blocks - least) % depth.period
        depths = tuple(first + each * depth.period for each in DEPTHS)
        if LEAST_SAVED * sum(depths) <= depth.blocks:
            yield depths


def _may_be_folded(spec: JobSpec) -> bool:
    parallel = spec.parallel
    return (
        not spec.no_fold
        and isinstance(spec.target, PresetTarget | HubTarget)
        and not spec.trust_remote_code
        and spec.mode in ("train", "inference")
        and spec.checkpoint in ("none", "full")
        and spec.compile == "eager"
        and (spec.lora is None or spec.lora.config is None)
        and parallel.data in _BY_BLOCK
        and parallel.pipeline == 1
    )


def _continued(
    whole: ModelSource, depth: Depth, folded: Folded, trace_of: TraceOf, known: dict[int, Trace]
) -> Trace | Folded:
    """The trace, or why there is none; ``known`` are traces by their blocks."""
    from memplan.tracing.fold.continued import continued, modules_continue

    started = time.perf_counter()
    shallow = [depth.at(blocks) for blocks in folded.traced]
    further = (depth.blocks - folded.traced[0]) // depth.period
    if not modules_continue([source.model for source in shallow], whole.model, further):
        return replace(folded, traced=(), refused="its blocks are not alike")
    for blocks, source in zip(folded.traced, shallow, strict=True):
        known[blocks] = known.get(blocks) or trace_of(source)
    trace = continued([known[blocks] for blocks in folded.traced], further, told=next(iter(known.values())))
    if trace is None:
        return replace(folded, refused="steps of shallower models do not continue one another")
    return replace(trace, folded=folded, trace_seconds=time.perf_counter() - started)
