"""Texts apart from the numbers in them: ``layers.3.mlp`` is the word ``layers.#.mlp`` and the number 3."""

import re
from collections.abc import Hashable
from functools import lru_cache

GAP = "#"
"""Stands for a number."""
_NUMBER = re.compile(r"\d+")
_FRACTION = re.compile(r"\d[.,]\d")
_KNOWN = 1 << 16
"""Texts remembered: modules and sources of the largest models are some thousands."""

Word = tuple[Hashable, ...]
"""What a token says beside its integers."""


@lru_cache(_KNOWN)
def taken_apart(text: str) -> tuple[str, tuple[int, ...]]:
    """Return a text with a gap for each of its numbers, and the numbers."""
    return _NUMBER.sub(GAP, text), tuple(map(int, _NUMBER.findall(text)))


def sentence_apart(text: str) -> tuple[str, tuple[int, ...]]:
    """Return a sentence likewise; whole where it has a fraction (``1.5 GiB``), which no straight line gives."""
    return (text, ()) if _FRACTION.search(text) or GAP in text else taken_apart(text)


@lru_cache(_KNOWN)
def put_together(text: str, numbers: tuple[int, ...]) -> str:
    """Return a text with its gaps filled."""
    if not numbers:
        return text
    return "".join(f"{part}{number}" for part, number in zip(text.split(GAP), (*numbers, ""), strict=True))


class Vocabulary:
    """Numbers for words, the same in all streams that are compared."""

    def __init__(self) -> None:
        self.known: list[Word] = []
        """All words so far, by their numbers."""
        self._numbers: dict[Word, int] = {}

    def number(self, *word: Hashable) -> int:
        """Return the number of a word, a new one where it is new."""
        number = self._numbers.setdefault(word, len(self.known))
        if number == len(self.known):
            self.known.append(word)
        return number
