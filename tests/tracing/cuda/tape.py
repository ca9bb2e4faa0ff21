"""A small dispatch mode that writes down what reached it, and where each new storage lies."""

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from memplan.tracing.cuda import CudaSemantics, cuda_semantics, decompose
from memplan.tracing.records import DeviceTraits
from memplan.tracing.world import fake_world

Result = tuple[tuple[int, ...], torch.dtype]


class Row(NamedTuple):
    op: str
    results: tuple[Result, ...]
    places: tuple[str, ...]
    """Of the storages that are new."""


class Tape(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.rows: list[Row] = []
        self.cuda: CudaSemantics | None = None
        self._storages: dict[int, torch.UntypedStorage] = {}
        self._hosts: set[int] = set()

    def is_host(self, tensor: torch.Tensor) -> bool:
        return tensor.untyped_storage()._cdata in self._hosts

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.prim.device.default:
            return func(*args)
        if torch.is_inference_mode_enabled():
            with self:
                result = decompose(func, args, kwargs)
            if result is not NotImplemented:
                return result
        result = func(*args, **kwargs)
        made = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        places = [place for tensor in made if (place := self._place(func, args, kwargs, given, tensor))]
        self.rows.append(Row(str(func), tuple((tuple(t.shape), t.dtype) for t in made), tuple(places)))
        return result

    def _place(self, func: Any, args: Any, kwargs: Any, given: list[torch.Tensor], tensor: torch.Tensor) -> str | None:
        storage = tensor.untyped_storage()
        if storage._cdata in self._storages:
            return None
        self._storages[storage._cdata] = storage
        place = self.cuda.placement.rule(func, args, kwargs) if self.cuda else "device"
        if place is None:
            place = "host" if all(self.is_host(each) for each in given) else "device"
        if place == "host":
            self._hosts.add(storage._cdata)
        return place

    @property
    def ops(self) -> list[str]:
        """Names without ``aten.`` and ``.default``, views and bookkeeping left out."""
        names = [row.op.removeprefix("aten.").removesuffix(".default") for row in self.rows]
        return [name for name in names if name not in _SILENT and not name.startswith("profiler.")]

    def row(self, op: str) -> Row:
        (row,) = [row for row in self.rows if row.op == f"aten.{op}"]
        return row

    def clear(self) -> None:
        self.rows.clear()


_SILENT = frozenset({"detach", "view", "expand", "t", "transpose.int", "_unsafe_view", "alias", "slice.Tensor"})


@contextlib.contextmanager
def played(capability: tuple[int, int] = (8, 0), attention: Any = "auto") -> Iterator[Tape]:
    """A fake world on a GPU of this capability, watched by a tape."""
    traits = DeviceTraits(kind="cuda", capability=capability)
    with fake_world(), Tape() as tape, cuda_semantics(traits, attention=attention) as cuda:
        tape.cuda = cuda
        cuda.placement.is_host = tape.is_host
        yield tape
