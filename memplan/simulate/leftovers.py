"""What if nothing of a step outlived it? A loss, an output or a batch that a variable holds lies in the next one's way.

as it is     step │▒▒▒▒▒▒▒▒ output ████│██████ ▒▒▒▒  next step: the old output is freed when the new takes its name
del output   step │▒▒▒▒▒▒▒▒ output ████│▒▒▒▒▒▒▒▒▒▒  next step
"""

import dataclasses

from memplan.simulate.family import Families, Family
from memplan.simulate.records import Workload


def passed_bytes(workload: Workload) -> int:
    """Most bytes that any step leaves for the next."""
    most = 0
    for length in {min(workload.lengths), max(workload.lengths)}:
        family, fitting = workload.families.of(length)
        sizes = family.sizes_at(fitting)
        most = max(most, sum(sizes[carried.size] for carried in family.carried))
    return most


def without_leftovers(workload: Workload) -> Workload:
    """The same steps, each freeing first what the one before left."""
    members = tuple(_freed_first(family) for family in workload.families.members)
    return dataclasses.replace(workload, families=Families(members=members))


def _freed_first(family: Family) -> Family:
    entering = {carried.enters for carried in family.carried}
    frees = [call for call in family.step if call.is_free and call.key in entering]
    rest = (call for call in family.step if not (call.is_free and call.key in entering))
    return dataclasses.replace(family, step=(*frees, *rest))
