"""What lost and why, each failure once: what fails together fails in every way that has it."""

from collections.abc import Iterable, Iterator, Sequence

from memplan.plan.recommend.records import NO_BETTER, NOT_TRACED, Candidate, Recommendation


def lost_once(answer: Recommendation) -> list[tuple[str, str]]:
    """Return words and reason of what lost, but for what the single changes tell.

    Of ways that fail for one reason those are told that have no smaller one among them; if changes are common to all of
    these, and nothing that ran has them together, they alone.
    """
    told = [each for each in answer.what_ifs if each.saved_bytes is None]
    singles = [each.candidate for each in told]
    lost = [
        each for each in answer.rejected if each.candidate not in singles and each.reason not in (NOT_TRACED, NO_BETTER)
    ]
    ran = [each.candidate for each in (*answer.rows, *answer.pareto)]
    ran += [each.candidate for each in answer.what_ifs if each.saved_bytes is not None]
    ran += [each.candidate for each in lost if each.traced]
    words: dict[tuple[str, str], None] = {}
    for each in lost:
        if each.traced:
            words[each.candidate.words, each.reason] = None
            continue
        alike = [other.candidate for other in lost if not other.traced and other.reason == each.reason]
        known = [*alike, *(single.candidate for single in told if single.reason == each.reason)]
        for text in _least(each.candidate, known, ran):
            words[text, each.reason] = None
    return list(words)


def _least(candidate: Candidate, failed: Sequence[Candidate], ran: Iterable[Candidate]) -> Iterator[str]:
    """The words of a failure, or of what it shares with all others; none where a smaller one is among them."""
    smallest = [each for each in failed if not any(_has(each, other) and each != other for other in failed)]
    if candidate not in smallest:
        return
    common = [change for change in candidate.changes if all(change in each.changes for each in smallest)]
    is_common = bool(common) and not any(set(common) <= set(each.changes) for each in ran)
    yield " ".join(common) if is_common else candidate.words


def _has(one: Candidate, other: Candidate) -> bool:
    """Has one way all changes of another, and more?"""
    return set(other.changes) < set(one.changes)
