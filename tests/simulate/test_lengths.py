"""Distributions of lengths as typed, and what is drawn from them."""

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan.errors import UsageError
from memplan.simulate.lengths import Fixed, Listed, Lognormal, Normal, Uniform, draw_lengths, parse_distribution


@given(st.integers(1, 9999), st.integers(0, 9999), st.integers(0, 99))
def test_uniform_stays_within_both_ends_and_a_seed_repeats(low, width, seed):
    distribution = parse_distribution(f"uniform:{low}-{low + width}")
    drawn = draw_lengths(distribution, 50, seed=seed)
    assert distribution == Uniform(low=low, high=low + width)
    assert all(low <= length <= low + width for length in drawn)
    assert drawn == draw_lengths(distribution, 50, seed=seed)


def test_another_seed_draws_other_lengths():
    distribution = parse_distribution("uniform:1-1000")
    assert draw_lengths(distribution, 50, seed=1) != draw_lengths(distribution, 50, seed=2)


def test_normal_has_its_mean_and_deviation():
    drawn = draw_lengths(parse_distribution("normal:500,50"), 4000, seed=0)
    assert statistics.mean(drawn) == pytest.approx(500, rel=0.01)
    assert statistics.stdev(drawn) == pytest.approx(50, rel=0.05)


def test_lognormal_has_its_median_and_obeys_its_maximum():
    drawn = draw_lengths(parse_distribution("lognormal:512,0.6,max=4096"), 4000, seed=0)
    assert statistics.median(drawn) == pytest.approx(512, rel=0.05)
    assert max(drawn) <= 4096
    # 84 % of a lognormal lies below median * exp(sigma).
    assert sum(length <= 512 * 1.8221 for length in drawn) / 4000 == pytest.approx(0.841, abs=0.02)


def test_bounds_are_read_in_any_order():
    assert parse_distribution("normal:100,30,max=150,min=50") == Normal(mean=100, deviation=30, low=50, high=150)
    assert parse_distribution("lognormal: 100, 0.5, min=50, max=200") == Lognormal(
        median=100, sigma=0.5, low=50, high=200
    )


def test_a_file_is_played_in_order_and_again(tmp_path):
    file = tmp_path / "lengths.txt"
    file.write_text("100\n\n# long ones\n2048  # the longest\n7\n")
    distribution = parse_distribution(str(file))
    assert distribution == Listed(lengths=(100, 2048, 7))
    assert draw_lengths(distribution, 5, seed=0) == (100, 2048, 7, 100, 2048)


def test_fixed_takes_its_number_else_the_jobs():
    assert parse_distribution("fixed") == Fixed(length=None)
    assert draw_lengths(parse_distribution("fixed"), 2, seed=0, default=77) == (77, 77)
    assert draw_lengths(parse_distribution("fixed:9"), 2, seed=0, default=77) == (9, 9)
    assert draw_lengths(parse_distribution("fixed"), 2, seed=0) == (0, 0)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("unifrom:1-2", "neither a distribution nor a file"),
        ("uniform", "range is missing"),
        ("uniform:20-10", "runs backwards, from 20 to 10"),
        ("uniform:0-10", "'0' is not a length"),
        ("uniform:1-99999999999", "is not a length"),
        ("uniform:a-b", "'a' is not a length"),
        ("normal:500", "takes two numbers"),
        ("normal:500,0", "above 0"),
        ("normal:500,-1", "takes two numbers"),
        ("normal:500,10,max=5", "next to nothing lies between"),
        ("normal:500,10,mx=5", "'mx=' is not known"),
        ("normal:500,1,min=900,max=990", "next to nothing lies between"),
        ("lognormal:512,9999999,max=4096", "next to nothing lies between"),
        ("lognormal:512,0.6,min=9,max=8", "next to nothing lies between"),
        ("fixed:0", "'0' is not a length"),
        ("fixed:", "'' is not a length"),
    ],
)
def test_what_cannot_be_is_refused(text, complaint):
    with pytest.raises(UsageError, match=complaint):
        parse_distribution(text)


def test_an_absurd_spread_still_ends():
    assert len(draw_lengths(parse_distribution("lognormal:512,500,max=4096"), 5, seed=0)) == 5


@pytest.mark.parametrize(
    ("content", "complaint"), [("12\nmany\n", "'many' is not a length"), ("# none\n", "no lengths")]
)
def test_files_are_checked(tmp_path, content, complaint):
    file = tmp_path / "lengths.txt"
    file.write_text(content)
    with pytest.raises(UsageError, match=complaint):
        parse_distribution(str(file))


def test_a_binary_file_is_refused(tmp_path):
    file = tmp_path / "lengths"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="no text in UTF-8"):
        parse_distribution(str(file))
