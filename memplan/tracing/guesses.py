"""What is taken for granted where values are not known, and the record of it for the report."""

from collections.abc import Callable, Sequence
from math import ceil, expm1, log1p, prod

import torch

from memplan.seam.fake import unset_fake_temporarily
from memplan.tracing.decisions import Decisions
from memplan.tracing.draws import Draws
from memplan.tracing.knowledge import NOTHING, Knowledge, is_choice
from memplan.tracing.records import Way
from memplan.tracing.results import Results
from memplan.tracing.routing import ANY, BALANCED, MOST_EXPERTS, SENTENCES, Routing

EVERY_ELEMENT = "masks and other data-dependent selections take every element"


class Guesses:
    """Counts what data would decide, from what is known of a tensor or else by a stated assumption.

    Args:
        routing: How routers choose; at worst, every element of a mask is selected, too.
        knowledge_of: What is known of a fake tensor.
        decisions: What is taken for the answer where the program asks data.
        results: Of ops that need no data; None: nothing is remembered yet.
    """

    def __init__(
        self,
        *,
        routing: Routing = BALANCED,
        knowledge_of: Callable[[torch.Tensor], Knowledge] = lambda _: NOTHING,
        decisions: Decisions | None = None,
        results: Results | None = None,
    ) -> None:
        self.routing = routing
        self.worst_case = routing.kind == "worst"
        self.knowledge_of = knowledge_of
        self.decisions = decisions or Decisions()
        self.routes = False
        """Has a router told experts apart?"""
        self.assumptions: dict[str, None] = {}
        """Assumptions made so far, in order, each a sentence."""
        self.draws = Draws(self.decisions.way)
        """Random integers."""
        self.results = Results() if results is None else results
        """Of ops that need no data."""

    @property
    def unsure(self) -> tuple[Way, ...]:
        """In which other ways what nobody knows could turn out, so that the step would be another one."""
        if self.worst_case or self.decisions.way != "likely":
            return ()
        by_integers: tuple[Way, ...] = ("other", "most") if self.decisions.integers else ()
        return tuple(dict.fromkeys((*self.decisions.account.ways, *by_integers)))

    def value_of(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """What a tensor holds, as far as that is known: one that a loader made of data is real."""
        known = self.knowledge_of(tensor).value
        return tensor if known is None and type(tensor) is torch.Tensor else known

    def read_drawn(self, known: Knowledge) -> None:
        """Note that a program reads elements; where they were drawn, others may be read the next time."""
        if known.value is None and known.drawn is not None:
            self.assume("random integers that the program reads are drawn anew by each trace, from one seed")
            self.decisions.account.ways |= dict.fromkeys(("other", "most"))

    def selected(self, mask: torch.Tensor) -> int:
        """How many elements of a mask are true."""
        known, value = self.knowledge_of(mask), self.value_of(mask)
        if value is not None:
            with unset_fake_temporarily():
                return int(torch.count_nonzero(value))
        is_routed = known.is_routed and known.density is not None
        # What a router that is not trained chooses is nobody's worst case.
        if not (is_routed and self.routing.kind != "balanced") and (heard := self.decisions.heard()) is not None:
            return min(int(heard), mask.numel())
        if known.density is None or (self.worst_case and not is_routed):
            self.assume(EVERY_ELEMENT)
            self.decisions.account.ways["other"] = None
            return 0 if self.decisions.way == "other" else mask.numel()
        return self.true_elements(mask, known.density, is_routed=is_routed)

    def true_elements(self, mask: torch.Tensor, density: float, *, is_routed: bool = False) -> int:
        """How many elements of a mask of a given density are true."""
        count = ceil(round(mask.numel() * density, 6))
        if is_routed and self.routing.kind != "balanced":
            self.assume_routing()
            return count
        if 0 < density < 1:
            self.assume_balance(is_routed=is_routed)
            if mask.dim() == 2 and mask.shape[0] <= mask.shape[1]:
                # (batch, sequence): what is looked for, the end of a sequence, is there at least once in each.
                count = max(count, mask.shape[0])
        return count

    def distinct(self, indices: torch.Tensor, sizes: Sequence[int]) -> int:
        """How many different columns a sparse tensor's indices have.

        Args:
            indices: One row for each sparse dimension.
            sizes: Lengths of all dimensions.
        """
        known = self.knowledge_of(indices)
        if known.value is not None:
            with unset_fake_temporarily():
                return int(known.value.unique(dim=1).shape[1])  # type: ignore[no-untyped-call]
        count = int(indices.shape[1])
        places = prod(sizes[: indices.shape[0]])
        if known.classes is None or self.worst_case:
            self.assume("indices of a sparse tensor that is coalesced are all different")
            return self.between(min(count, places), least=min(count, 1), most=min(count, places))
        self.assume("indices of a sparse tensor that is coalesced are drawn evenly, and so often the same")
        return self.occupied(count, prod(min(size, known.classes) for size in sizes[: indices.shape[0]]))

    @staticmethod
    def occupied(draws: int, places: int) -> int:
        """How many of these places are hit by so many even draws, on average."""
        return round(places * -expm1(draws * log1p(-1 / places))) if places > 1 else min(draws, places)

    def between(self, likely: int, *, least: int, most: int) -> int:
        """A count that only data tell: the likely one, or for an end of the interval the least or the most."""
        self.decisions.account.ways |= dict.fromkeys(("other", "most"))
        return {"other": least, "most": most}.get(self.decisions.way, most if self.worst_case else likely)

    def assume(self, sentence: str) -> None:
        """Note an assumption for the report."""
        self.assumptions[sentence] = None

    def assume_balance(self, *, is_routed: bool) -> None:
        """Note that values which choose between experts, or between classes, choose each equally often."""
        if is_routed:
            self.assume_routing()
        else:
            self.assume("values that choose between classes choose each as often")

    def loads(self, indices: torch.Tensor) -> tuple[int, ...] | None:
        """How often each class is among indices; None where each is as often as any other."""
        known = self.knowledge_of(indices)
        if known.value is not None and known.value.numel():
            return _tally(known.value)
        if known.tally is not None or not is_choice(known) or self.routing.kind == "balanced":
            return known.tally
        return self.routing.loads(indices.numel(), known.classes or 1, known.top or 1)

    def assume_routing(self) -> None:
        """Note how routers choose: a size hangs on it."""
        self.assume(SENTENCES[self.routing.kind])

    def on_routing(self) -> tuple[str, ...]:
        """What is left to say of routers: that no size hangs on them, or how they choose if it may."""
        if not self.routes or not self.assumptions.keys().isdisjoint(SENTENCES.values()):
            return ()
        return (SENTENCES[self.routing.kind] if EVERY_ELEMENT in self.assumptions else ANY,)

    def exchanged(self, known: Knowledge, ranks: int) -> Knowledge:
        """What is known of what comes back where every rank sends to each what this one, the first, sends.

        With balance as many come as go.
        """
        value = known.value
        if value is None or self.routing.kind == "balanced" or value.numel() % ranks:
            return known
        with unset_fake_temporarily():
            return Knowledge(value=value.reshape(ranks, -1)[:1].expand(ranks, -1).reshape(value.shape).clone())


def _tally(indices: torch.Tensor) -> tuple[int, ...] | None:
    """How often each index is there; None where these are none."""
    with unset_fake_temporarily():
        if indices.dtype.is_floating_point or indices.is_complex() or not 0 <= int(indices.min()) <= MOST_EXPERTS:
            return None
        return tuple(torch.bincount(indices.flatten().long()).tolist()) if int(indices.max()) < MOST_EXPERTS else None
