"""How many tokens a router sends to each expert: evenly, as real ones do, or at worst. Torch-free.

Experts are in the order of their indices, the busiest first: those of the rank that is traced, which is the first.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from math import ceil, floor
from typing import get_args

from memplan.job.spec import DataDependent

KINDS: tuple[DataDependent, ...] = get_args(DataDependent)
"""The mildest first."""
GINI = 0.38
"""Gini coefficient of plausible loads: the largest of five trained models on any data (arXiv 2605.20982, abstract: on
text 0.105 to above 0.24, on random tokens up to 0.38)."""
EXPONENT = (1 + GINI) / (1 - GINI)
"""The Lorenz curve x ** EXPONENT has this coefficient: the busiest share x of the experts takes
1 - (1 - x) ** EXPONENT of the rows."""
MOST_EXPERTS = 1024
"""Chosen: indices of more classes are words of a vocabulary and no experts."""
SENTENCES: Mapping[DataDependent, str] = {
    "balanced": "tokens are routed evenly: every expert gets the same share",
    "plausible": f"tokens are routed unevenly, Gini coefficient {GINI}, and this rank has the busiest experts",
    "worst": "every token is routed to as many of this rank's experts as a token may be, and the same ones",
}
"""What the report says is assumed, where a size hangs on it."""
ANY = "what routers choose decides no sizes"
"""What it says where none does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """How routers choose."""

    kind: DataDependent = "balanced"
    """How evenly."""
    ranks: int = 1
    """Ranks that share the experts."""

    def loads(self, rows: int, experts: int, top: int) -> tuple[int, ...]:
        """How many rows each expert gets; they sum to ``rows``.

        Args:
            rows: Pairs of a token and one of its experts.
            experts: How many there are, on all ranks.
            top: Experts of one token, all different: none gets more than ``rows / top``.
        """
        most = ceil(rows / top)
        if self.kind == "balanced":
            return tuple(rows // experts + (index < rows % experts) for index in range(experts))
        if self.kind == "plausible":
            return _rounded(_plausible(rows, experts, most))
        return _worst(rows, experts, min(top, max(1, experts // self.ranks)), max(1, experts // self.ranks), most)


BALANCED = Routing()
"""What is assumed where nobody says otherwise."""


def _plausible(rows: int, experts: int, most: int) -> Iterator[float]:
    """What the Lorenz curve gives; what is more than an expert can get goes to the next."""
    over = 0.0
    for index in range(experts):
        before, after = ((1 - part / experts) ** EXPONENT for part in (index, index + 1))
        wanted = rows * (before - after) + over
        over = max(0.0, wanted - most)
        yield wanted - over


def _rounded(loads: Iterator[float]) -> tuple[int, ...]:
    ends = [floor(end + 0.5) for end in accumulate(loads)]
    return tuple(end - start for start, end in zip([0, *ends], ends, strict=False))


def _worst(rows: int, experts: int, crowded: int, local: int, most: int) -> tuple[int, ...]:
    """All that the first experts can get; the others of their rank one each, so that all have gradients."""
    idle = min(local - crowded, max(0, rows - crowded))
    left = rows - idle
    full = [min(most, max(0, left - most * index)) for index in range(crowded)]
    elsewhere, others = left - sum(full), experts - local
    rest = [elsewhere // others + (index < elsewhere % others) for index in range(others)]
    return (*full, *(int(index < idle) for index in range(local - crowded)), *rest)
