"""A wanted global batch as micro-batch x accumulation x ranks, and advice on how large it should be."""

from collections.abc import Iterator

from memplan.errors import UsageError
from memplan.plan.batch.records import BatchPhase, BatchSplit, CriticalBatch


def splits(global_batch: int, ranks: int) -> Iterator[BatchSplit]:
    """Every way to put a global batch together, the largest micro-batch first.

    Args:
        global_batch: Samples per optimizer step.
        ranks: Ranks that get batches of their own.

    Raises:
        UsageError: The ranks cannot share it evenly.
    """
    if global_batch % ranks:
        raise UsageError(
            f"{ranks} ranks cannot share a global batch of {global_batch} evenly",
            where="--target-batch",
            hint=f"take {global_batch // ranks * ranks or ranks}",
        )
    share = global_batch // ranks
    for accumulation in range(1, share + 1):
        if share % accumulation == 0:
            yield BatchSplit(
                global_batch=global_batch, micro_batch=share // accumulation, grad_accum=accumulation, ranks=ranks
            )


def critical_batch(noise_scale: float, batch: int) -> CriticalBatch:
    """Return the cost of a batch in steps and in samples.

    With the noise scale B as the critical batch size, S / S_min = 1 + B / batch and E / E_min = 1 + batch / B
    (McCandlish et al. 2018, An Empirical Model of Large-Batch Training, arXiv:1812.06162, equations 2.11 and 2.12).

    Args:
        noise_scale: In samples, as the user measured it.
        batch: Global batch.
    """
    return CriticalBatch(
        noise_scale=noise_scale, batch=batch, extra_steps=noise_scale / batch, extra_samples=batch / noise_scale
    )


ADABATCH_DECAY = 0.75
"""Factor on the learning rate whenever the batch doubles: with a batch twice as large it stands for 0.375, the decay of
the fixed-batch schedule (Devarakonda, Naumov, Garland 2017, AdaBatch, arXiv:1712.02029, section 4)."""


def linear_schedule(first: int, last: int, phases: int) -> tuple[BatchPhase, ...]:
    """A batch that grows in equal steps, the learning rate with it (Goyal et al. 2017, arXiv:1706.02677)."""
    if phases == 1 or first == last:
        return (BatchPhase(start=0.0, batch=last, learning_rate=1.0),)
    batches = [first + (last - first) * phase // (phases - 1) for phase in range(phases)]
    return tuple(
        BatchPhase(start=phase / phases, batch=batch, learning_rate=batch / first)
        for phase, batch in enumerate(batches)
    )


def adaptive_schedule(first: int, last: int) -> tuple[BatchPhase, ...]:
    """A batch that doubles up to the last, the learning rate falling a little each time (AdaBatch)."""
    batches = [first]
    while 2 * batches[-1] <= last:
        batches.append(2 * batches[-1])
    return tuple(
        BatchPhase(start=phase / len(batches), batch=batch, learning_rate=ADABATCH_DECAY**phase)
        for phase, batch in enumerate(batches)
    )
