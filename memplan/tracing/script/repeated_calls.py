"""Forward passes without gradients that repeat an earlier one: evaluations and samples, which take most of a trace.

From the fourth of them on (same module, same shapes) the module does not run: its results are made anew, and what it
held at its peak is allocated and freed beside them. Nothing else of it outlives the call, or it would not be skipped.
Of calls whose input grows (samples, word by word) some run, and show what the others do (``seen_calls``).
"""

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from memplan.seam.fake import FakeTensor
from memplan.seam.modes import DisableTorchFunction
from memplan.seam.pytree import tree_flatten, tree_unflatten
from memplan.seam.replace import Replacement, attribute, replaced
from memplan.tracing.ledger import Entry
from memplan.tracing.recorder import Recorder
from memplan.tracing.refs import is_wrapper
from memplan.tracing.script.seen_calls import GrowingCalls, Result, Seen, Sizes
from memplan.units import OpIndex, StorageId

_CALL = "torch.nn.Module.__call__"
RUNS = 3
"""Calls that run in each step before others are skipped. Chosen: a teacher is called less often in a step."""
LENGTHS = 6
"""The same, of calls that differ in length."""
_PLAIN = (int, float, bool, str, torch.dtype, torch.device, type(None))


class RepeatedCalls:
    """Remembers calls, and skips what repeats them."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._seen: dict[Hashable, Seen | None] = {}
        self._runs: Counter[Hashable] = Counter()
        self._growths: dict[Hashable, GrowingCalls] = defaultdict(GrowingCalls)
        self._grown: dict[Hashable, set[Sizes]] = defaultdict(set)
        """Sizes of calls that differ in nothing else, of this step."""
        self._modules: list[torch.nn.Module] = []
        """Keeps what ``id`` names alive."""

    def begin_step(self) -> None:
        """Run calls again: a step shows its own."""
        self._runs.clear()
        self._grown.clear()

    @contextmanager
    def skipping(self) -> Iterator[None]:
        """Skip what repeats itself in the context."""
        real = attribute(_CALL)

        def call(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            if torch.is_grad_enabled() or self._recorder.attribution.runs_module:
                return real(module, *args, **kwargs)
            key = self._key(module, args, kwargs)
            if key is None:
                return real(module, *args, **kwargs)
            self._runs[key] += 1
            seen = self._seen.get(key)
            if seen is not None and self._runs[key] > RUNS:
                return self._repeat(seen)
            alike, sizes = _without_sizes(key)
            self._grown[alike].add(sizes)
            if self._runs[key] == 1 and len(self._grown[alike]) > LENGTHS:
                foreseen = self._growths[alike].foreseen(sizes)
                if foreseen is not None:
                    return self._repeat(foreseen)
            first_event, first_op = len(self._recorder.ledger.events), len(self._recorder.ops)
            result = real(module, *args, **kwargs)
            self._seen[key] = self._observed(module, result, first_event, first_op)
            if self._runs[key] == 1:
                self._growths[alike].add(sizes, self._seen[key])
            return result

        with replaced((Replacement(_CALL, call),)):
            yield

    def _key(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Hashable | None:
        """What makes two calls alike; None where that is not known."""
        try:
            given = tuple(self._described(value) for value in (*args, *kwargs.values()))
        except TypeError:
            return None
        if not any(module is known for known in self._modules):
            self._modules.append(module)
        parameter = next(module.parameters(), None)
        kind = None if parameter is None else self._described(parameter)
        switches = (torch.is_autocast_enabled(), torch.is_inference_mode_enabled(), self._recorder.recording)
        return id(module), module.training, kind, *switches, tuple(kwargs), given

    def _described(self, value: Any) -> Hashable:
        if isinstance(value, list | tuple):
            return tuple(map(self._described, value))
        if isinstance(value, dict):
            return tuple((key, self._described(item)) for key, item in value.items())
        if isinstance(value, torch.Tensor):
            if not isinstance(value, FakeTensor | torch.nn.Parameter) or is_wrapper(value):
                raise TypeError
            return value.shape, _order(value), value.dtype, self._recorder.references.is_host(value)
        if not isinstance(value, _PLAIN):
            raise TypeError
        return type(value), value

    def _observed(self, module: torch.nn.Module, result: Any, first_event: int, first_op: int) -> Seen | None:
        """What a call did; None where it left more behind than its results, or results that are not its own."""
        ledger = self._recorder.ledger
        alive: dict[StorageId, Entry] = {}
        held = most = 0
        at_peak: tuple[StorageId, ...] = ()
        for action, storage, _ in ledger.events[first_event:]:
            entry = ledger.entries[storage]
            nbytes = entry.nbytes if entry.place == "device" else 0
            if action == "alloc":
                alive[storage] = entry
                held += nbytes
                if held > most:
                    most, at_peak = held, tuple(alive)
            elif alive.pop(storage, None) is None:
                return None
            else:
                held -= nbytes
        leaves, structure = tree_flatten(result)
        described = []
        for leaf in leaves:
            described.append(self._result(leaf, alive, at_peak) if isinstance(leaf, torch.Tensor) else leaf)
            if not isinstance(described[-1], (Result, *_PLAIN)):
                return None
        mine = [leaf.entry for leaf in described if isinstance(leaf, Result)]
        left = Counter(entry.nbytes for entry in alive.values()) - Counter(entry.nbytes for entry in mine)
        own = {id(entry) for entry in mine}
        if len(own) != len(mine) or not own <= {id(entry) for entry in alive.values()} or left - _casts(module):
            return None
        # What autocast keeps of weights to the end of its context counts as held in the call alone.
        kept = tuple(ledger.entries[storage] for storage in at_peak if id(ledger.entries[storage]) not in own)
        ops = self._recorder.ops[first_op:]
        return Seen(leaves=tuple(described), structure=structure, held=kept, op=ops[0] if ops else None)

    def _result(
        self, tensor: torch.Tensor, alive: dict[StorageId, Entry], at_peak: tuple[StorageId, ...]
    ) -> Result | None:
        """A tensor of a call's own that fills its storage."""
        identity = None if is_wrapper(tensor) else self._recorder.ledger.find(tensor.untyped_storage())
        if identity not in alive or not isinstance(tensor, FakeTensor) or tensor.requires_grad:
            return None
        entry = alive[identity]
        if entry.nbytes != tensor.numel() * tensor.element_size() or entry.stream != self._recorder.ledger.stream:
            return None
        return Result(tensor.shape, tensor.stride(), tensor.dtype, entry, identity in at_peak)

    def _repeat(self, seen: Seen) -> Any:
        recorder, ledger = self._recorder, self._recorder.ledger
        if recorder.recording and seen.op is not None:
            # Its memory belongs to an op of its own, as that of any call: ops tell what was there at once.
            ledger.op = len(recorder.ops)
            recorder.ops.append(dataclasses.replace(seen.op, index=OpIndex(ledger.op), reads=(), writes=()))
        made = [self._made(leaf) if isinstance(leaf, Result) and leaf.at_peak else leaf for leaf in seen.leaves]
        if recorder.recording:
            for entry in [ledger.repeat(entry) for entry in seen.held]:
                ledger.release_scratch(entry)
        made = [self._made(leaf) if isinstance(leaf, Result) else leaf for leaf in made]
        return tree_unflatten(made, seen.structure)

    def _made(self, result: Result) -> torch.Tensor:
        with DisableTorchFunction(), self._recorder.muted():
            tensor = torch.empty_strided(result.size, result.stride, dtype=result.dtype)
        entry = result.entry
        self._recorder.ledger.allocate(tensor.untyped_storage(), place=entry.place, role=entry.role, name=entry.name)
        return tensor


def _casts(module: torch.nn.Module) -> Counter[int]:
    """Sizes of the copies of a module's weights that autocast keeps (``cached_cast`` of autocast_mode.cpp)."""
    if not torch.is_autocast_enabled() or not torch.is_autocast_cache_enabled():
        return Counter()
    itemsize = torch.get_autocast_dtype("cuda").itemsize
    return Counter(weight.numel() * itemsize for weight in module.parameters() if weight.requires_grad)


def _without_sizes(key: Hashable) -> tuple[Hashable, Sizes]:
    """What makes calls alike but for the shapes of what they are given, and these shapes."""
    sizes: list[int] = []

    def plain(value: Any) -> Any:
        if isinstance(value, torch.Size):
            sizes.extend(value)
            return len(value)
        return tuple(map(plain, value)) if isinstance(value, tuple) else value

    *others, given = key if isinstance(key, tuple) else (key,)
    return (*others, plain(given)), tuple(sizes)


def _order(tensor: torch.Tensor) -> tuple[int, ...]:
    """In which order the dimensions lie; how far apart they are makes no difference to what a kernel takes."""
    if tensor.is_contiguous():
        return ()
    strides = tensor.stride()
    return tuple(sorted(range(tensor.dim()), key=lambda dim: strides[dim]))
