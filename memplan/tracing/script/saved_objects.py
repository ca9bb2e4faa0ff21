"""What a program saves with ``torch.save`` and loads again: its structure, and the shapes of its tensors.

No file gets elements: fake tensors have none, and checkpoints of real runs are large. Small ones keep theirs.
"""

import io
import os
import pickle
import secrets
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from memplan.seam.fake import FakeTensor
from memplan.tracing.knowledge import SMALL
from memplan.tracing.refs import is_wrapper

_MARK = f"saved by memplan {secrets.token_hex(16)}\n".encode()
"""Of this process alone: a file from elsewhere is read by ``torch.load``, which runs no code of it."""

Open = Callable[..., Any]
"""Opens a file under the name that the program gives it."""


def save(value: Any, file: Any, opened: Open) -> None:
    """Write what ``load`` makes a value of again; nothing where Python cannot pickle it.

    Args:
        value: What the program saves.
        file: A path or an open file.
        opened: Opens a path.
    """
    data = io.BytesIO()
    data.write(_MARK)
    try:
        _Pickler(data).dump(value)
    except Exception:  # noqa: BLE001 - pickles run code of anybody's.
        data = io.BytesIO()
    if isinstance(file, str | os.PathLike):
        with opened(file, "wb") as target:
            target.write(data.getvalue())
    elif hasattr(file, "write"):
        file.write(data.getvalue())


def load(real: Callable[..., Any], f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
    """``torch.load``, also of what ``save`` has written.

    Args:
        real: The original.
        f: A path or an open file.
        map_location: Where tensors are to lie.
        args: Further arguments of the original.
        kwargs: The same, by name.
    """
    with Path(f).open("rb") if isinstance(f, str | os.PathLike) else nullcontext(f) as source:
        first = source.tell()
        if source.read(len(_MARK)) == _MARK:
            return _Unpickler(source, map_location).load()
        source.seek(first)
    return real(f, map_location, *args, **kwargs)


class _Pickler(pickle.Pickler):
    def persistent_id(self, value: Any) -> Any:
        """Name a tensor by what it looks like; which are the same one, or lie in one storage, addresses tell."""
        is_plain = isinstance(value, torch.Tensor) and not is_wrapper(value)
        if not is_plain or (not isinstance(value, FakeTensor) and value.numel() <= SMALL):
            return None
        kind = torch.nn.Parameter if isinstance(value, torch.nn.Parameter) else torch.Tensor
        place = tuple(value.shape), value.stride(), value.storage_offset()
        storage = value.untyped_storage()
        learns = value.requires_grad and value.is_leaf
        return id(value), kind, place, learns, (storage._cdata, storage.nbytes(), value.dtype, value.device)


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: Any, map_location: Any) -> None:
        super().__init__(file)
        self._map_location = map_location
        self._made: dict[int, torch.Tensor] = {}
        self._storages: dict[int, torch.Tensor] = {}
        """By the address of the one that was saved: all of it is, whatever part of it a tensor shows."""

    def persistent_load(self, name: Any) -> torch.Tensor:
        """Make a tensor again."""
        key, kind, place, learns, storage = name
        if key not in self._made:
            made = self._storage(*storage).as_strided(*place)
            is_parameter = kind is torch.nn.Parameter
            self._made[key] = kind(made, requires_grad=learns) if is_parameter else made.requires_grad_(learns)
        return self._made[key]

    def _storage(self, key: int, nbytes: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """All of a storage, as one row of elements."""
        if key not in self._storages:
            self._storages[key] = torch.empty(nbytes // dtype.itemsize, dtype=dtype, device=self._place(device))
        return self._storages[key].view(dtype)

    def _place(self, device: torch.device) -> Any:
        wanted = self._map_location
        if isinstance(wanted, dict):
            return wanted.get(str(device), device)
        # A function is given the storage on the host, and most hand it back.
        return device if wanted is None else "cpu" if callable(wanted) else wanted
