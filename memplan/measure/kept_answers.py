"""Whole estimates in the cache: where they are found no process is started, and torch is not imported.

Timelines are entries of their own, read only where somebody looks at them.
"""

import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from memplan.hardware.profile import GpuProfile
from memplan.job.reads import Reads
from memplan.job.spec import JobSpec
from memplan.measure.cache import Cache, key_of, this_processor
from memplan.measure.digest_records import HistoryDigest
from memplan.measure.document import ESTIMATE, TIMELINE
from memplan.measure.records import RecordedEstimate
from memplan.measure.savings import Switch

T = TypeVar("T")

_COMPRESSION = 5
"""Timelines are columns of integers: more takes longer than it saves."""


class KeptAnswer:
    """The estimates of one job on its devices, one for each."""

    def __init__(
        self,
        cache: Cache,
        spec: JobSpec,
        profiles: Sequence[GpuProfile],
        alloc_conf: str = "",
        added: tuple[Sequence[Switch], bool] = ((), False),
    ) -> None:
        self._cache, self._count = cache, len(profiles)
        here = this_processor() if any(profile.kind == "cpu" for profile in profiles) else None
        switches, envelope = added
        job = (spec, alloc_conf, tuple(profiles), tuple(switches), envelope, here)
        self._estimates, self._timelines = key_of("estimates", *job), key_of("timelines", *job)

    def find(self, *, timelines: bool = False) -> tuple[RecordedEstimate, ...] | None:
        """Return the estimates, with digests if asked for, where nothing has changed since they were kept."""
        estimates = self._cache.find(self._estimates, partial(_read_each, ESTIMATE.read, self._count))
        if estimates is None:
            return None
        results = tuple(RecordedEstimate(estimate=estimate, history=None) for estimate in estimates[0])
        if not timelines:
            return results
        digests = self._cache.find(self._timelines, partial(_read_each, _read_digest, self._count))
        if digests is None:
            return None
        return tuple(replace(result, digest=digest) for result, digest in zip(results, digests[0], strict=True))

    def keep(self, results: Sequence[RecordedEstimate], reads: Reads) -> None:
        """Keep the estimates, and the digests of their replays where there are any."""
        if any(result.digest for result in results):
            timelines = [TIMELINE.plain(result.digest) if result.digest else None for result in results]
            self._cache.keep(self._timelines, _packed(timelines), reads)
        self._cache.keep(self._estimates, _packed([ESTIMATE.plain(result.estimate) for result in results]), reads)


def _packed(content: list[Any]) -> bytes:
    return zlib.compress(json.dumps(content).encode(), _COMPRESSION)


def _read_each(read: Callable[[Any], T], count: int, content: bytes) -> list[T]:
    try:
        document = json.loads(zlib.decompress(content))
    except (zlib.error, RecursionError) as error:
        raise ValueError(str(error)) from None
    if not isinstance(document, list) or len(document) != count:
        raise ValueError(f"not {count} of them")
    return [read(item) for item in document]


def _read_digest(content: Any) -> HistoryDigest | None:
    return None if content is None else TIMELINE.read(content)
