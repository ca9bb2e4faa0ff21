"""Laws of the aligner. The oracle is the textbook's quadratic table of longest common subsequences."""

import random
import time
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from memplan.validate.align import MatchingBlock, align

SEQUENCES = st.lists(st.integers(0, 4), max_size=40)


def longest_common(left: Sequence[int], right: Sequence[int]) -> int:
    row = [0] * (len(right) + 1)
    for a in left:
        diagonal, row = row, [0]
        for j, b in enumerate(right):
            row.append(diagonal[j] + 1 if a == b else max(diagonal[j + 1], row[j]))
    return row[-1]


def matched(blocks: Sequence[MatchingBlock]) -> int:
    return sum(block.length for block in blocks)


def check_blocks(left: Sequence[int], right: Sequence[int], blocks: Sequence[MatchingBlock]) -> None:
    i = j = 0
    for number, block in enumerate(blocks):
        assert block.length > 0
        assert block.i >= i
        assert block.j >= j
        assert not number or (block.i, block.j) != (i, j), "blocks that touch are one block"
        assert list(left[block.i : block.i + block.length]) == list(right[block.j : block.j + block.length])
        i, j = block.i + block.length, block.j + block.length
    assert i <= len(left)
    assert j <= len(right)


@given(SEQUENCES, SEQUENCES)
def test_within_the_bound_the_alignment_is_longest(left: list[int], right: list[int]) -> None:
    blocks = align(left, right)
    check_blocks(left, right, blocks)
    assert matched(blocks) == longest_common(left, right)


@given(SEQUENCES, SEQUENCES, st.integers(0, 5))
def test_beyond_the_bound_it_is_still_common(left: list[int], right: list[int], bound: int) -> None:
    blocks = align(left, right, most_differences=bound)
    check_blocks(left, right, blocks)
    assert matched(blocks) <= longest_common(left, right)


@given(SEQUENCES)
def test_a_sequence_matches_itself_in_one_block(sequence: list[int]) -> None:
    assert align(sequence, sequence) == ((MatchingBlock(0, 0, len(sequence)),) if sequence else ())


@given(SEQUENCES, SEQUENCES)
def test_both_ways_match_the_same_number(left: list[int], right: list[int]) -> None:
    assert matched(align(left, right)) == matched(align(right, left))


def test_a_long_insertion_among_repeated_layers_costs_only_itself() -> None:
    chance = random.Random(7)
    layer = [chance.randrange(60) for _ in range(250)]
    left = layer * 40
    inserted = [chance.randrange(60) for _ in range(2000)]
    right = left[:5000] + inserted + left[5000:]
    blocks = align(left, right)
    check_blocks(left, right, blocks)
    # Within the bound around the insertion a few may go astray.
    assert matched(blocks) > len(left) - 300


def test_a_hundred_thousand_events_with_scattered_differences_align_in_seconds() -> None:
    chance = random.Random(8)
    left = [chance.randrange(60) for _ in range(300)] * 333
    right = list(left)
    for place in sorted(chance.sample(range(len(left)), 400), reverse=True):
        del right[place]
    started = time.perf_counter()
    blocks = align(left, right)
    assert time.perf_counter() - started < 10
    check_blocks(left, right, blocks)
    assert matched(blocks) == len(right)
