"""The library call: the best way to run a job. User code runs in worker processes."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from memplan.errors import UsageError
from memplan.hardware.profile import GpuProfile
from memplan.job.program_arguments import Varied
from memplan.job.spec import JobSpec
from memplan.measure.cache import Cache
from memplan.plan.recommend.programs import known_program
from memplan.plan.recommend.records import Recommendation, Search
from memplan.tracing.sharding.zero.settings import is_approximated

DEFAULT_TIMEOUT = 600.0
"""Seconds until a trace that hangs is given up."""


def recommend(
    spec: JobSpec,
    profile: GpuProfile,
    search: Search | None = None,
    *,
    vary: Mapping[Varied, str] | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    cache: Cache | None = None,
    progress: Callable[[str], None] | None = None,
    started: float | None = None,
) -> Recommendation:
    """Find the best way to run a job on the GPUs at hand.

    Args:
        spec: The job as given; its global batch is kept unless ``search.target_batch`` says otherwise.
        profile: The device.
        search: How to search and for what; None: one GPU, numerics kept, by throughput.
        vary: Field of the job → the argument of a program that decides it; what is left out is looked up in its parser.
        timeout: Seconds for one trace.
        cache: Where traces of unchanged jobs are found and kept; None: nowhere.
        progress: Told in a few words what happens now.
        started: Time of ``time.perf_counter`` from which the budget counts; None: now.

    Returns:
        The answer; that nothing fits is one too (``best`` is None).

    Raises:
        UsageError: The target, an option, or ranks and batch do not go together.
        EstimateError: The job cannot be traced.
    """
    began = time.perf_counter() if started is None else started
    if is_approximated(spec.parallel):
        what = "ZeRO is traced with DeepSpeed's own code, which is not installed; an approximation is never recommended"
        raise UsageError(what, where="--parallel", hint="pip install deepspeed, or estimate the job")
    from memplan.plan.recommend.flow import search_here

    spec, asked, sentences = known_program(spec, search or Search(), vary or {})
    answer = search_here(
        spec,
        profile,
        asked,
        timeout=timeout,
        folder=cache.folder if cache is not None else None,
        progress=progress or (lambda _: None),
        started=began,
    )
    return replace(answer, assumptions=(*answer.assumptions, *sentences))
