"""When to collect garbage or give the allocator's cache back: under pressure, seldom, and while it helps. Pure.

Both cost: a collection walks every Python object, and a cache that was given back is asked of the driver again, which
waits for the device. PyTorch empties its cache by itself before it gives up on an allocation, so that emptying helps
others than PyTorch (NCCL, a second process), or where what is cached lies in pieces that fit nothing.
"""

from dataclasses import dataclass
from enum import StrEnum

from memplan.errors import several
from memplan.findings.utilization import BALANCED


class Relief(StrEnum):
    """What is done about pressure."""

    NOTHING = "nothing"
    """As in nearly every step."""
    COLLECT = "collect"
    """Reference cycles are collected: what they hold goes back to the allocator."""
    COLLECT_AND_EMPTY = "collect and empty cache"
    """And what the allocator has left goes back to the driver, or to the operating system."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pressure:
    """One reading, in bytes."""

    used: int
    """Taken on the device, by everybody."""
    total: int
    """All there is."""
    cached: int
    """Reserved by this process's allocator, and not allocated."""
    reserved: int
    """Reserved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReliefPolicy:
    """When pressure is answered.

    Raises:
        UsageError: A number makes no sense.
    """

    use: float = BALANCED.target
    """Share of the device in use from where there is pressure."""
    cached: float = 0.2
    """Share of what is reserved that lies idle from where emptying is worth it."""
    steps: int = 50
    """Steps between two answers, at least."""
    worth: float = 0.01
    """Share of the device that an answer has to give back; one that gives less doubles the steps to the next."""
    longest: int = 100_000
    """Steps between two answers, at most."""

    def __post_init__(self) -> None:
        wrong = [
            f"{name} must be a share of 0 to 1, not {value}"
            for name, value in (("use", self.use), ("cached", self.cached), ("worth", self.worth))
            if not 0 <= value <= 1
        ]
        if not 1 <= self.steps <= self.longest:
            wrong.append(f"steps must be at least 1, and longest no less, not {self.steps} and {self.longest}")
        if wrong:
            raise several(wrong)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReliefHistory:
    """What was done, and what it gave."""

    next_step: int = 0
    """From which step on something may be done again."""
    wait: int = 0
    """Steps between the last answer and the next; 0 before the first."""
    answers: int = 0
    """How often something was done."""
    given_back: int = 0
    """Bytes, all answers together."""


def decide(policy: ReliefPolicy, history: ReliefHistory, reading: Pressure, step: int) -> Relief:
    """What to do after a step."""
    if step < history.next_step or not reading.total or reading.used < policy.use * reading.total:
        return Relief.NOTHING
    is_idle = reading.reserved > 0 and reading.cached >= policy.cached * reading.reserved
    return Relief.COLLECT_AND_EMPTY if is_idle else Relief.COLLECT


def learned(policy: ReliefPolicy, history: ReliefHistory, *, given_back: int, total: int, step: int) -> ReliefHistory:
    """The history after an answer at a step that gave so many bytes back, on a device of so many."""
    is_worth_it = given_back > 0 and given_back >= policy.worth * total
    wait = policy.steps if is_worth_it else min(policy.longest, 2 * max(history.wait, policy.steps))
    return ReliefHistory(
        next_step=step + wait,
        wait=wait,
        answers=history.answers + 1,
        given_back=history.given_back + max(0, given_back),
    )
