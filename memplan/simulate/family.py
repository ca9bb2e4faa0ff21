"""Steps of any length: the streams of a few traced lengths, put together so that sizes follow from the length.

length   64      200     512     900    1500    2048
traces   ●───────●───────●  │    ●───────●──────●
         └─ one family ──┘  ▲    └─ the next ───┘     same requests in the same order, other sizes
                            700: rounded up to 900, the shortest of the next family
"""

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from memplan.lifetime.sizes import Polynomial, Size, fit
from memplan.replay.records import Request


class OpenRequest(NamedTuple):
    """One request of a stretch, its size still open."""

    action: Literal["alloc", "free"]
    """What happens."""
    key: int
    """Identity of the allocation within the family."""
    size: int
    """Index into the family's sizes; -1 for a free."""
    stream: int
    """CUDA stream."""

    @property
    def is_free(self) -> bool:
        """A free, or an allocation?"""
        return self.action == "free"


Stretch = tuple[OpenRequest, ...]
"""Requests in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """What one step leaves for the next: a loss, the last batch, an output that a variable still holds."""

    label: Hashable
    """What it is: the same in every family."""
    enters: int
    """Key under which the step finds, and later frees, what the step before left."""
    leaves: int
    """Key of what it leaves in its place."""
    size: int
    """Index into the family's sizes."""
    stream: int
    """CUDA stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedLength:
    """The streams of one traced length."""

    length: int
    """Tokens; 0 where there are no sequences."""
    set_up: tuple[Request, ...]
    """What comes before the first step."""
    warm_up: tuple[tuple[Request, ...], ...]
    """Every step before the one that repeats."""
    step: tuple[Request, ...]
    """The step that repeats."""
    carried: tuple[tuple[Hashable, int, int], ...]
    """Label, key that the step frees, key that takes its place; in order of birth."""

    @property
    def shape(self) -> Hashable:
        """All but the sizes: equal for lengths of one family."""
        return self.carried, tuple(tuple((r.action, r.key, r.stream) for r in requests) for requests in self.stretches)

    @property
    def stretches(self) -> tuple[tuple[Request, ...], ...]:
        """Set-up, then every step in order."""
        return self.set_up, *self.warm_up, self.step


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Every length from ``shortest`` to ``longest``: the same requests, with sizes that follow from the length."""

    shortest: int
    """Shortest traced length."""
    longest: int
    """Longest traced length."""
    set_up: Stretch
    """What comes before the first step."""
    warm_up: tuple[Stretch, ...]
    """Every step before the one that repeats."""
    step: Stretch
    """The step that repeats."""
    carried: tuple[Carried, ...]
    """What passes from step to step."""
    sizes: tuple[Size, ...]
    """How sizes follow from the length; requests of equal size share one."""
    rivals: tuple[tuple[Size, ...], ...]
    """Forms that the traced lengths do not tell apart, for each size that has several."""

    @property
    def stretches(self) -> tuple[Stretch, ...]:
        """Set-up, then every step in order."""
        return self.set_up, *self.warm_up, self.step

    def sizes_at(self, length: int) -> tuple[int, ...]:
        """Every size in bytes at a length."""
        return tuple(size.at(length) for size in self.sizes)

    def disputes_at(self, length: int) -> int:
        """Number of sizes whose possible forms differ at a length: a trace there would decide."""
        return sum(len({form.at(length) for form in forms}) > 1 for forms in self.rivals)

    def exact_at(self, length: int) -> bool:
        """Is every size at that length known exactly?"""
        return all(isinstance(size, Polynomial) or length in size.lengths for size in self.sizes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Families:
    """Families in order of length; they do not overlap."""

    members: tuple[Family, ...]
    """At least one."""

    def of(self, length: int) -> tuple[Family, int]:
        """The family that plays a length, and the length at which it does: the next longer one that is known."""
        index = bisect_left([family.longest for family in self.members], length)
        family = self.members[min(index, len(self.members) - 1)]
        return family, min(max(length, family.shortest), family.longest)


def put_together(traces: Mapping[int, TracedLength]) -> Families:
    """Families of traced lengths: neighbours that make the same requests belong together."""
    groups: list[list[TracedLength]] = []
    for length in sorted(traces):
        if groups and groups[-1][0].shape == traces[length].shape:
            groups[-1].append(traces[length])
        else:
            groups.append([traces[length]])
    return Families(members=tuple(_family(group) for group in groups))


def _family(group: Sequence[TracedLength]) -> Family:
    sizes = _Sizes(tuple(traced.length for traced in group))
    first = group[0]
    stretches = [sizes.stretch(parallel) for parallel in zip(*(traced.stretches for traced in group), strict=True)]
    forms = [fit(dict(zip(sizes.lengths, known, strict=True))) for known in sizes.known]
    size_of = {call.key: call for stretch in stretches for call in stretch if not call.is_free}
    return Family(
        shortest=first.length,
        longest=group[-1].length,
        set_up=stretches[0],
        warm_up=tuple(stretches[1:-1]),
        step=stretches[-1],
        carried=tuple(
            Carried(label=label, enters=old, leaves=new, size=size_of[new].size, stream=size_of[new].stream)
            for label, old, new in first.carried
        ),
        sizes=tuple(possible[0] for possible in forms),
        rivals=tuple(possible for possible in forms if len(possible) > 1),
    )


class _Sizes:
    """Sizes at the traced lengths → index; few differ, so each is fitted once."""

    def __init__(self, lengths: tuple[int, ...]) -> None:
        self.lengths = lengths
        self.known: dict[tuple[int, ...], int] = {}

    def stretch(self, parallel: Iterable[Sequence[Request]]) -> Stretch:
        """One stretch out of the same one at every length."""
        return tuple(self._call(requests) for requests in zip(*parallel, strict=True))

    def _call(self, requests: Sequence[Request]) -> OpenRequest:
        first = requests[0]
        if first.action == "free":
            return OpenRequest("free", first.key, -1, first.stream)
        sizes = tuple(request.nbytes for request in requests)
        return OpenRequest("alloc", first.key, self.known.setdefault(sizes, len(self.known)), first.stream)


def differing(families: Families, truth: TracedLength) -> tuple[int, int] | None:
    """Compare a family's sizes with a trace that it was not made from.

    Returns allocations of the repeated step whose bytes differ, and how many there are; None if the requests themselves
    differ.
    """
    family, _ = families.of(truth.length)
    sizes = family.sizes_at(truth.length)
    if len(family.step) != len(truth.step):
        return None
    wrong = total = 0
    for call, request in zip(family.step, truth.step, strict=True):
        if (call.is_free, call.key, call.stream) != (request.action == "free", request.key, request.stream):
            return None
        if not call.is_free:
            total += 1
            wrong += sizes[call.size] != request.nbytes
    return wrong, total
