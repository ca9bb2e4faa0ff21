"""What shallow streams have in common is the stream of any depth, or nothing at all."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from memplan.tracing.fold.depths import DEPTHS
from memplan.tracing.fold.folding import fold
from memplan.tracing.fold.stream import TokenStream, same
from tests.tracing.fold.blocks import ToyModel

_WORDS = st.lists(st.integers(0, 4), max_size=6)
_SOME = st.lists(st.integers(0, 4), min_size=1, max_size=6)
_MODELS = st.builds(ToyModel, head=_WORDS, block=_SOME, seams=_WORDS, back=_WORDS, tail=_WORDS, odd=_WORDS)


def _shallow(model: ToyModel, first: int) -> list[TokenStream]:
    return [model.stream(first + depth) for depth in DEPTHS]


@given(_MODELS, st.integers(1, 3), st.integers(0, 9))
def test_a_stream_of_any_depth_follows_or_nothing_does(model: ToyModel, first: int, depth: int) -> None:
    folding = fold(_shallow(model, first))
    assert folding is None or same(folding.at(depth), model.stream(first + depth))


@given(_MODELS)
def test_words_of_their_own_leave_nothing_to_doubt(model: ToyModel) -> None:
    apart = {name: [10 * index + each for each in getattr(model, name)] for index, name in enumerate(
        ("head", "block", "seams", "back", "tail", "odd"), start=1
    )}  # fmt: skip
    distinct = replace(model, **{name: list(dict.fromkeys(words)) for name, words in apart.items()})
    folding = fold(_shallow(distinct, 2))
    assert folding is not None
    assert same(folding.at(40), distinct.stream(42))


@given(_MODELS, st.data())
def test_one_integer_that_is_off_its_line_is_seen(model: ToyModel, data: st.DataObject) -> None:
    first, second, third = _shallow(model, 2)
    integers = third.integers.copy()
    integers[data.draw(st.integers(0, len(third) - 1)), data.draw(st.integers(0, 1))] += 1
    assert fold((first, second, TokenStream(words=third.words, integers=integers))) is None


def test_blocks_of_different_lengths_are_refused() -> None:
    lengths = [3, 5, 7, 9, 11]
    streams = []
    for blocks in (2, 4, 5):
        words = [word for length in lengths[:blocks] for word in [1, *[2] * length]]
        streams.append(TokenStream(words=np.array(words), integers=np.zeros((len(words), 1), np.int64)))
    assert fold(streams) is None
