"""What has been measured, on disk: found again where nothing has changed that decides it.

A key names all that is known before a job runs: the job, the device, memplan's own source, every installed
distribution, the interpreter, variables that steer torch. Of each key there is an entry for each state of what the job
read when it ran (``memplan.job.reads``); the first of which all that still holds is the answer. So a branch that is
left and come back to costs nothing, as in ccache's manifests.

An entry is one file: a line of JSON with what was read, then the content. Nothing in it is a pickle.
"""

import hashlib
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TypeVar

import platformdirs

from memplan.errors import MemplanError
from memplan.files.read import read_bytes
from memplan.files.write import write_whole
from memplan.job.reads import Reads, file_digest, variable_digest

T = TypeVar("T")

FORM = 2
"""Of keys and entries; another number forgets everything."""
MOST_ENTRIES = 8
"""Entries kept of one key: as many branches."""
MOST_BYTES = 512 << 20
"""Of all entries, beyond which the least recently used go; a trace of a model of 8 billion parameters takes 200 KB."""
LONGEST_UNUSED = 60 * 24 * 3600
"""Seconds after which an entry that nobody asked for is forgotten."""
ABANDONED = 3600
"""Seconds after which a file that was never finished is one of a process that was killed."""
STEERING = (
    "PYTORCH_", "TORCH", "MEMPLAN_TORCH", "DISABLE_ADDMM", "CUBLAS", "CUDA_", "TRANSFORMERS_", "HF_", "DS_",
    "PYTHONPATH", "OMP_", "MKL_",
)  # fmt: skip
"""How names of variables begin that torch and the libraries above it read."""

TALKING = "_VERBOSITY"
"""How names of variables end that only decide what is written: a child process sets them."""

_DISTRIBUTION = (".dist-info", ".egg-info", ".egg-link")


def default_folder() -> Path:
    """Where a user's cache lies: ``MEMPLAN_CACHE_DIR``, else where the system keeps such things."""
    named = os.environ.get("MEMPLAN_CACHE_DIR")
    return Path(named) if named else platformdirs.user_cache_path("memplan", appauthor=False) / "measured"


class Cache:
    """Entries in a folder. Safe for several processes at once: an entry is there whole or not at all."""

    def __init__(self, folder: Path, most_bytes: int = MOST_BYTES) -> None:
        self.folder = folder
        """Where they lie."""
        self._most_bytes = most_bytes
        # A file that several jobs read is hashed once.
        self._file_digest: Callable[[str], str] = cache(file_digest)

    def find(self, key: str, read: Callable[[bytes], T]) -> tuple[T, Reads] | None:
        """Return the content of the entry of a key that still holds, and what it rests on; None where there is none.

        Args:
            key: From ``key_of``.
            read: Makes something of the content; where it raises a ``ValueError`` (or what follows from a form that is
                another one), the entry is broken and passed over.
        """
        for path in self._newest_first(key):
            try:
                head, _, content = read_bytes(path).partition(b"\n")
                reads = _read_head(head)
                if self._holds(reads):
                    result = read(content)
                    with suppress(OSError):
                        os.utime(path)
                    return result, reads
            except (MemplanError, OSError, ValueError, KeyError, TypeError, AttributeError):
                continue
        return None

    def keep(self, key: str, content: bytes, reads: Reads) -> None:
        """Keep a content for as long as what was read stays the same. A cache that cannot be written keeps nothing."""
        head = json.dumps({"files": dict(reads.files), "environment": dict(reads.environment)}, sort_keys=True)
        with suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            write_whole(self.folder / f"{key}-{digest_of(head)[:16]}", head.encode() + b"\n" + content)
            for path in self._newest_first(key)[MOST_ENTRIES:]:
                path.unlink(missing_ok=True)
            self._forget()

    def has(self, key: str) -> bool:
        """Is there an entry of a key, whether it still holds or not?"""
        return bool(self._newest_first(key))

    def _holds(self, reads: Reads) -> bool:
        same = all(self._file_digest(file) == digest for file, digest in reads.files.items())
        return same and all(variable_digest(name) == digest for name, digest in reads.environment.items())

    def _newest_first(self, key: str) -> list[Path]:
        with suppress(OSError):
            return sorted(self.folder.glob(f"{key}-*"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
        return []

    def _forget(self) -> None:
        """Delete what is unused for long, what was never finished, and the least recently used beyond the limit."""
        total = 0
        for entry, used, size in sorted(self._files(), key=lambda file: file[1], reverse=True):
            total += size
            age = time.time() - used
            if total > self._most_bytes or age > (ABANDONED if entry.name.startswith(".") else LONGEST_UNUSED):
                entry.unlink(missing_ok=True)

    def _files(self) -> Iterator[tuple[Path, float, int]]:
        with os.scandir(self.folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    if entry.is_file(follow_symlinks=False):
                        status = entry.stat(follow_symlinks=False)
                        yield Path(entry.path), status.st_mtime, status.st_size


def key_of(*parts: object, around: str = "") -> str:
    """Return what names the entries of something: its parts, as their ``repr`` tells them, and the surroundings.

    Args:
        parts: What it is made of.
        around: From ``surroundings``, where user code may have changed them meanwhile; empty: they are asked now.
    """
    return digest_of(repr((FORM, parts, around or surroundings())))[:32]


def this_processor() -> tuple[int | None, str]:
    """Return what decides the kernels of a step on the CPU: how many processors there are, and what they can do."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    with suppress(OSError), Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as file:
        return count, next((line for line in file if line.startswith(("flags", "Features"))), "")
    return count, platform.processor()


def digest_of(text: str) -> str:
    """Return the SHA-256 of a text, in hex."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _read_head(head: bytes) -> Reads:
    content = json.loads(head)
    return Reads(files=_texts(content["files"]), environment=_texts(content["environment"]))


def _texts(content: Mapping[str, str]) -> dict[str, str]:
    if not all(isinstance(text, str) for text in content.values()):
        raise ValueError("digests are texts")
    return dict(content)


def surroundings() -> str:
    """Return the digest of what a job runs in: memplan, the interpreter, what is installed, the folder, variables."""
    steers = [name for name in os.environ if name.startswith(STEERING) and not name.endswith(TALKING)]
    steering = sorted((name, variable_digest(name)) for name in steers)
    # The folder: sources are told relative to it.
    place = (str(Path.cwd()), tuple(sys.path), platform.platform(), sys.version)
    return digest_of(repr((place, steering, _distributions(tuple(sys.path)), _own_source())))


@cache
def _distributions(path: tuple[str, ...]) -> tuple[str, ...]:
    """Every installed distribution with its version, as its folder is called."""
    names: list[str] = []
    for folder in dict.fromkeys(path):
        with suppress(OSError):
            names += (path.name for path in Path(folder).iterdir() if path.suffix in _DISTRIBUTION)
    return tuple(sorted(names))


@cache
def _own_source() -> str:
    """Digest of memplan's own files: in a checkout the version does not tell two states apart."""
    package = Path(__file__).parents[1]
    files = sorted(path for ending in ("py", "toml", "json") for path in package.rglob(f"*.{ending}"))
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.relative_to(package)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()
