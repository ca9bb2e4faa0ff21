"""Linux's four system calls for memory policy. The C library has no functions for them, and libnuma may be missing.

Numbers: arch/x86/entry/syscalls/syscall_64.tbl, include/uapi/asm-generic/unistd.h.
Modes: include/uapi/linux/mempolicy.h.
"""

import ctypes
import errno
import mmap
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

_NUMBERS: Mapping[str, Mapping[str, int]] = {
    "x86_64": {"mbind": 237, "set_mempolicy": 238, "get_mempolicy": 239, "move_pages": 279},
    "aarch64": {"mbind": 235, "get_mempolicy": 236, "set_mempolicy": 237, "move_pages": 239},
}
DEFAULT, PREFERRED, BIND, INTERLEAVE = 0, 1, 2, 3
MODE_NAMES = {DEFAULT: "default", PREFERRED: "preferred", BIND: "bind", INTERLEAVE: "interleave"}
_WORDS = 1024 // (8 * ctypes.sizeof(ctypes.c_ulong))
_BITS = 1024 + 1
"""The kernel takes one bit less than it is told of."""
MOST_PAGES = 4096
"""Pages whose node is asked for, evenly spread."""


def _call(name: str, *arguments: object) -> int:
    """Call the kernel.

    Raises:
        OSError: It refuses: EPERM in containers that forbid the call, EINVAL for a node that is not allowed.
    """
    number = _NUMBERS.get(platform.machine(), {}).get(name)
    if number is None or os.name != "posix":
        raise OSError(errno.ENOSYS, f"{name} is not known on {platform.system()} {platform.machine()}")
    library = ctypes.CDLL(None, use_errno=True)
    result = int(library.syscall(ctypes.c_long(number), *arguments))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return result


def _mask(nodes: Iterable[int]) -> "ctypes.Array[ctypes.c_ulong]":
    words = (ctypes.c_ulong * _WORDS)()
    bits = 8 * ctypes.sizeof(ctypes.c_ulong)
    for node in nodes:
        words[node // bits] |= 1 << node % bits
    return words


def get_policy() -> tuple[int, tuple[int, ...]]:
    """This thread's memory policy: mode and nodes.

    Raises:
        OSError: The kernel refuses.
    """
    mode, words = ctypes.c_int(), _mask(())
    _call("get_mempolicy", ctypes.byref(mode), words, ctypes.c_ulong(_BITS), None, ctypes.c_ulong(0))
    bits = 8 * ctypes.sizeof(ctypes.c_ulong)
    nodes = tuple(bits * place + bit for place, word in enumerate(words) for bit in range(bits) if word >> bit & 1)
    return mode.value, nodes


def set_policy(mode: int, nodes: Sequence[int] = ()) -> None:
    """Set this thread's memory policy; threads that it starts inherit it.

    Raises:
        OSError: The kernel refuses.
    """
    _call("set_mempolicy", ctypes.c_int(mode), _mask(nodes) if nodes else None, ctypes.c_ulong(_BITS if nodes else 0))


def bind_range(address: int, size: int, node: int) -> None:
    """Say where pages that are not yet touched are to lie.

    Raises:
        OSError: The kernel refuses.
    """
    _call("mbind", ctypes.c_void_p(address), ctypes.c_ulong(size), ctypes.c_int(BIND), _mask([node]),
          ctypes.c_ulong(_BITS), ctypes.c_uint(0))  # fmt: skip


def nodes_of_pages(address: int, size: int) -> tuple[int, ...]:
    """The node of each page, or of as many as ``MOST_PAGES``, evenly spread; negative: not there (an errno).

    Raises:
        OSError: The kernel refuses.
    """
    starts = range(address - address % mmap.PAGESIZE, address + size, mmap.PAGESIZE)
    chosen = list(islice(starts, 0, None, max(1, -(-len(starts) // MOST_PAGES))))
    pages, status = (ctypes.c_void_p * len(chosen))(*chosen), (ctypes.c_int * len(chosen))()
    _call("move_pages", ctypes.c_int(0), ctypes.c_ulong(len(chosen)), pages, None, status, ctypes.c_int(0))
    return tuple(status)
