"""Reading buffers from tables: what is written is read again, and what is malformed is told with its line."""

from dataclasses import replace

import pytest
from hypothesis import given

from memplan.errors import UsageError
from memplan.plan.reuse.csv_file import read_problem, write_problem
from memplan.plan.reuse.records import ArenaPlacement
from tests.plan.reuse.problems import problems


def read(tmp_path, text, encoding="utf-8"):
    path = tmp_path / "buffers.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode(encoding))
    return read_problem(path)


@given(problem=problems())
def test_what_is_written_is_read_again(tmp_path_factory, problem):
    assert read(tmp_path_factory.mktemp("csv"), write_problem(problem)) == problem


def test_offsets_of_a_placement_are_fixed_when_read_again(tmp_path):
    problem = read(tmp_path, "id,lower,upper,size\na,0,3,4\nb,1,2,5\n")
    text = write_problem(problem, ArenaPlacement(offsets=(5, 0), height=9))
    assert text == "id,lower,upper,size,offset\na,0,3,4,5\nb,1,2,5,0\n"
    assert [buffer.offset for buffer in read(tmp_path, text).buffers] == [5, 0]


@pytest.mark.parametrize("header", ["id,begin,end,size", "buffer_id,start,end,size", "buffer, lower ,end,size"])
def test_an_end_is_the_last_moment_and_an_upper_the_first_after(tmp_path, header):
    by_end = read(tmp_path, f"{header},gaps\nx,2,5,8,3-3\n").buffers[0]
    by_upper = read(tmp_path, "id,lower,upper,size,gaps\nx,2,6,8,3-4\n").buffers[0]
    assert by_end == by_upper
    assert (by_end.start, by_end.end, by_end.gaps) == (2, 6, ((3, 4),))


@pytest.mark.parametrize("text", [
    "\ufeffid,lower,upper,size\r\na,-3,2,4\r\n\r\n", "size,id,upper,lower\n4,a,2,-3",
    'id,lower,upper,size\n"a",-3,2,4\n',
    " id , lower,upper,size\n a , -3, 2 ,4\n", "id,lower,upper,size,hint,offset,alignment,gaps\na,-3,2,4,9,,,\n",
])  # fmt: skip
def test_marks_line_ends_and_spaces_change_nothing(tmp_path, text):
    (buffer,) = read(tmp_path, text).buffers
    assert (buffer.name, buffer.start, buffer.end, buffer.size, buffer.offset) == ("a", -3, 2, 4, None)


def test_gaps_that_touch_are_one(tmp_path):
    (buffer,) = read(tmp_path, "id,lower,upper,size,gaps\na,0,9,4,5-6 1-3 2-4 4-5\n").buffers
    assert buffer.gaps == ((1, 6),)


HEAD = "id,lower,upper,size\n"
MORE = "id,lower,upper,size,alignment,gaps,offset\n"


@pytest.mark.parametrize(("text", "line", "what"), [
    ("", 1, "empty"), ("\n\n", 1, "empty"), ("id,lower,upper\na,0,1\n", 1, "'size' is missing"),
    ("id,lower,upper,size,colour\n", 1, "'colour' is not known"), ("id,lower,start,upper,size\n", 1, "twice"),
    (HEAD + "a,0,1\n", 2, "3 fields under 4 columns"), (HEAD + "a,0,1,2,3\n", 2, "5 fields"),
    (HEAD + "a,0,1,2\nb,0,1,2\na,3,4,5\n", 4, "'a' is in line 2"), (HEAD + ",0,1,2\n", 2, "no id"),
    (HEAD + "a,3,3,2\n", 2, "never alive"), (HEAD + "a,3,2,2\n", 2, "never alive"),
    (HEAD + "a,0,1,-2\n", 2, "-2 bytes"),
    (HEAD + "a,0,1,2.5\n", 2, "'2.5' is not a whole"), (HEAD + "a,0,1,\n", 2, "'' is not a whole"),
    (HEAD + "a,0,1,1_000\n", 2, "not a whole"), (HEAD + "a,0,1,٣\n", 2, "not a whole"),
    (HEAD + "a,zero,1,1\n", 2, "lower"),
    (HEAD + f"a,0,1,{2**63}\n", 2, "beyond 64 bits"), (HEAD + "a,0,1," + "9" * 9999 + "\n", 2, "beyond 64 bits"),
    (MORE + "a,0,9,4,0,,\n", 2, "aligned to 0"), (MORE + "a,0,9,4,4,,6\n", 2, "cannot lie at 6"),
    (MORE + "a,0,9,4,1,,-4\n", 2, "cannot lie at -4"), (MORE + "a,2,9,4,1,1-3,\n", 2, "outside"),
    (MORE + "a,2,9,4,1,4,\n", 2, "start-end"), (MORE + "a,2,9,4,1,5-4,\n", 2, "empty"),
    (MORE + "a,2,9,4,1,4-5@0:2,\n", 2, "some of the bytes"), (MORE + "a,2,9,4,1,x-5,\n", 2, "not a whole"),
    (HEAD + 'a,0,1,"2\n', None, "no CSV"), (b"\xff\xfe\x00i", None, "no text in UTF-8"),
    (HEAD + "a\x00,0,1\x00,2\n", 2, "not a whole"),
])  # fmt: skip
def test_malformed_files_are_told_with_their_line(tmp_path, text, line, what):
    with pytest.raises(UsageError) as raised:
        read(tmp_path, text)
    assert what in raised.value.what
    assert raised.value.where.endswith("buffers.csv" if line is None else f"buffers.csv:{line}")


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        read_problem(tmp_path / "none.csv")


def test_the_largest_numbers_are_read(tmp_path):
    (buffer,) = read(tmp_path, HEAD + f"a,{-(2**63 - 1)},{2**63 - 1},{2**63 - 1}\n").buffers
    assert (buffer.end, buffer.size) == (2**63 - 1, 2**63 - 1)


def test_the_capacity_is_kept(tmp_path):
    path = tmp_path / "none.csv"
    path.write_text(HEAD)
    assert read_problem(path, capacity=7) == replace(read_problem(path), capacity=7)
    assert read_problem(path).buffers == ()
