"""Traces in the cache, for a process that ends with its answer: what it reads from now on is recorded."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path

from memplan.job.reads import Reads, record_reads
from memplan.job.spec import JobSpec
from memplan.measure.cache import Cache, key_of, surroundings, this_processor
from memplan.measure.packed_trace import pack, unpack
from memplan.tracing.records import DeviceTraits, Trace, Way


class NotKeptError(Exception):
    """A trace is wanted that is not kept, and must be made."""


class KeptTraces:
    """Finds traces and keeps them; made by ``kept_traces``.

    Args:
        entries: Where they lie.
        recorded: Says what this process has read itself.
    """

    def __init__(self, entries: Cache, recorded: Callable[[], Reads | None]) -> None:
        self._cache, self._recorded, self._around = entries, recorded, surroundings()
        self._files: dict[str, str] = {}
        self._environment: dict[str, str] = {}

    def find(self, spec: JobSpec, traits: DeviceTraits, rank: int, way: Way) -> Trace | None:
        """Return a job's trace, without its graph, where nothing has changed since; else None."""
        result = self._cache.find(self._key(spec, traits, rank, way), lambda content: unpack(content, traits))
        if result is None:
            return None
        trace, reads = result
        self._files.update(reads.files)
        self._environment.update(reads.environment)
        return trace

    def keep(self, spec: JobSpec, traits: DeviceTraits, rank: int, way: Way, trace: Trace) -> None:
        """Keep a trace that was made in this process; one that holds what is no plain number or text is not kept."""
        reads = self._recorded()
        if reads is None:
            return
        with suppress(TypeError, ValueError):
            self._cache.keep(self._key(spec, traits, rank, way), pack(trace), reads)

    def _key(self, spec: JobSpec, traits: DeviceTraits, rank: int, way: Way) -> str:
        # Where an option came from changes nothing: what one command traced is found by another.
        here = this_processor() if traits.kind == "cpu" else None
        return key_of("trace", replace(spec, provenance={}), traits, rank, way, here, around=self._around)

    def reads(self) -> Reads | None:
        """Return what all traces so far rest on, made here or found; None where a file has changed meanwhile."""
        reads = self._recorded()
        if reads is None:
            return None
        return Reads(files={**self._files, **reads.files}, environment={**self._environment, **reads.environment})


class KeptAlone(KeptTraces):
    """Finds traces in a process that makes none.

    ``find`` raises a ``NotKeptError`` where there is none.
    """

    def __init__(self, entries: Cache) -> None:
        super().__init__(entries, lambda: Reads(files={}, environment={}))

    def has(self, spec: JobSpec, traits: DeviceTraits) -> bool:
        """Is the trace of a job's first rank likely to be found?"""
        return self._cache.has(self._key(spec, traits, 0, "likely"))

    def find(self, spec: JobSpec, traits: DeviceTraits, rank: int, way: Way) -> Trace:
        """Return a job's trace, without its graph."""
        trace = super().find(spec, traits, rank, way)
        if trace is None:
            raise NotKeptError
        return trace


@cache
def kept_traces(folder: Path | None) -> KeptTraces | None:
    """Return the traces that are kept in a folder, the same ones at each call: Python never forgets an audit hook."""
    return None if folder is None else KeptTraces(Cache(folder), record_reads(apart_from=folder))
