"""The chart of a timeline, drawn for any curves."""

from hypothesis import given
from hypothesis import strategies as st

from memplan.report.estimate.timeline_chart import RISING, ROWS, SHADE, chart_lines

curves = st.lists(st.tuples(st.integers(0, 1 << 49), st.integers(0, 1 << 49)), min_size=2, max_size=300)


@given(curves, st.integers(60, 100), st.data())
def test_the_chart_shows_the_highest_of_every_column(pairs, width, data):
    allocated = [min(pair) for pair in pairs]
    reserved = [max(pair) for pair in pairs]
    marked = data.draw(st.integers(0, len(pairs) - 1))
    lines = [line.plain for line in chart_lines(allocated, reserved, marked, width)]
    if not max(reserved):
        assert lines == []
        return
    rows, pointer = lines[:ROWS], lines[ROWS]
    assert all(len(line) <= width for line in lines)
    left = len(lines[-1]) - len(lines[-1].lstrip())
    columns = width - left - 1
    # The tallest column reaches the top row, the arrow is within the chart, shade is never under what is filled.
    assert set(rows[0][left:]) - {" "}
    assert left <= pointer.index("^") <= left + columns
    for column in range(left, left + columns):
        cells = "".join(row[column : column + 1] for row in reversed(rows))
        filled = cells.rstrip(SHADE + " ")
        assert set(filled[:-1]) <= {RISING[-1]}
    # The whole height of a column of full cells stands for the top: what is allocated at its peak is drawn that high.
    tallest = max(
        sum(row[column] in RISING[1:] for row in rows if len(row) > column) for column in range(left, left + columns)
    )
    assert tallest == -(-ROWS * max(allocated) // max(reserved))


def test_nothing_to_draw():
    assert chart_lines([0, 0], [0, 0], 0, 80) == []
    assert chart_lines([5], [5], 0, 80) == []
