"""Streams of toy models of any depth: blocks go forward, backward, and are stepped over in lists."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from memplan.tracing.fold.stream import TokenStream, stream_of

Token = tuple[int, tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToyModel:
    """What a toy model's stream is made of; the words of all its parts are small numbers, so that they come again."""

    head: Sequence[int]
    """Vocabulary before everything."""
    block: Sequence[int]
    """Vocabulary of a block's forward; each names its block and allocates."""
    seams: Sequence[int]
    """Vocabulary between two blocks."""
    back: Sequence[int]
    """Vocabulary of a block's backward; each refers to what the block's forward allocated last."""
    tail: Sequence[int]
    """Vocabulary behind everything."""
    odd: Sequence[int] = ()
    """Vocabulary that the first block's backward has in addition."""

    def stream(self, blocks: int) -> TokenStream:
        """Return the stream of so many blocks."""
        tokens = list(self._tokens(blocks))
        return stream_of([word for word, _ in tokens], [integers for _, integers in tokens])

    def _tokens(self, blocks: int) -> Iterator[Token]:
        position, last = 0, list[int]()
        for word in self.head:
            yield word, (position, 0)
            position += 1
        for block in range(blocks):
            for word in self.block:
                yield word, (position, block)
                position += 1
            last.append(position)
            if block < blocks - 1:
                for word in self.seams:
                    yield word, (position, 7)
        for block in reversed(range(blocks)):
            for word in (*self.back, *(self.odd if block == 0 else ())):
                yield word, (last[block], blocks - block)
        # One op on a list of what all blocks hold, twice.
        yield 0, (blocks, 1)
        yield from ((2, (each, 0)) for each in (*last, *last))
        for word in self.tail:
            yield word, (position + blocks, 0)
