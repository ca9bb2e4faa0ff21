"""A trace as bytes, for the cache: columns of integers and one table of texts, as JSON, compressed, with a checksum.

What is read is checked before anything is made of it, and nothing in it can run. The graph of calls is left out, since
it holds functions of torch.
"""

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple
from typing import Any, TypeVar, get_args

from memplan.tracing.records import (
    CacheLayer,
    Computing,
    DeviceTraits,
    Event,
    Folded,
    ModelFacts,
    Op,
    Phase,
    Place,
    Role,
    StepRange,
    Storage,
    Trace,
    Turn,
    Way,
)
from memplan.units import StorageId

T = TypeVar("T")

FORM = 5
"""Of the bytes; another number is refused."""
_COMPRESSION = 1
"""Of columns whose steps repeat: more takes several times as long and saves a third."""
_INT, _TEXT, _BOOL, _FLOAT = (frozenset({kind}) for kind in (int, str, bool, float))
_OPTIONAL = frozenset({int, type(None)})
_SHAPE: Mapping[str, Any] = {
    "form": _INT,
    "texts": [_TEXT],
    "ops": {"name": [_INT], "phase": [_INT], "module": [_INT], "source": [_INT], "flops": [_INT],
            "bytes_moved": [_INT], "reads": [[_INT]], "writes": [[_INT]]},
    "storages": {"nbytes": [_INT], "place": [_INT], "role": [_INT], "birth": [_INT], "name": [_INT], "stream": [_INT],
                 "most_bytes": [_OPTIONAL], "spare": [_BOOL], "pending": [_INT]},
    "events": {"storage": [_INT], "op": [_INT]},
    "steps": [(_INT, _INT, _INT, _INT)],
    "turns": [(_INT, _INT, _INT, _INT, _INT, _INT, _INT)],
    "model": (_INT, _INT),
    "repeats": _BOOL,
    "seq_len": _OPTIONAL,
    "provenance": [(_TEXT, _TEXT)],
    "assumptions": [_TEXT],
    "not_modelled": [_TEXT],
    "trace_seconds": _FLOAT,
    "nvme_bytes": _INT,
    "batch": [_INT],
    "optimizers": [_TEXT],
    "unsure": [_TEXT],
    "causal": [_INT],
    "computes_in": _TEXT,
    "alloc_conf": _TEXT,
    "cache": [(_INT, _INT, _OPTIONAL, _INT, _INT)],
    "folded": [(_INT, [_INT], _TEXT)],
}  # fmt: skip
"""What is where: a value of one of some types; a list of alike; a row; a mapping."""
_TEXTS: Mapping[str, tuple[str, ...]] = {
    "name": (),
    "module": (),
    "source": (),
    "phase": get_args(Phase),
    "place": get_args(Place),
    "role": get_args(Role),
}
"""Columns whose integers number texts, and which texts they may be; empty for any."""


def pack(trace: Trace) -> bytes:
    """Return a trace as bytes, without its graph."""
    numbers: dict[str, int] = {}

    def table(records: Sequence[Any], shape: Mapping[str, Any]) -> dict[str, list[Any]]:
        columns = {name: [getattr(record, name) for record in records] for name in shape}
        return {
            name: [numbers.setdefault(text, len(numbers)) for text in column] if name in _TEXTS else column
            for name, column in columns.items()
        }

    document = {name: getattr(trace, name) for name in _SHAPE if hasattr(trace, name)} | {
        "form": FORM,
        "ops": table(trace.ops, _SHAPE["ops"]),
        "storages": table(trace.storages, _SHAPE["storages"]),
        "events": {
            # A free has the complement of its storage.
            "storage": [event.storage if event.action == "alloc" else ~event.storage for event in trace.events],
            "op": [event.op for event in trace.events],
        },
        "steps": [astuple(step) for step in trace.steps],
        "turns": [astuple(turn) for turn in trace.turns],
        "model": astuple(trace.model),
        "provenance": list(trace.provenance.items()),
        "causal": sorted(trace.causal),
        "cache": [astuple(layer) for layer in trace.cache],
        "folded": [] if trace.folded is None else [astuple(trace.folded)],
        "texts": list(numbers),
    }
    return zlib.compress(json.dumps(document, separators=(",", ":")).encode(), _COMPRESSION)


def unpack(content: bytes, device: DeviceTraits) -> Trace:
    """Return the trace that ``pack`` made into bytes.

    Raises:
        ValueError: They are no trace.
    """
    try:
        document = json.loads(zlib.decompress(content))
    except (zlib.error, RecursionError) as error:
        raise ValueError(str(error)) from None
    if not _has_shape(document, _SHAPE) or document["form"] != FORM:
        raise ValueError("not a trace of this form")
    return _Reader(document).trace(device)


def _has_shape(value: Any, shape: Any) -> bool:
    if isinstance(shape, frozenset):
        return type(value) in shape
    if isinstance(shape, Mapping):
        same = type(value) is dict and value.keys() == shape.keys()
        return same and all(_has_shape(value[name], shape[name]) for name in shape)
    if type(value) is not list:
        return False
    if isinstance(shape, tuple):
        return len(value) == len(shape) and all(map(_has_shape, value, shape))
    (item,) = shape
    # Columns are long: the types of their values are compared at once.
    return set(map(type, value)) <= item if isinstance(item, frozenset) else all(_has_shape(row, item) for row in value)


class _Reader:
    """Makes records of a document of the right shape; whatever points outside of it is refused."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document, self._texts = document, document["texts"]
        self._ops, self._storages, self._events = (document[name] for name in ("ops", "storages", "events"))
        for table in (self._ops, self._storages, self._events):
            _refuse(len({len(column) for column in table.values()}) != 1)
        self._op_count, self._storage_count = len(self._ops["name"]), len(self._storages["name"])

    def trace(self, device: DeviceTraits) -> Trace:
        of = self._document
        _refuse(not {*of["unsure"]} <= {*get_args(Way)} or of["computes_in"] not in get_args(Computing))
        return Trace(
            device=device,
            model=ModelFacts(parameters=of["model"][0], trainable_parameters=of["model"][1]),
            ops=self._read_ops(),
            storages=self._read_storages(),
            events=self._read_events(),
            steps=tuple(self._step(*row) for row in of["steps"]),
            turns=tuple(self._turn(*row) for row in of["turns"]),
            repeats=of["repeats"],
            seq_len=of["seq_len"],
            provenance=dict(of["provenance"]),
            assumptions=tuple(of["assumptions"]),
            not_modelled=tuple(of["not_modelled"]),
            trace_seconds=of["trace_seconds"],
            graph=None,
            constants={},
            nvme_bytes=of["nvme_bytes"],
            batch=tuple(of["batch"]),
            optimizers=tuple(of["optimizers"]),
            unsure=tuple(of["unsure"]),
            causal=frozenset(of["causal"]),
            computes_in=of["computes_in"],
            alloc_conf=of["alloc_conf"],
            cache=tuple(
                CacheLayer(sequences=sequences, tokens=tokens, window=window, token_bytes=each, nbytes=nbytes)
                for sequences, tokens, window, each, nbytes in of["cache"]
            ),
            folded=next((Folded(blocks=row[0], traced=tuple(row[1]), refused=row[2]) for row in of["folded"]), None),
        )

    def _read_ops(self) -> tuple[Op, ...]:
        reads, writes = ([tuple(row) for row in self._ops[name]] for name in ("reads", "writes"))
        _refuse_outside([storage for row in (*reads, *writes) for storage in row], 0, self._storage_count)
        return self._records(Op, "index", {**self._ops, "reads": reads, "writes": writes})

    def _read_storages(self) -> tuple[Storage, ...]:
        # What is born after the last op has the index of the one that would follow.
        _refuse_outside(self._storages["birth"], -1, self._op_count + 1)
        return self._records(Storage, "id", self._storages)

    def _records(self, kind: Callable[..., T], number: str, table: Mapping[str, list[Any]]) -> tuple[T, ...]:
        """Make the records of a table; the field ``number`` counts them."""
        columns = [self._words(name, column) if name in _TEXTS else column for name, column in table.items()]
        rows = zip(*columns, strict=True)
        return tuple(kind(**{number: index}, **dict(zip(table, row, strict=True))) for index, row in enumerate(rows))

    def _read_events(self) -> tuple[Event, ...]:
        of = self._events
        _refuse_outside(of["storage"], -self._storage_count, self._storage_count)
        _refuse_outside(of["op"], -1, self._op_count + 1)
        return tuple(
            Event("alloc", storage, op) if storage >= 0 else Event("free", StorageId(~storage), op)
            for storage, op in zip(of["storage"], of["op"], strict=True)
        )

    def _step(self, first_op: int, end_op: int, first_event: int, end_event: int) -> StepRange:
        _refuse(not 0 <= first_op <= end_op <= self._op_count)
        _refuse(not 0 <= first_event <= end_event <= len(self._events["op"]))
        return StepRange(first_op=first_op, end_op=end_op, first_event=first_event, end_event=end_event)

    def _turn(self, former_op: int, former_event: int, *row: int) -> Turn:
        first_op, end_op, first_event, end_event, further = row
        _refuse(not 0 <= former_op <= first_op <= end_op <= self._op_count or further < 1)
        _refuse(not 0 <= former_event <= first_event <= end_event <= len(self._events["op"]))
        return Turn(
            former_op=former_op,
            former_event=former_event,
            first_op=first_op,
            end_op=end_op,
            first_event=first_event,
            end_event=end_event,
            further=further,
        )

    def _words(self, name: str, column: list[int]) -> list[str]:
        _refuse_outside(column, 0, len(self._texts))
        choices = _TEXTS[name]
        _refuse(bool(choices) and any(self._texts[index] not in choices for index in {*column}))
        return [self._texts[index] for index in column]


def _refuse_outside(column: Sequence[int], first: int, end: int) -> None:
    _refuse(bool(column) and (min(column) < first or max(column) >= end))


def _refuse(wrong: bool) -> None:
    if wrong:
        raise ValueError("a column of the trace points outside of it")
