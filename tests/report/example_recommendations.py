"""Answers of ``recommend``, made by hand."""

from dataclasses import replace

from memplan.job.spec import JobSpec, PresetTarget
from memplan.plan.batch.split import critical_batch
from memplan.plan.recommend.records import Candidate, Evaluated, Recommendation, RecommendProof, Rejected, SingleChange
from memplan.timing.rates import StepTime
from memplan.units import GIB, Bytes

JOB = JobSpec(target=PresetTarget(name="gpt2"), batch_size=8)
LOST = "3.00 GiB over the 80.00 GiB for the step"


BEST = RecommendProof(
    ending="best", ways=12, proved=12, gap=0.0, least_bytes=None, is_least_reached=False, least_changes=1
)


def candidate(*changes: str) -> Candidate:
    return Candidate(spec=JOB, changes=changes, groups=tuple("checkpoint" for _ in changes))


def evaluated(gib: float, seconds: float, *changes: str, fits: bool = True) -> Evaluated:
    size = Bytes(int(gib * GIB))
    time = StepTime(
        compute=seconds, optimizer=0.0, launch=0.0, communication=0.0, exposed_communication=0.0, offload=0.0,
        bubble=0.0, total=seconds,
    )  # fmt: skip
    return Evaluated(
        candidate=candidate(*changes), device_bytes=size, high_bytes=size, allocated_bytes=size, reserved_bytes=size,
        host_bytes=Bytes(0), fits=fits, reason="" if fits else LOST, time=time, cost=seconds,
        traced_micro_batches=1,
    )  # fmt: skip


def answer() -> Recommendation:
    given = evaluated(27.0, 1.0, fits=False)
    rows = (evaluated(20.0, 1.2, "--checkpoint full"), evaluated(11.0, 1.6, "--offload-activations"))
    cheap = SingleChange(
        candidate=rows[0].candidate, allowed=True, saved_bytes=7 * GIB, extra_time=0.2, fits=True, reason=""
    )
    untold = replace(cheap, candidate=candidate("--lora r=16"), saved_bytes=None, extra_time=None, fits=False,
                     allowed=False, reason="there is no linear layer")  # fmt: skip
    return Recommendation(
        target="preset:gpt2", gpu="rtx-4090", gpu_title="NVIDIA GeForce RTX 4090", gpus=1,
        usable_bytes=Bytes(24 * GIB), limit_bytes=Bytes(24 * GIB), thresholds=None, global_batch=8, baseline=given,
        rows=rows, pareto=(rows[1], rows[0], given), what_ifs=(cheap, untold),
        rejected=(Rejected(candidate=given.candidate, reason=given.reason, traced=True),), cheapest=cheap, remedies=(),
        untraced=None, critical=critical_batch(64, 8), ended="complete", proof=BEST, interrupted=False, candidates=12,
        traces=3, seconds=4.0,
        assumptions=("a sentence",), not_modelled=("a phrase",),
        options={"precision": "fp32", "batch_size": "8", "data_dependent": "balanced"},
        provenance={"precision": "--precision", "batch_size": "default", "data_dependent": "default"},
        parameters=124_000_000, trainable_parameters=124_000_000, torch_version="2.13",
        memplan_version="0.1.0",
    )  # fmt: skip
