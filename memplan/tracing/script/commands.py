"""Which commands a program may start: those that only tell something, and none that tells of the GPUs that are here."""

import os
from collections.abc import Sequence
from pathlib import PurePath
from typing import NamedTuple

_READS = frozenset(
    {
        ("git", "rev-parse"),
        ("git", "describe"),
        ("git", "log"),
        ("git", "show"),
        ("git", "config", "--get"),
        ("git", "branch", "--show-current"),
        ("uname",),
        ("whoami",),
        ("nproc",),
        ("lscpu",),
        ("which",),
    }
)
"""First words of commands that change nothing, whatever follows."""
_BARE = frozenset({"hostname"})
"""Commands that tell something alone, and set it where a word follows."""
_WRITES = ("--output", "--ext-diff", "--textconv")
"""Options with which git writes files or starts other programs (git-log(1), git-show(1))."""
_OF_GPUS = frozenset({"lspci", "lshw", "nvidia-smi", "rocm-smi", "rocminfo", "nvcc"})
"""Commands that tell of GPUs, and what is installed for them: they are not the ones that memplan is asked about."""
_SHELL = frozenset("|&;<>()$`\\\"'*?[]#~=%\n")
"""Characters that mean something to a shell (sh(1), POSIX 2.2)."""


class Command(NamedTuple):
    """What a program wants to start."""

    words: tuple[str, ...]
    """Its words; none where a shell is needed to read them, or where another program is to run under its name."""
    in_shell: bool
    """Does a shell start it? It tells of what is not there by its exit code."""

    @property
    def is_of_gpus(self) -> bool:
        """Does it tell of the GPUs that are here?"""
        return bool(self.words) and PurePath(self.words[0]).name in _OF_GPUS

    @property
    def only_tells(self) -> bool:
        """Does it change nothing?"""
        if len(self.words) == 2 and self.words[1] == "--version":
            return True
        if any(word.startswith(_WRITES) for word in self.words):
            return False
        told = any(self.words[: len(first)] == first for first in _READS)
        return told or (len(self.words) == 1 and self.words[0] in _BARE)


def command(executable: object, arguments: object = None) -> Command:
    """Read what the audit event ``subprocess.Popen`` tells: the program that runs, and its arguments."""
    if isinstance(arguments, str | bytes | os.PathLike):
        arguments = [arguments]
    if not isinstance(arguments, Sequence):
        return Command((), in_shell=False)
    words = tuple(os.fsdecode(word) for word in arguments if isinstance(word, str | bytes | os.PathLike))
    if isinstance(executable, str | bytes | os.PathLike) and words[:1] != (os.fsdecode(executable),):
        return Command((), in_shell=False)
    if len(words) == 3 and words[:2] == ("/bin/sh", "-c"):
        return Command(() if _SHELL & set(words[2]) else tuple(words[2].split()), in_shell=True)
    return Command(words, in_shell=False)
