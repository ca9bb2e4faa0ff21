"""Which commands a program may start: those that only tell something, and none that tells of the GPUs that are here."""

import errno
import os
from collections.abc import Sequence
from pathlib import PurePath

_READS = frozenset(
    {
        ("git", "rev-parse"),
        ("git", "describe"),
        ("git", "log"),
        ("git", "show"),
        ("git", "config", "--get"),
        ("git", "branch", "--show-current"),
        ("hostname",),
        ("uname",),
        ("whoami",),
        ("nproc",),
        ("lscpu",),
        ("which",),
    }
)
"""First words of commands that change nothing."""
_WRITES = ("--output", "--ext-diff", "--textconv")
"""Options with which git writes files or starts other programs."""
_OF_GPUS = frozenset({"lspci", "lshw", "nvidia-smi", "rocm-smi", "rocminfo", "nvcc"})
"""Commands that tell of GPUs, and what is installed for them: they are not the ones that memplan is asked about."""
_SHELL = frozenset("|&;<>()$`\\\"'*?[]#~=%\n")
"""Characters that mean something to a shell."""


def words(command: object) -> list[str]:
    """A command's words, also of a plain one in a shell (``sh -c``); none where a shell is needed to read it."""
    if isinstance(command, str | bytes):
        return _plain(os.fsdecode(command))
    if not isinstance(command, Sequence):
        return []
    said = [os.fsdecode(word) for word in command if isinstance(word, str | bytes | os.PathLike)]
    if len(said) == 3 and said[:2] == ["/bin/sh", "-c"]:
        return _plain(said[2])
    return said


def _plain(line: str) -> list[str]:
    return [] if _SHELL & set(line) else line.split()


def only_tells(command: Sequence[str]) -> bool:
    """Does a command change nothing?"""
    if list(command[1:]) == ["--version"]:
        return True
    if not command or any(word.startswith(_WRITES) for word in command):
        return False
    said = (PurePath(command[0]).name, *command[1:])
    return command[0] == said[0] and any(said[: len(first)] == first for first in _READS)


def is_of_gpus(command: Sequence[str]) -> bool:
    """Does a command tell of the GPUs that are here?"""
    return bool(command) and PurePath(command[0]).name in _OF_GPUS


def absent(name: str) -> FileNotFoundError:
    """What starting a command raises on a machine without it."""
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
