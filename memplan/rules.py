"""The findings that a report can carry, by code; ``memplan explain CODE`` prints them."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One finding."""

    code: str
    """Stable name, ``MP001``."""
    title: str
    """What is found."""
    meaning: str
    """When it is reported."""
    remedy: str
    """What to do about it."""


RULES: Mapping[str, Rule] = {
    rule.code: rule
    for rule in (
        Rule(
            code="MP001",
            title="predicted out of memory",
            meaning="The predicted device peak (allocator segments, CUDA context and libraries) exceeds what a fresh "
            "process can allocate on this GPU.",
            remedy="Take one of the changes listed below the verdict, a smaller batch or sequence, a lower precision, "
            "--checkpoint full, or a larger GPU. 'memplan gpus' lists them.",
        ),
        Rule(
            code="MP002",
            title="fits tightly",
            meaning="The predicted peak fits, but the upper end of its interval does not: a run may fail.",
            remedy="Leave more room before a long run, or try the first step on the real GPU.",
        ),
        Rule(
            code="MP003",
            title="no trustworthy estimate",
            meaning="Something that decides the peak could not be traced or modelled, so no figure is given.",
            remedy="The report names what stands in the way; --explain lists every assumption.",
        ),
    )
}
