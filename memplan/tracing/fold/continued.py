"""A deep model's trace and modules as three shallow ones promise them."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from memplan.tracing.fold.folding import fold
from memplan.tracing.fold.modules import modules_of
from memplan.tracing.fold.stream import same, widened
from memplan.tracing.fold.traces import are_alike, decode, encode, is_sound
from memplan.tracing.fold.words import Vocabulary, sentence_apart, taken_apart
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


def continued(traces: Sequence[Trace], depth: int, *, told: Trace | None = None) -> Trace | None:
    """Return the trace of a deep model; None where the shallow ones do not continue one another.

    Args:
        traces: Of models of the depths of ``folding.DEPTHS``.
        depth: How deep the model is, in periods of blocks above the first.
        told: The first of all traces, where it is not among them: what it alone says of imports belongs to them.
    """
    if told is not None and told is not traces[0]:
        traces = _with_told(traces, told)
    assumed = _said_once([trace.assumptions for trace in traces])
    left_out = _said_once([trace.not_modelled for trace in traces])
    first, *later = traces
    first = replace(
        first,
        assumptions=_without(first.assumptions, assumed),
        not_modelled=_without(first.not_modelled, left_out),
    )
    traces = (first, *later)
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
    whole = decode(promised, words, traces[0]) if is_sound(promised, words) else None
    if whole is None:
        return None
    return replace(whole, assumptions=(*assumed, *whole.assumptions), not_modelled=(*left_out, *whole.not_modelled))


def _said_once(said: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """What the first trace of a process says and no later one: what imports of libraries found.

    Sentences that tell of the depth stand in all traces, each with its own numbers.
    """
    first, *later = said
    gapped = [{sentence_apart(text)[0] for text in each} for each in later]
    once = tuple(text for text in first if all(sentence_apart(text)[0] not in each for each in gapped))
    return once if all(len(each) == len(first) - len(once) for each in later) else ()


def _with_told(traces: Sequence[Trace], told: Trace) -> Sequence[Trace]:
    """The traces, the first of which says, too, what another alone said without numbers, which tell of its depth."""
    first, *later = traces
    spoken = {text for trace in traces for text in (*trace.assumptions, *trace.not_modelled)}
    assumed, left_out = (
        tuple(text for text in said if text not in spoken and not taken_apart(text)[1])
        for said in (told.assumptions, told.not_modelled)
    )
    assumptions, not_modelled = (*assumed, *first.assumptions), (*left_out, *first.not_modelled)
    return (replace(first, assumptions=assumptions, not_modelled=not_modelled), *later)


def _without(said: tuple[str, ...], once: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(text for text in said if text not in once)


def _bare(trace: Trace) -> Trace:
    """The trace without what refers to torch's functions."""
    return replace(trace, graph=None, constants={})
