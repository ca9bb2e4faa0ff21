"""Results of ops on fake tensors, remembered: layer after layer and step after step ask the fake mode the same.

FakeTensorMode remembers too, but a hit there costs ten times what making the result costs: the call goes through the
dispatcher once more, and every argument is taken apart piece by piece. Here a call that was seen before is answered
without the mode, from what the mode itself returned then. Remembered is only what follows from the metadata of the
arguments, and only where a tensor made from memory has every trait of the one that the mode made. The next trace of a
process finds the memory of the last one, where the same kernels stand in both.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import torch

from memplan.seam.fake import FakeTensor, FakeTensorMode
from memplan.seam.modes import DisableTorchDispatch, TorchDispatchModeKey, get_dispatch_mode, len_torch_dispatch_stack
from memplan.seam.operators import OpOverload, dispatch_keys
from memplan.seam.tensors import make_subclass, set_throw_on_mutable_data_ptr, set_warn_deprecated_on_mutable_data_ptr

Args = tuple[Any, ...]
Key = tuple[Any, ...]

_META = torch.device("meta")
_CPU = torch.device("cpu")
_FAKE = TorchDispatchModeKey.FAKE
_UNTOLD = frozenset(
    {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape, torch.Tag.inplace_view}
)  # fmt: skip
"""Tags of ops whose results metadata do not tell, and of those that change the metadata of an argument."""
_LIFTING = frozenset({"lift", "lift_fresh", "lift_fresh_copy"})
"""Ops whose result keeps the value of a real tensor (``FakeTensorMode.lift_fns``)."""
_PLAIN = frozenset(
    {bool, int, float, complex, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format}
)
"""Types of arguments whose value says all."""


_ANSWERED = set_warn_deprecated_on_mutable_data_ptr
_REFUSED = set_throw_on_mutable_data_ptr


class _Made(NamedTuple):
    """One tensor of a result, as it is made again."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    offset: int
    base: int | None
    """Which of the call's tensors has its storage; None: the storage is new."""


class _Own(NamedTuple):
    """A tensor of the call's own that it returns."""

    position: int


Part = _Made | _Own | int | None
"""Of a result; numbers are themselves."""


class _Answer(NamedTuple):
    """What a call returns."""

    kind: type | None
    """``tuple`` or ``list`` of the parts; None: the only part itself."""
    parts: tuple[Part, ...]


class Results:
    """What calls on fake tensors return, for one mode after the other."""

    def __init__(self) -> None:
        self._mode: FakeTensorMode | None = None
        self._attributes: dict[str, Any] = {}
        """What the mode writes on every tensor that it makes."""
        self._mind_pointer = _ANSWERED
        """Says what becomes of who asks for the address of a tensor."""
        self._answers: dict[Any, dict[Key, _Answer | None] | None] = {}
        """Op → call → its result; None in place of either: the mode must be asked each time."""

    def __len__(self) -> int:
        return sum(len(answers) for answers in self._answers.values() if answers)

    def run(self, func: Any, args: Args, kwargs: Mapping[str, Any]) -> Any:
        """Run an op on fake tensors, or return what it returned before.

        Args:
            func: The op, called from inside a dispatch mode that lies above the fake mode.
            args: Its arguments.
            kwargs: Its keyword arguments.
        """
        if not self._is_alone():
            return func(*args, **kwargs)
        answers = self._answers[func] if func in self._answers else self._begin(func)
        tensors: list[torch.Tensor] = []
        key = None if answers is None else self._key(args, kwargs, tensors)
        if answers is None or key is None:
            return func(*args, **kwargs)
        if key in answers:
            answer = answers[key]
            return func(*args, **kwargs) if answer is None else self._again(answer, tensors)
        result = func(*args, **kwargs)
        # An op that has changed the metadata of an argument is not the one to remember.
        answers[key] = self._answer(result, tensors) if self._key(args, kwargs, []) == key else None
        return result

    def _is_alone(self) -> bool:
        """Would the fake mode alone see the call? A compiler that captures puts modes of its own before it."""
        mode: Any = get_dispatch_mode(_FAKE)
        if mode is None or len_torch_dispatch_stack() != 1 or torch.is_inference_mode_enabled():
            return False
        if mode.shape_env is not None:
            # Sizes are symbols then, of which no two are known to be equal.
            return False
        if mode is not self._mode:
            with DisableTorchDispatch():
                plain = FakeTensor(mode, torch.empty(0, device=_META), _CPU)
            self._mode, self._attributes = mode, dict(vars(plain))
            self._mind_pointer = _ANSWERED if mode._allow_unsafe_data_ptr_access else _REFUSED
        return True

    def _begin(self, func: Any) -> dict[Key, _Answer | None] | None:
        remembers = (
            isinstance(func, OpOverload)
            and func.namespace == "aten"
            and _UNTOLD.isdisjoint(func.tags)
            and func._opname not in _LIFTING
        )
        self._answers[func] = {} if remembers else None
        return self._answers[func]

    # ------------------------------------------------------------------ what is called

    def _key(self, args: Args, kwargs: Mapping[str, Any], tensors: list[torch.Tensor]) -> Key | None:
        """All that decides about a call's result; None where that is more than metadata.

        Args:
            args: The call's arguments.
            kwargs: Its keyword arguments.
            tensors: Takes the tensors among them, in order.
        """
        # Of all global states these alone count below autograd and autocast: a deterministic program refuses some ops.
        key: list[Any] = [torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled(), *kwargs]
        if not (self._describe(args, key, tensors) and self._describe(kwargs.values(), key, tensors)):
            return None
        if len(tensors) > 1:
            key += _identities(tensors)
        return tuple(key)

    def _describe(self, values: Iterable[Any], key: list[Any], tensors: list[torch.Tensor]) -> bool:
        mode = self._mode
        for value in values:
            kind = type(value)
            if kind is FakeTensor:
                if value.fake_mode is not mode or value.constant is not None or value.layout is not torch.strided:
                    return False
                key += _traits(value)
                tensors.append(value)
            elif kind in _PLAIN:
                # 1, 1.0 and True are equal, but make tensors of different types.
                key += (kind, value)
            elif kind is list or kind is tuple:
                key.append(len(value))
                if not self._describe(value, key, tensors):
                    return False
            else:
                return False
        return True

    # ------------------------------------------------------------------ what it returns

    def _answer(self, result: Any, tensors: Sequence[torch.Tensor]) -> _Answer | None:
        """How to make a result again; None where that cannot be."""
        kind = type(result) if type(result) in (list, tuple) else None
        leaves = [result] if kind is None else list(result)
        parts: list[Part] = []
        for leaf in leaves:
            own = next((index for index, each in enumerate(tensors) if each is leaf), None)
            if own is not None:
                parts.append(_Own(own))
            elif leaf is None or type(leaf) is int:
                parts.append(leaf)
            elif type(leaf) is FakeTensor and vars(leaf) == self._attributes and leaf.layout is torch.strided:
                parts.append(_made(leaf, tensors))
            else:
                return None
        answer = _Answer(kind, tuple(parts))
        again = self._again(answer, tensors)
        return answer if _all_traits(leaves) == _all_traits([again] if kind is None else again) else None

    def _again(self, answer: _Answer, tensors: Sequence[torch.Tensor]) -> Any:
        kind, parts = answer
        if kind is None:
            return self._leaf(parts[0], tensors)
        return kind([self._leaf(part, tensors) for part in parts])

    def _leaf(self, part: Part, tensors: Sequence[torch.Tensor]) -> torch.Tensor | int | None:
        if not isinstance(part, _Made):
            return tensors[part.position] if isinstance(part, _Own) else part
        shape, stride, dtype, offset, base = part
        with DisableTorchDispatch():
            if base is None:
                elements = torch.empty_strided(shape, stride, dtype=dtype, device=_META)
            else:
                elements = torch.empty(0, dtype=dtype, device=_META)
                elements.set_(tensors[base].untyped_storage(), offset, shape, stride)
        # As ``FakeTensor.__new__`` does it, whose many attributes are the same each time.
        made: torch.Tensor = make_subclass(
            FakeTensor, elements, False, dispatch_device=True, device_for_backend_keys=_CPU
        )
        self._mind_pointer(made)
        vars(made).update(self._attributes)
        return made


MOST_KEPT: Final = 30_000
"""Answers that all memories of a process may hold, each of about a kilobyte, before they begin anew. Chosen: a large
model's step has some hundreds of different calls."""
_kept: dict[Hashable, Results] = {}


def results_of(semantics: Hashable) -> Results:
    """Return the memory that all traces of this process share which replace the same kernels.

    What a program itself registers for PyTorch's own ops is not told apart, as ``FakeTensorMode.cache`` does not.

    Args:
        semantics: All that chooses what is replaced.
    """
    if sum(map(len, _kept.values())) > MOST_KEPT:
        _kept.clear()
    return _kept.setdefault(semantics, Results())


def _made(leaf: torch.Tensor, tensors: Sequence[torch.Tensor]) -> _Made:
    storage = leaf.untyped_storage()._cdata
    base = next((index for index, each in enumerate(tensors) if each.untyped_storage()._cdata == storage), None)
    return _Made(tuple(leaf.shape), leaf.stride(), leaf.dtype, int(leaf.storage_offset()), base)


def _traits(tensor: torch.Tensor) -> Key:
    """What an op can see of a tensor, as the fake mode's own memory takes it (``TensorMetadata`` of fake_tensor.py).

    The dispatch keys tell conjugates, quantized and inference tensors apart.
    """
    return (
        tensor.shape,
        tensor.stride(),
        tensor.dtype,
        tensor.storage_offset(),
        tensor.untyped_storage().nbytes(),
        tensor.requires_grad,
        dispatch_keys(tensor).raw_repr(),
    )


def _identities(tensors: Sequence[torch.Tensor]) -> list[int]:
    """Which of a call's tensors are one: what is written to is what is returned. Views are of the first in any case."""
    first: dict[int, int] = {}
    return [first.setdefault(id(tensor), index) for index, tensor in enumerate(tensors)]


def _all_traits(leaves: Sequence[torch.Tensor | int | None]) -> list[Any]:
    """Traits of what a result is made of, and which of its tensors share a storage."""
    traits = [(type(leaf), *_traits(leaf)) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
    storages = [leaf.untyped_storage()._cdata for leaf in leaves if isinstance(leaf, torch.Tensor)]
    return [*traits, [storages.index(each) for each in storages]]
