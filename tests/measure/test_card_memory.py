"""DeepSpeed goes by the card's memory: every command traces it for the card that was asked for."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from memplan.errors import EstimateError
from memplan.hardware.catalog import load_profile
from memplan.hardware.profile import GpuProfile
from memplan.job.parallel import parse_parallel
from memplan.job.spec import FileTarget, JobSpec
from memplan.measure.local import estimate_here
from memplan.measure.measurer import Measurer
from memplan.plan.batch.flow import largest_here
from memplan.plan.checkpoint.blocks.planning import plan_here
from memplan.plan.checkpoint.blocks.request import BlockPlanRequest
from memplan.plan.recommend.evaluate import evaluate_here
from memplan.plan.recommend.records import Candidate, StepLimits
from memplan.plan.reuse.from_job import gather_job
from memplan.simulate.from_job import LengthPlan, trace_workload
from memplan.simulate.lengths import Fixed
from memplan.tracing import run
from memplan.tracing.records import DeviceTraits
from memplan.validate.predict import predict_here

CARD = load_profile("a100-40g")
COMMANDS: dict[str, Callable[[JobSpec, GpuProfile], object]] = {
    "estimate": lambda spec, card: estimate_here(spec, [card]),
    "recommend": lambda spec, card: evaluate_here(Candidate(spec=spec, changes=()), card, StepLimits()),
    "batch": lambda spec, card: largest_here(spec, card, Measurer(None, None, None, print)),
    "checkpoint-plan": lambda spec, card: plan_here(spec, card, BlockPlanRequest()),
    "reuse-plan": gather_job,
    "simulate": lambda spec, card: trace_workload(
        spec, card, LengthPlan(distribution=Fixed(length=None), steps=2, seed=0)
    ),
    "validate": predict_here,
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(("parallel", "expected"), [("zero3=2", CARD.total_bytes), ("fsdp=2", 80 * 2**30)])
def test_zero_is_traced_for_the_card_and_nothing_else_is(
    command: str, parallel: str, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[DeviceTraits] = []

    def note(_load: object, _completed: object, _spec: JobSpec, device: DeviceTraits, **_: object) -> None:
        seen.append(device)
        raise EstimateError("seen")

    monkeypatch.setattr(run, "_trace", note)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    spec = JobSpec(target=FileTarget(path=Path("model.py")), parallel=parse_parallel(parallel), mode="train")
    # A candidate that cannot be traced is an outcome; for the others it is an error.
    with suppress(EstimateError):
        COMMANDS[command](spec, CARD)
    assert {device.total_bytes for device in seen} == {expected}
