"""What autograd has saved."""

import weakref
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from tests.runtime.checkpoint.chains import ROWS, WIDTH, rows

ROW = ROWS * WIDTH * 4
"""Bytes of a hidden state of a chain."""


class Storages(TorchDispatchMode):
    """Storages that ops have returned and that are still alive."""

    def __init__(self) -> None:
        super().__init__()
        self.alive: weakref.WeakKeyDictionary[torch.UntypedStorage, int] = weakref.WeakKeyDictionary()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, torch.Tensor) and tensor.numel() > 1:
                self.alive[tensor.untyped_storage()] = tensor.untyped_storage().nbytes()
        return result


def kept(model: nn.Module) -> int:
    """Bytes that a forward leaves alive; those of random numbers' states aside."""
    batch = rows()
    own = {parameter.untyped_storage() for parameter in model.parameters()}
    states = torch.get_rng_state().nbytes
    with Storages() as storages:
        loss = model(batch).mean()
        found = sum(size for storage, size in storages.alive.items() if size != states and storage not in own)
    # torch 2.6 warns if what a weak reference gave outlives the storage.
    del own
    loss.backward()
    return found
