"""A trace as a stream of tokens, and back: ops with what they read and write, births, frees, steps, and what is said.

A word has all that the copies of a block share: the op, its source, the size and the place of a storage. Integers are
numbers in names, FLOPs, traffic, and the ids of storages. A storage is told by the position of its birth and an op by
its own, so that neither needs a number.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from memplan.tracing.fold.stream import Integers, TokenStream, stream_of
from memplan.tracing.fold.words import GAP, Vocabulary, Word, put_together, sentence_apart, taken_apart
from memplan.tracing.records import Event, ModelFacts, Op, StepRange, Storage, Trace, Turn
from memplan.units import Bytes, OpIndex, StorageId

_OP, _NEW, _READ, _WRITE, _FREE, _BEGIN, _END, _COUNT, _SAID, _LEFT_OUT, _ORIGIN, _FORMER, _TURN, _PAST = range(14)
"""Kinds of tokens, the first part of their words."""
_REFERENCES = (_READ, _WRITE, _FREE)
_STACK = "aten.stack.default"
GROWING = frozenset({_STACK, "aten._foreach_norm.Scalar", "aten._foreach_powsum.Scalar"})
"""Ops on lists whose storages grow by so many bytes for every tensor: their sizes are integers, not parts of words."""
MOST_STACKED = 1 << 13
"""Bytes up to which what is stacked is of that kind: 2,048 norms in fp32, which one block reduces on every card (ATen,
native/cuda/Reduce.cuh: splits begin at 16 values a thread)."""
_KEPT = ("device", "repeats", "seq_len", "nvme_bytes", "batch", "optimizers", "unsure", "cache")
"""Fields that no depth may change."""

Token = tuple[int, tuple[int, ...]]


def are_alike(traces: Sequence[Trace]) -> bool:
    """Do traces agree in all that streams leave out?"""
    return len({repr([getattr(trace, name) for name in _KEPT]) for trace in traces}) == 1


def encode(trace: Trace, words: Vocabulary) -> TokenStream:
    """Return a trace as tokens.

    Args:
        trace: The trace; its graph is left out.
        words: Vocabulary of all traces that are compared.
    """
    tokens = [*_facts(trace, words), *_run(trace, words)]
    return stream_of([word for word, _ in tokens], [integers for _, integers in tokens])


def decode(stream: TokenStream, words: Vocabulary, like: Trace) -> Trace:
    """Return the trace of a stream, without a graph."""
    return _Decoder(stream, words).trace(like)


def is_sound(stream: TokenStream, words: Vocabulary) -> bool:
    """Does every token refer to a storage of the kind that its word says, and is each freed once, after its birth?"""
    if not all(
        _is_small(stream, number, word) for number, word in enumerate(words.known) if word[:2] == (_NEW, _STACK)
    ):
        return False
    kinds = np.array([word[0] for word in words.known])[stream.words]
    is_new = kinds == _NEW
    born = stream.words[is_new]
    meant = np.array([word[1] if word[0] in _REFERENCES else -1 for word in words.known])[stream.words]
    refers = meant >= 0
    ids = stream.integers[refers, 0]
    if len(ids) and (ids.min() < 0 or ids.max() >= len(born)):
        return False
    is_free = kinds == _FREE
    freed = stream.integers[is_free, 0]
    in_time = (freed < np.cumsum(is_new)[is_free]).all()
    return bool(in_time and len(np.unique(freed)) == len(freed) and (born[ids] == meant[refers]).all())


def _facts(trace: Trace, words: Vocabulary) -> Iterator[Token]:
    yield words.number(_COUNT), (trace.model.parameters, trace.model.trainable_parameters)
    said = [(_SAID, "", text) for text in trace.assumptions] + [(_LEFT_OUT, "", text) for text in trace.not_modelled]
    for kind, name, text in (*said, *((_ORIGIN, name, text) for name, text in trace.provenance.items())):
        gapped, numbers = sentence_apart(text)
        yield words.number(kind, name, text == gapped, gapped), numbers


def _run(trace: Trace, words: Vocabulary) -> Iterator[Token]:
    """Ops and events as they came: an event follows the op that it names."""
    born = [_birth(*each, words) for each in zip(trace.storages, _growing(trace), strict=True)]
    refer = {kind: [words.number(kind, word) for word, _ in born] for kind in _REFERENCES}
    marks = _marks(trace, words)
    done, events = 0, trace.events
    for count in range(len(trace.ops) + 1):
        while (marks and marks[-1][0] == count) or (done < len(events) and events[done].op < count):
            if marks and marks[-1][:2] == (count, done):
                yield marks.pop()[2], ()
                continue
            action, storage, _ = events[done]
            yield born[storage] if action == "alloc" else (refer[_FREE][storage], (storage,))
            done += 1
        if count < len(trace.ops):
            op = trace.ops[count]
            yield _op(op, words, is_causal=count in trace.causal)
            yield from ((refer[_READ][storage], (storage,)) for storage in op.reads)
            yield from ((refer[_WRITE][storage], (storage,)) for storage in op.writes)


def _marks(trace: Trace, words: Vocabulary) -> list[tuple[int, int, int]]:
    """After how many ops and events steps and turns begin and end, the last first."""
    begin, end = words.number(_BEGIN), words.number(_END)
    marks: list[tuple[int, int, int]] = []
    for step in trace.steps:
        marks += [(step.first_op, step.first_event, begin), (step.end_op, step.end_event, end)]
    for turn in trace.turns:
        marks.append((turn.former_op, turn.former_event, words.number(_FORMER)))
        marks.append((turn.first_op, turn.first_event, words.number(_TURN, turn.further)))
        marks.append((turn.end_op, turn.end_event, words.number(_PAST)))
    return sorted(marks, key=lambda mark: mark[:2])[::-1] if trace.turns else marks[::-1]


def _op(op: Op, words: Vocabulary, *, is_causal: bool) -> Token:
    module, numbers = taken_apart(op.module)
    return words.number(_OP, op.name, op.phase, module, op.source, is_causal), (op.flops, op.bytes_moved, *numbers)


def _is_small(stream: TokenStream, number: int, word: Word) -> bool:
    """Is all that is stacked under a word as small as it was in the traces that were seen?"""
    sizes = stream.integers[stream.words == number, str(word[-1]).count(GAP) + 1]
    return bool((sizes <= MOST_STACKED).all())


def _growing(trace: Trace) -> list[str]:
    """The op by which each storage grows with the number of tensors; empty: it does not, or has an upper end."""
    found: list[str] = []
    for storage in trace.storages:
        op = trace.ops[storage.birth] if trace.ops and storage.most_bytes is None else None
        name = "" if op is None else op.name if op.name in GROWING else _passed_on(storage, op, trace, found)
        found.append("" if name == _STACK and storage.nbytes > MOST_STACKED else name)
    return found


def _passed_on(storage: Storage, op: Op, trace: Trace, growing: Sequence[str]) -> str:
    """What is as large as the stack that it is made of grows with it: norms that ranks add up, and their powers."""
    source = op.reads[0] if len(op.reads) == 1 and storage.id in op.writes else storage.id
    is_stack = source < storage.id and growing[source] == _STACK
    return _STACK if is_stack and trace.storages[source].nbytes == storage.nbytes else ""


def _birth(storage: Storage, growing: str, words: Vocabulary) -> Token:
    name, numbers = taken_apart(storage.name)
    size, by_line = (growing, (storage.nbytes,)) if growing else (storage.nbytes, ())
    kind = (size, storage.place, storage.role, storage.stream, storage.most_bytes, storage.spare)
    return words.number(_NEW, *kind, name), (*numbers, storage.pending, *by_line)


class _Decoder:
    """A stream with what is needed to read its tokens, all of a kind at once."""

    def __init__(self, stream: TokenStream, words: Vocabulary) -> None:
        self._stream = stream
        self._kinds = np.array([word[0] for word in words.known], np.int64)[stream.words]
        self._known = words.known
        self._ops_before = self._before(_OP)
        self._born_before = self._before(_NEW)

    def trace(self, like: Trace) -> Trace:
        (_, counts), *_ = self._tokens(_COUNT)
        return replace(
            like,
            model=ModelFacts(parameters=counts[0], trainable_parameters=counts[1]),
            ops=tuple(self._ops()),
            storages=tuple(self._storages()),
            events=tuple(self._events()),
            steps=tuple(self._steps()),
            turns=tuple(self._turns()),
            provenance={word[1]: text for word, text in self._texts(_ORIGIN)},
            assumptions=tuple(text for _, text in self._texts(_SAID)),
            not_modelled=tuple(text for _, text in self._texts(_LEFT_OUT)),
            graph=None,
            constants={},
            causal=frozenset(OpIndex(index) for index, (word, _) in enumerate(self._tokens(_OP)) if word[5]),
        )

    def _ops(self) -> Iterator[Op]:
        reads, writes = self._operands(_READ), self._operands(_WRITE)
        for index, (word, integers) in enumerate(self._tokens(_OP)):
            _, name, phase, module, source, _ = word
            yield Op(
                index=OpIndex(index),
                name=name,
                phase=phase,
                module=put_together(module, tuple(integers[2 : 2 + module.count(GAP)])),
                source=source,
                flops=integers[0],
                bytes_moved=Bytes(integers[1]),
                reads=reads[index],
                writes=writes[index],
            )

    def _operands(self, kind: int) -> list[tuple[StorageId, ...]]:
        """The storages that each op reads or writes: the tokens of a kind up to the next op."""
        all_of_them = self._stream.integers[self._kinds == kind, 0].tolist()
        starts = self._before(kind)[self._kinds == _OP].tolist()
        return [tuple(all_of_them[start:end]) for start, end in pairwise([*starts, len(all_of_them)])]

    def _storages(self) -> Iterator[Storage]:
        births = np.maximum(self._ops_before[self._kinds == _NEW] - 1, 0).tolist()
        for index, (birth, (word, integers)) in enumerate(zip(births, self._tokens(_NEW), strict=True)):
            _, size, place, role, stream, most_bytes, spare, name = word
            said = name.count(GAP)
            yield Storage(
                id=StorageId(index),
                nbytes=Bytes(integers[said + 1]) if isinstance(size, str) else size,
                place=place,
                role=role,
                birth=birth,
                name=put_together(name, tuple(integers[:said])),
                stream=stream,
                most_bytes=most_bytes,
                spare=spare,
                pending=integers[said],
            )

    def _events(self) -> Iterator[Event]:
        is_event = (self._kinds == _NEW) | (self._kinds == _FREE)
        is_new = (self._kinds == _NEW)[is_event]
        storages = np.where(is_new, self._born_before[is_event], self._stream.integers[is_event, 0]).tolist()
        ops = (self._ops_before[is_event] - 1).tolist()
        for new, storage, op in zip(is_new.tolist(), storages, ops, strict=True):
            yield Event("alloc" if new else "free", storage, op)

    def _turns(self) -> Iterator[Turn]:
        further = (word[1] for word, _ in self._tokens(_TURN))
        places = (self._places(kind) for kind in (_FORMER, _TURN, _PAST))
        for count, (former_op, former_event), (first_op, first_event), (end_op, end_event) in zip(
            further, *places, strict=True
        ):
            yield Turn(
                former_op=former_op,
                former_event=former_event,
                first_op=first_op,
                end_op=end_op,
                first_event=first_event,
                end_event=end_event,
                further=count,
            )

    def _places(self, kind: int) -> Iterator[tuple[int, int]]:
        """After how many ops and events the marks of a kind stand."""
        at = self._kinds == kind
        events = self._before(_NEW) + self._before(_FREE)
        return zip(self._ops_before[at].tolist(), events[at].tolist(), strict=True)

    def _steps(self) -> Iterator[StepRange]:
        begins, ends = self._places(_BEGIN), self._places(_END)
        for (first_op, first_event), (end_op, end_event) in zip(begins, ends, strict=True):
            yield StepRange(first_op=first_op, end_op=end_op, first_event=first_event, end_event=end_event)

    def _texts(self, kind: int) -> Iterator[tuple[Any, str]]:
        for word, integers in self._tokens(kind):
            text = word[-1]
            is_whole = word[-2]
            yield word, text if is_whole else put_together(text, tuple(integers[: text.count(GAP)]))

    def _tokens(self, kind: int) -> Iterator[tuple[Any, list[int]]]:
        at = self._kinds == kind
        for word, integers in zip(self._stream.words[at].tolist(), self._stream.integers[at].tolist(), strict=True):
            yield self._known[word], integers

    def _before(self, kind: int) -> Integers:
        """How many tokens of a kind stand before each token."""
        counts: Integers = np.cumsum(self._kinds == kind)
        return np.concatenate([[0], counts[:-1]])
