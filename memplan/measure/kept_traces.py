"""Traces in the cache, for a process that ends with its answer: what it reads from now on is recorded."""

from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path

from memplan.job.reads import Reads, record_reads
from memplan.job.spec import JobSpec
from memplan.measure.cache import Cache, key_of, this_processor
from memplan.measure.packed_trace import pack, unpack
from memplan.tracing.records import DeviceTraits, Trace, Way


class KeptTraces:
    """Finds traces and keeps them; made by ``kept_traces``."""

    def __init__(self, folder: Path) -> None:
        self._cache = Cache(folder)
        self._recorded = record_reads(apart_from=folder)
        self._files: dict[str, str] = {}
        self._environment: dict[str, str] = {}

    def find(self, spec: JobSpec, traits: DeviceTraits, rank: int, way: Way) -> Trace | None:
        """Return a job's trace, without its graph, where nothing has changed since; else None."""
        result = self._cache.find(_key(spec, traits, rank, way), lambda content: unpack(content, traits))
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
            self._cache.keep(_key(spec, traits, rank, way), pack(trace), reads)

    def reads(self) -> Reads | None:
        """Return what all traces so far rest on, made here or found; None where a file has changed meanwhile."""
        reads = self._recorded()
        if reads is None:
            return None
        return Reads(files={**self._files, **reads.files}, environment={**self._environment, **reads.environment})


@cache
def kept_traces(folder: Path | None) -> KeptTraces | None:
    """Return the traces that are kept in a folder, the same ones at each call: Python never forgets an audit hook."""
    return None if folder is None else KeptTraces(folder)


def _key(spec: JobSpec, traits: DeviceTraits, rank: int, way: Way) -> str:
    # Where an option came from changes nothing: what one command traced is found by another.
    here = this_processor() if traits.kind == "cpu" else None
    return key_of("trace", replace(spec, provenance={}), traits, rank, way, here)
