"""Steps whose lengths are drawn, as ``estimate`` and ``simulate`` take them from the command line."""

from typing import TYPE_CHECKING

from memplan.cli.check import Problems
from memplan.cli.groups import DrawnOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memplan.hardware.profile import GpuProfile
    from memplan.simulate.lengths import Distribution
    from memplan.simulate.tail import TailPlan

MOST_STEPS = 1_000_000
"""Most steps that are played: figures of every step are kept."""


def distribution(drawn: DrawnOptions, problems: Problems) -> "Distribution":
    """Where the lengths of steps come from; it means something only if there are no problems."""
    from memplan.simulate.lengths import parse_distribution

    if not 1 <= drawn.steps <= MOST_STEPS:
        problems.add(f"--steps must be between 1 and {MOST_STEPS}, not {drawn.steps}")
    found: Distribution = problems.of(parse_distribution, drawn.seq_len_dist or "fixed")
    return found


def tail_plan(profiles: "Sequence[GpuProfile]", drawn: DrawnOptions, problems: Problems) -> "TailPlan | None":
    """The runs of drawn lengths that are asked for, if any."""
    if drawn.seq_len_dist is None:
        if drawn != DrawnOptions():
            problems.add("--steps and --seed are of drawn lengths: give --seq-len-dist")
        return None
    from memplan.simulate.lengths import Fixed
    from memplan.simulate.tail import TailPlan

    lengths = distribution(drawn, problems)
    if isinstance(lengths, Fixed):
        problems.add("--seq-len-dist fixed draws nothing: give --seq-len")
        return None
    problems.add(
        *(f"--gpu {each.name} has no limit that drawn lengths could pass" for each in profiles if not each.usable_bytes)
    )
    return TailPlan(distribution=lengths, steps=drawn.steps, seed=drawn.seed)
