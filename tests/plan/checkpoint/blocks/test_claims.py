"""What an answer claims: no more than the solver proved, of the plans that it spoke of."""

from dataclasses import replace
from typing import Any, cast

import pytest

from memplan.hardware.catalog import load_profile
from memplan.plan.checkpoint.blocks.answer.inputs import NO_GAP, AnswerInputs, Certainty, certainty
from memplan.plan.checkpoint.blocks.problem.records import (
    BlockChoice,
    ChoiceResult,
    ChoiceTimedOut,
    FeasibleChoice,
    InfeasibleChoice,
    OptimalChoice,
)
from memplan.plan.checkpoint.blocks.problem.seconds import extra_seconds
from memplan.plan.checkpoint.blocks.prove.records import Proof
from memplan.plan.checkpoint.blocks.request import Method
from memplan.units import GIB, Bytes
from tests.plan.checkpoint.blocks.problems import BLOCKS, CONTEXT, Device, problem

BUDGET = 1400
UNPLANNED = BlockChoice(options=(0,) * BLOCKS)
SMALLEST = BlockChoice(options=(1,) * BLOCKS)
ANY, FLAT = "plan of these options", "plan without nested segments"


def planned(limit: ChoiceResult, *, budget: int = BUDGET, method: Method = "ilp", chain: bool = False) -> AnswerInputs:
    """A search that ended with every block checkpointed, for 6 s more than the unplanned step's 12 s."""
    device = Device(lambda _: 0)
    best, unplanned = device.trace(SMALLEST), replace(device.trace(UNPLANNED), seconds=12.0)
    best = replace(best, seconds=18.0)
    proof = Proof(result=limit, problem=problem(), traced=best, found=(unplanned, best), limit=limit, solve_seconds=0.0)
    missing = cast("Any", None)
    return AnswerInputs(
        spec=missing,
        profile=replace(load_profile("a100-80g"), context_bytes=Bytes(CONTEXT)),
        budget=budget + CONTEXT,
        method=method,
        fingerprint=None,
        model_place=None,
        roofline=missing,
        problem=replace(problem(), chain=chain),
        proof=proof,
        pareto=(),
        dropped=(),
        notes=(),
        traces=0,
        trace_seconds=0.0,
        solve_seconds=0.0,
        prove_seconds=0.0,
    )


def judged(given: AnswerInputs) -> Certainty:
    """The certainty of an answer, its extra time by the formula included."""
    return certainty(given, extra_seconds(given.problem, given.proof.traced.choice))


def optimal(seconds: float) -> OptimalChoice:
    return OptimalChoice(choice=SMALLEST, seconds=seconds)


def infeasible(*, is_proved: bool) -> InfeasibleChoice:
    return InfeasibleChoice(position=0, least_bytes=Bytes(GIB), choice=SMALLEST, is_proved=is_proved)


def test_at_the_bound_it_is_optimal() -> None:
    given = planned(optimal(6.0))
    assert judged(given) == Certainty(outcome="optimal", gap=0.0, is_proved=True, bound_for=ANY)
    nearly = planned(optimal(6.0 - 12 * NO_GAP / 2))
    assert (judged(nearly).outcome, judged(nearly).gap) == ("optimal", 0.0)


@pytest.mark.parametrize("bound", [optimal(5.0), FeasibleChoice(choice=SMALLEST, seconds=6.0, bound_seconds=5.0)])
def test_above_the_bound_it_is_feasible_by_so_much_of_the_step(bound: ChoiceResult) -> None:
    given = planned(bound)
    assert (judged(given).outcome, judged(given).gap, judged(given).is_proved) == (
        "feasible",
        pytest.approx(1 / 12),
        False,
    )


def test_the_higher_of_formula_and_trace_counts() -> None:
    given = planned(optimal(6.0))
    cheap = replace(given.proof.traced, seconds=13.0)
    assert judged(replace(given, proof=replace(given.proof, traced=cheap))).gap == 0.0
    dear = replace(given.proof.traced, seconds=24.0)
    assert judged(replace(given, proof=replace(given.proof, traced=dear))).gap == pytest.approx(6 / 12)


def test_without_a_bound_nothing_is_claimed() -> None:
    for limit in (ChoiceTimedOut(best=None), FeasibleChoice(choice=SMALLEST, seconds=6.0, bound_seconds=None)):
        given = planned(limit)
        assert judged(given) == Certainty(outcome="feasible", gap=None, is_proved=False, bound_for="")


def test_a_bound_of_flat_plans_says_nothing_of_segments() -> None:
    given = planned(optimal(6.0), method="dp", chain=True)
    assert (judged(given).outcome, judged(given).bound_for) == ("optimal", FLAT)
    assert judged(replace(given, method="ilp")).bound_for == ANY
    nested = replace(given.proof, traced=replace(given.proof.traced, choice=replace(SMALLEST, segments=((0, 2),))))
    assert judged(replace(given, proof=nested)).gap is None
    assert judged(replace(given, proof=nested, method="ilp")).gap is not None


def test_what_does_not_fit_is_infeasible_and_proved_only_where_it_is() -> None:
    over = 1150
    for limit, proved in (
        (infeasible(is_proved=True), True),
        (infeasible(is_proved=False), False),
        (optimal(6.0), False),
    ):
        given = planned(limit, budget=over)
        assert (judged(given).outcome, judged(given).gap, judged(given).is_proved) == ("infeasible", None, proved)
    # Less than the 1000 bytes that are there whatever is chosen: no solver is needed to know.
    assert judged(planned(infeasible(is_proved=False), budget=900)).is_proved
    assert judged(planned(ChoiceTimedOut(best=None), budget=over)).outcome == "timed_out"
