"""C++ compiled on first use, and the one slot for an allocator of CPU tensors, which PyTorch lets C++ alone replace."""

import ctypes
from functools import cache
from hashlib import sha256
from pathlib import Path
from threading import Lock

import torch

from memplan.errors import MemplanError


@cache
def compiled(source: Path, name: str) -> ctypes.CDLL:
    """Compile and load a library; PyTorch keeps what it has compiled for the next process.

    The library's name gets torch's version and the source's hash: the folder of what is compiled is one for all
    environments of a user.

    Raises:
        MemplanError: There is no C++ compiler, or it fails.
    """
    from torch.utils import cpp_extension

    from memplan.seam.memory import get_build_directory

    version = "".join(char if char.isalnum() else "_" for char in torch.__version__)
    full = f"memplan_{name}_{version}_{sha256(source.read_bytes()).hexdigest()[:8]}"
    try:
        cpp_extension.load(full, [str(source)], extra_cflags=["-O2"], is_python_module=False)
        folder = Path(get_build_directory(full, verbose=False))  # ``load`` does not tell.
        return ctypes.CDLL(str(folder / f"{full}.so"))
    except (RuntimeError, OSError, ImportError) as error:
        raise MemplanError(
            f"memplan's allocator ({source.name}) cannot be compiled: {error}",
            hint="it needs a C++ compiler and ninja (pip install ninja)",
        ) from error


_claiming = Lock()
_holder: list[str] = []
"""What the process's one allocator slot is used for; empty: nothing."""


def claim(what: str) -> None:
    """Take the slot.

    Raises:
        MemplanError: Somebody else has it.
    """
    with _claiming:
        if _holder:
            raise MemplanError(f"{_holder[0]} is under way: there is one allocator for the whole process")
        _holder.append(what)


def release() -> None:
    """Give the slot back."""
    _holder.clear()
