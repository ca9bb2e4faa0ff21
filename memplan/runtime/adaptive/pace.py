"""How large micro-batches are, from step to step: halved when memory runs out, and tried larger after a while. Pure."""

from dataclasses import dataclass, replace

NO_LIMIT = 1 << 62
"""Samples in a micro-batch where nothing has failed: as many as there are. It fits the integers that ranks exchange."""
LONGEST_WAIT = 1 << 20
"""Steps between two tries of a larger size at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """What the steps so far have taught. The same on all ranks."""

    size: int = NO_LIMIT
    """Samples in a micro-batch at most."""
    wait: int
    """Steps in a row that must go well before a larger size is tried. Every larger size that fails doubles it, so that
    of any number of steps only a logarithm is spent on tries that fail."""
    good: int = 0
    """Steps in a row that went well at this size."""
    works: int = 0
    """Size to fall back to: the one before the try that is on; 0: none is on."""
    fails: int = NO_LIMIT
    """Smallest size that is known to fail."""


def after_oom(pace: Pace, failed: int) -> Pace:
    """The pace after some rank ran out of memory with ``failed`` samples, the fewest of any rank and at least 2.

    Returns:
        The size before, where a larger one was being tried; else half of what failed.
    """
    waited = min(LONGEST_WAIT, pace.wait * 2) if pace.works else pace.wait
    size = pace.works or _equal_parts(failed, 2)
    return replace(pace, size=size, wait=waited, good=0, works=0, fails=min(pace.fails, failed))


def after_step(pace: Pace, samples: int) -> Pace:
    """The pace after a step that went well on all ranks, with so many samples in the largest batch of any.

    Returns:
        A larger size every ``wait`` steps while batches are split: the next that makes fewer micro-batches of such a
        batch, half as many where no size is known to fail.
    """
    good = pace.good + 1
    parts = -(-samples // pace.size)
    if parts == 1 or good < pace.wait:
        return replace(pace, good=good, works=0)
    larger = _equal_parts(samples, parts // 2 if pace.fails == NO_LIMIT else parts - 1)
    if larger < pace.fails:
        return replace(pace, size=larger, good=0, works=pace.size)
    # Nothing lies between: what failed may work by now, but that is asked after twice the time.
    return replace(pace, good=0, works=0, fails=NO_LIMIT, wait=min(LONGEST_WAIT, pace.wait * 2))


def _equal_parts(samples: int, parts: int) -> int:
    """Size of the largest of so many nearly equal parts."""
    return -(-samples // parts)
