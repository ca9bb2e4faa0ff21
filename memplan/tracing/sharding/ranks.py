"""Which ranks of a job differ in memory."""

from memplan.job.parallel import Parallel


def ranks_to_trace(parallel: Parallel) -> tuple[int, ...]:
    """The ranks whose traces decide a job's peak: one for each pipeline stage, the first of each.

    Within a stage rank 0 of every dimension holds the largest share: chunks are dealt out from the front, and FSDP2
    pads every other shard to the first one's size.

    Pipeline stages are outermost.
    """
    per_stage = parallel.ranks // parallel.pipeline
    return tuple(stage * per_stage for stage in range(parallel.pipeline))
