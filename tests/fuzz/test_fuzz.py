"""A short run of the fuzzer by default, a longer one among the slow tests; ``benchmarks/fuzz.py`` runs thousands."""

from random import Random

import pytest

from tests.fuzz.files import KINDS
from tests.fuzz.lines import COMMANDS, draw
from tests.fuzz.run import Case, run_case

SHORT, LONG = 40, 400


def _told(case: Case) -> str:
    return f"seed {case.seed} ({case.kind}): {', '.join(case.wrong)}: {case.line.words!r:.500} -> {case.err[-500:]!r}"


def _wrong(seeds: range) -> list[str]:
    return [_told(case) for case in map(run_case, seeds) if case.wrong]


def test_drawn_cases_end_in_one_of_the_ways_that_are_documented() -> None:
    assert _wrong(range(SHORT)) == []


@pytest.mark.slow
def test_many_drawn_cases_end_in_one_of_the_ways_that_are_documented() -> None:
    assert _wrong(range(10_000, 10_000 + LONG)) == []


def test_every_command_and_every_kind_of_file_is_drawn() -> None:
    """Drawn from the tables of options and files, so that what is new there is drawn, too."""
    assert {draw(Random(seed)).command for seed in range(400)} == set(COMMANDS)
    assert len(KINDS) == len(set(KINDS))


def test_a_seed_draws_the_same_case_again() -> None:
    one, other = run_case(7), run_case(7)
    assert (one.line, one.kind, one.code) == (other.line, other.kind, other.code)
