"""A deep model's trace and modules as three shallow ones promise them."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from memplan.tracing.fold.folding import fold
from memplan.tracing.fold.modules import modules_of
from memplan.tracing.fold.stream import same, widened
from memplan.tracing.fold.traces import are_alike, decode, encode, is_sound
from memplan.tracing.fold.words import Vocabulary
from memplan.tracing.records import Trace

Build = Callable[[], torch.nn.Module]
"""Builds a model."""


def modules_continue(shallow: Sequence[Build], whole: Build, depth: int) -> bool:
    """Has a deep model the modules that shallow ones promise? No step is run.

    Args:
        shallow: Build models of the depths of ``folding.DEPTHS``.
        whole: Builds the deep one.
        depth: How deep that is, in periods of blocks above the first.
    """
    words = Vocabulary()
    with torch.device("meta"):
        *streams, truth = (modules_of(build(), words) for build in (*shallow, whole))
    folding = fold(streams)
    if folding is None:
        return False
    promised = folding.at(depth)
    width = max(promised.integers.shape[1], truth.integers.shape[1])
    return same(widened(promised, width), widened(truth, width))


def continued(traces: Sequence[Trace], depth: int) -> Trace | None:
    """Return the trace of a deep model; None where the shallow ones do not continue one another.

    Args:
        traces: Of models of the depths of ``folding.DEPTHS``.
        depth: How deep the model is, in periods of blocks above the first.
    """
    words = Vocabulary()
    streams = [encode(trace, words) for trace in traces]
    if not are_alike(traces) or any(
        decode(stream, words, trace) != _bare(trace) for stream, trace in zip(streams, traces, strict=True)
    ):
        return None
    folding = fold(streams)
    if folding is None:
        return None
    promised = folding.at(depth)
    return decode(promised, words, traces[0]) if is_sound(promised, words) else None


def _bare(trace: Trace) -> Trace:
    """The trace without what refers to torch's functions."""
    return replace(trace, graph=None, constants={})
