"""How likely N steps of drawn lengths run out of memory, fragmentation included: by playing drawn steps.

Lengths that a device does not hold even after the shortest ones are drawn with a known chance. Of steps that are all
shorter, whole runs are played, and those counted that run out.
"""

import math
import random
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice, repeat

from memplan.replay.allocator import make_caching
from memplan.replay.policy import AllocatorPolicy
from memplan.simulate.lengths import Drawn, draw, possible, share_from
from memplan.simulate.play import StepPlayer
from memplan.simulate.records import Workload

MOST_RUNS = 2000
"""Runs that are played at most: two points of a hundred are then left open."""
LEAST_RUNS = 8
"""Runs that are played at least: the interval says how little so few tell."""
MOST_REQUESTS = 5_000_000
"""Requests after which no further run is begun, some ten seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TailPlan:
    """Which runs are meant."""

    distribution: Drawn
    """Where lengths come from."""
    steps: int
    """Of a run."""
    seed: int
    """Of the drawn lengths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chance:
    """How likely a run runs out of memory."""

    chance: float
    """As played."""
    low: float
    """Lower end of its 95 % interval, which is what playing so few runs leaves open."""
    high: float
    """Upper end."""
    runs: int
    """Runs played."""
    steps: int
    """Their steps."""
    most: int
    """Bytes that the fullest of them reserved; 0 where none was played."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """Runs of drawn steps on devices of one kind.

    Args:
        workload: Steps of every length that can be drawn; its own lengths do not count.
        plan: Which runs.
        policy: Options of the allocator.
        device_bytes: All of the device's memory.
    """

    workload: Workload
    plan: TailPlan
    policy: AllocatorPolicy
    device_bytes: int | None

    def chance(self, limit_bytes: int) -> Chance:
        """Play runs where the allocator can have so much."""
        short = self._too_long(limit_bytes)
        lucky = (1 - share_from(self.plan.distribution, short)) ** self.plan.steps
        if not lucky:
            return Chance(chance=1.0, low=1.0, high=1.0, runs=0, steps=0, most=0)
        count = max(LEAST_RUNS, min(MOST_RUNS, MOST_REQUESTS // (self.plan.steps * self._requests)))
        runs = [self._play(limit_bytes, f"{self.plan.seed}/{index}", below=short) for index in range(count)]
        failed = sum(run.failure is not None for run in runs)
        low, high = share_interval(failed, count)
        # A run survives that draws none too long, and then is one of those that do.
        chance, low, high = (1 - lucky * (1 - share) for share in (failed / count, low, high))
        played = [step for run in runs for step in run.steps]
        most = max((step.peak_reserved for step in played), default=0)
        return Chance(chance=chance, low=low, high=high, runs=count, steps=len(played), most=most)

    def chance_of_steps(self, limit_bytes: int) -> float:
        """Return how likely a step is drawn that a device does not hold even after the shortest ones."""
        return 1 - (1 - share_from(self.plan.distribution, self._too_long(limit_bytes))) ** self.plan.steps

    def most_reserved(self) -> int:
        """Return what one run holds at most where the device has no limit, fragmentation included."""
        return max(step.peak_reserved for step in self._play(None, str(self.plan.seed)).steps)

    def _too_long(self, limit_bytes: int) -> int:
        """The shortest length that a device does not hold even after the shortest ones."""
        lengths = possible(self.plan.distribution)
        index = bisect_left(lengths, True, key=lambda length: not self._alone(length, limit_bytes))
        return lengths[index] if index < len(lengths) else lengths[-1] + 1

    def _alone(self, length: int, limit_bytes: int) -> bool:
        """Does a device hold a step of this length after the shortest ones, of which the least is left?"""
        player, shortest = self._player(limit_bytes), possible(self.plan.distribution)[0]
        player.run(replace(self.workload, lengths=(*[shortest] * (self._warm_up + 1), length)))
        return player.failure is None

    def _play(self, limit_bytes: int | None, name: str, *, below: float = math.inf) -> StepPlayer:
        """Play one run under a limit, all of whose steps are shorter than a length; its name seeds what is drawn."""
        source = random.Random(name)  # noqa: S311 - to be repeatable, nothing here is a secret.
        drawn = (draw(self.plan.distribution, source) for _ in repeat(None))
        lengths = tuple(islice((length for length in drawn if length < below), self.plan.steps))
        player = self._player(limit_bytes)
        player.run(replace(self.workload, lengths=lengths))
        return player

    def _player(self, limit_bytes: int | None) -> StepPlayer:
        return StepPlayer(make_caching(self.policy, limit_bytes=limit_bytes, device_bytes=self.device_bytes))

    @property
    def _requests(self) -> int:
        return max(len(family.step) for family in self.workload.families.members)

    @property
    def _warm_up(self) -> int:
        return max(len(family.warm_up) for family in self.workload.families.members)


def share_interval(count: int, total: int) -> tuple[float, float]:
    """Return the ends of Clopper's and Pearson's 95 % interval of a share."""

    def most(upper: int, share: float) -> float:
        """How likely are at most so many?"""
        terms = (math.lgamma(total + 1) - math.lgamma(n + 1) - math.lgamma(total - n + 1)
                 + n * math.log(share) + (total - n) * math.log1p(-share) for n in range(upper + 1))  # fmt: skip
        return math.fsum(map(math.exp, terms))

    low = _root(lambda share: 1 - most(count - 1, share) > 0.025) if count else 0.0
    high = _root(lambda share: most(count, share) < 0.025) if count < total else 1.0
    return low, high


def _root(beyond: Callable[[float], bool]) -> float:
    """Return where between 0 and 1 a condition begins to hold, to a millionth."""
    return bisect_left(range(1, 1_000_000), True, key=lambda millionth: beyond(millionth / 1_000_000)) / 1_000_000
