"""Estimates of jobs that have not changed: no process is started for them, and no torch imported.

A folder for each key, which names all that is known before a job runs: the job, the GPUs' profiles, the allocator's
options, memplan's own source, every installed distribution, the interpreter, variables that steer torch. In it an
entry for each state of what the job read when it was traced (``memplan.job.reads``); the first entry of which all
that still holds is the answer. So a branch that is left and come back to costs nothing, as in ccache's manifests.
Timelines lie in a file beside their entry, read only where somebody looks at them.
"""

import gzip
import hashlib
import io
import json
import os
import platform
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

import platformdirs

from memplan.errors import UsageError
from memplan.files.documents import parse_json, read_json
from memplan.files.read import DATA, read_bytes
from memplan.files.write import write_whole
from memplan.hardware.profile import GpuProfile
from memplan.job.reads import Reads, file_digest, variable_digest
from memplan.measure.digest_records import HistoryDigest
from memplan.measure.document import ESTIMATE, TIMELINE
from memplan.measure.records import RecordedEstimate
from memplan.project.records import ProjectJob

FORM = 1
"""Of keys and entries; another number forgets everything."""
MOST_ENTRIES = 8
"""Entries kept of one key: as many branches."""
LONGEST_UNUSED = 60 * 24 * 3600
"""Seconds after which a key that nobody asked for is forgotten."""
STEERING = ("PYTORCH_", "TORCH", "CUBLAS", "CUDA_", "TRANSFORMERS_", "HF_", "DS_", "PYTHONPATH")
"""How names of variables begin that torch and the libraries above it read."""


_COMPRESSION = 5
"""Of timelines, which are columns of integers; more takes longer than it saves."""
_DISTRIBUTION = (".dist-info", ".egg-info", ".egg-link")


def default_folder() -> Path:
    """Where a user's caches lie; ``--cache-dir`` overrides it."""
    return platformdirs.user_cache_path("memplan", appauthor=False) / "gate"


class Cache:
    """Estimates on disk. Safe for several processes at once: an entry is there whole or not at all."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # A file that several jobs read is hashed once.
        self._file_digest: Callable[[str], str] = cache(file_digest)

    def find(
        self, job: ProjectJob, profiles: Sequence[GpuProfile], *, timelines: bool = False
    ) -> tuple[RecordedEstimate, ...] | None:
        """The estimates of a job, one for each profile, where nothing has changed since; else None.

        Args:
            job: The job.
            profiles: Its GPUs.
            timelines: With their digests; where those were not kept, nothing is found.
        """
        folder = self._folder / key(job, profiles)
        for path in _newest_first(folder):
            results = self._entry(path, timelines=timelines)
            if results is not None:
                with suppress(OSError):
                    os.utime(folder)
                return results
        return None

    def keep(
        self, job: ProjectJob, profiles: Sequence[GpuProfile], results: Sequence[RecordedEstimate], reads: Reads
    ) -> None:
        """Keep the estimates of a job. A cache that cannot be written keeps nothing."""
        read = {"files": dict(reads.files), "environment": dict(reads.environment)}
        content = {"reads": read, "estimates": [ESTIMATE.plain(result.estimate) for result in results]}
        folder = self._folder / key(job, profiles)
        entry = folder / f"{_digest(json.dumps(read, sort_keys=True))[:16]}.json"
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            # Before the entry: what is found has its timelines already.
            if any(result.digest for result in results):
                write_whole(_beside(entry), _packed([result.digest for result in results]))
            write_whole(entry, json.dumps(content, sort_keys=True).encode())
            for path in _newest_first(folder)[MOST_ENTRIES:]:
                path.unlink()
                _beside(path).unlink(missing_ok=True)
            self._forget_unused()

    def _entry(self, path: Path, *, timelines: bool) -> tuple[RecordedEstimate, ...] | None:
        """What an entry holds, if it still holds; None for one that is broken, too."""
        try:
            content = read_json(path)
            reads = content["reads"]
            same = all(self._file_digest(file) == digest for file, digest in reads["files"].items())
            same = same and all(variable_digest(name) == digest for name, digest in reads["environment"].items())
            if not same:
                return None
            digests = _unpacked(_beside(path)) if timelines else [None] * len(content["estimates"])
            pairs = zip(content["estimates"], digests, strict=True)
            return tuple(RecordedEstimate(estimate=ESTIMATE.read(each), history=None, digest=it) for each, it in pairs)
        except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError, AttributeError, UsageError):
            return None

    def _forget_unused(self) -> None:
        for folder in self._folder.iterdir():
            if time.time() - folder.stat().st_mtime > LONGEST_UNUSED:
                for path in folder.iterdir():
                    path.unlink()
                folder.rmdir()


def _beside(entry: Path) -> Path:
    """The file of an entry's timelines."""
    return entry.with_suffix(".timelines.gz")


def _packed(digests: Sequence[HistoryDigest | None]) -> bytes:
    text = json.dumps([TIMELINE.plain(digest) if digest else None for digest in digests])
    return gzip.compress(text.encode(), compresslevel=_COMPRESSION)


def _unpacked(path: Path) -> list[HistoryDigest | None]:
    with gzip.open(io.BytesIO(read_bytes(path))) as file:
        content = parse_json(file.read(DATA))
    return [None if each is None else TIMELINE.read(each) for each in content]


def key(job: ProjectJob, profiles: Sequence[GpuProfile]) -> str:
    """What names a job's entries: all that decides its estimates and is known before it runs."""
    return _digest(repr((FORM, job.spec, job.alloc_conf, tuple(profiles), _surroundings())))[:32]


@cache
def _surroundings() -> str:
    steering = sorted((name, variable_digest(name)) for name in os.environ if name.startswith(STEERING))
    # The folder: sources are told relative to it.
    place = (str(Path.cwd()), tuple(sys.path), platform.platform(), sys.version)
    return _digest(repr((place, steering, _distributions(), _own_source())))


def _distributions() -> tuple[str, ...]:
    """Every installed distribution with its version, as its folder is called."""
    names: list[str] = []
    for folder in dict.fromkeys(sys.path):
        with suppress(OSError):
            names += (path.name for path in Path(folder).iterdir() if path.suffix in _DISTRIBUTION)
    return tuple(sorted(names))


def _own_source() -> str:
    """Digest of memplan's own files: in a checkout the version does not tell two states apart."""
    package = Path(__file__).parents[1]
    files = sorted(path for ending in ("py", "toml", "json") for path in package.rglob(f"*.{ending}"))
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.relative_to(package)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _newest_first(folder: Path) -> list[Path]:
    with suppress(OSError):
        return sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    return []


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
