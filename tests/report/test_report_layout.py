"""Laws of fitting text into cells, and of bars."""

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.text import Text

from memplan.report.draw.layout import LABEL_CELLS, apportion, bar, flow, pad, paragraphs, source_line, spread
from memplan.text import clean, shorten

WIDTHS = st.integers(1, 100)
TEXTS = st.text(max_size=200)
WORDS = st.text(st.characters(categories=["L", "N", "P"]), min_size=1, max_size=30)


@given(TEXTS, WIDTHS)
def test_shortened_text_fits(text: str, width: int) -> None:
    assert cell_len(shorten(text, width)) <= width


@given(WORDS, WIDTHS)
def test_text_that_fits_is_left_alone_and_other_text_keeps_both_ends(text: str, width: int) -> None:
    short = shorten(text, width)
    if cell_len(clean(text)) <= width:
        assert short == clean(text)
    elif short and len(short) >= 3:
        assert short[0] == clean(text)[0]
        assert short[-1] == clean(text)[-1]


@given(TEXTS)
def test_clean_text_cannot_move_the_cursor_or_break_the_line(text: str) -> None:
    assert clean(text).isprintable()
    assert len(clean(text).splitlines()) <= 1


@given(st.text(st.characters(categories=["L", "N"]), max_size=100), WIDTHS)
def test_padded_text_has_exactly_the_width(text: str, width: int) -> None:
    assert cell_len(pad(text, width)) == width


@given(WORDS, WORDS, st.integers(70, 100))
def test_a_spread_line_keeps_its_right_part_whole(left: str, right: str, width: int) -> None:
    line = spread(Text(left), Text(right), width)
    assert line.plain.endswith(right)
    assert line.cell_len == width


@given(st.lists(WORDS, max_size=12), st.integers(40, 100))
def test_a_flow_keeps_every_item_whole_and_in_order(items: list[str], width: int) -> None:
    lines = flow("label", items, width)
    assert all(line.cell_len <= width for line in lines)
    shown = [item for line in lines for item in line.plain[LABEL_CELLS:].split(" · ")]
    assert shown == [shorten(item, width - LABEL_CELLS) for item in items]


@given(st.lists(st.lists(WORDS, max_size=12).map(" ".join), max_size=4), st.integers(40, 100))
def test_paragraphs_keep_every_word(sentences: list[str], width: int) -> None:
    lines = [line.plain for line in paragraphs("title", sentences, width)]
    words = itertools.chain.from_iterable(line[4:].split() for line in lines[1:])
    assert list(words) == [shorten(word, width - 4) for sentence in sentences for word in sentence.split()]


@given(st.lists(st.integers(0, 2**62), min_size=1, max_size=12), st.integers(1, 400))
def test_bars_of_the_parts_are_as_long_as_the_whole(sizes: list[int], cells: int) -> None:
    shares = apportion(sizes, cells)
    assert sum(shares) == (cells if any(sizes) else 0)
    # Largest remainder: nobody is a whole cell away from the exact share, and nothing gets nothing.
    for size, share in zip(sizes, shares, strict=True):
        assert abs(share * sum(sizes) - size * cells) < max(1, sum(sizes))


@given(st.integers(0, 400))
def test_a_bar_is_as_long_as_it_says(eighths: int) -> None:
    lengths = Counter({"█": 8, "▉": 7, "▊": 6, "▋": 5, "▌": 4, "▍": 3, "▎": 2, "▏": 1})
    assert sum(lengths[block] for block in bar(eighths)) == eighths


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("/usr/lib/python3/dist-packages/torch/nn/functional.py:12", "torch/nn/functional.py:12"),
        (r"C:\venv\Lib\site-packages\torch\nn\functional.py:12", r"torch\nn\functional.py:12"),
        ("/home/me/model.py:7", "/home/me/model.py:7"),
        ("", ""),
    ],
)
def test_a_library_s_source_line_starts_at_the_library(source: str, shown: str) -> None:
    assert source_line(source) == shown
