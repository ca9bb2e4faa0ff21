"""What a gate found, made by hand: rows that pass, fail, only inform, and have no figure."""

from dataclasses import replace
from pathlib import Path

from memplan.findings.records import Finding, Place
from memplan.gate.compare import compare
from memplan.gate.records import GateResult, Row
from memplan.measure.records import Owner, Verdict
from memplan.units import GIB, Bytes
from tests.report.example_estimates import BREAKDOWN, H100, OOM, UNKNOWN, make_estimate

HERE = Place(file="train/model.py", line=41)
OWNERS = tuple(
    Owner(module=f"model.layers.{n}.mlp", source="train/model.py:41", category="parameter", bytes=GIB // 4)
    for n in range(32)
)
BEFORE = make_estimate(target="train/model.py:build", owners=OWNERS)
AFTER = make_estimate(
    target="train/model.py:build",
    breakdown={**BREAKDOWN, "parameter": BREAKDOWN["parameter"] + 8 * GIB},
    owners=tuple(replace(owner, bytes=2 * owner.bytes) for owner in OWNERS),
)
GROWN = Row(
    job="llama-8b-sft",
    gpu="h100-80g",
    outcome="failed",
    estimate=AFTER,
    comparison=compare(BEFORE, AFTER),
    findings=(
        Finding(code="MP005", severity="error", message="8.00 GiB (+11.3 %) more than the baseline, 2 % may be.",
                place=HERE, fix="Ask #training-infra before raising this."),
    ),
    limit=Bytes(72 * GIB),
)  # fmt: skip
RESULT = GateResult(
    project=Path("memplan.toml"),
    baseline=Path("memplan-baseline.json"),
    rows=(
        GROWN,
        Row(job="llama-8b-sft", gpu="a100-40g", outcome="failed", estimate=OOM, comparison=None, limit=None,
            findings=(Finding(code="MP001", severity="error", message="31.6 GiB over what is usable.", place=HERE),)),
        Row(job="bert <base>", gpu="h100-80g", outcome="passed", estimate=replace(BEFORE, gpu=H100), comparison=None,
            limit=None, informational=True,
            findings=(Finding(code="MP004", severity="warning", message="over its budget by 1 GiB.", place=HERE),)),
        Row(job="vit", gpu="h100-80g", outcome="unknown", estimate=replace(UNKNOWN, verdict=Verdict.UNKNOWN),
            comparison=None, findings=(), limit=None),
        Row(job="hangs", gpu="h100-80g", outcome="unknown", estimate=None, comparison=None, limit=None,
            findings=(Finding(code="MP003", severity="error", message="no answer within 10 m", place=HERE),)),
    ),
    notes=("the baseline has figures of jobs that are gone: gpt2",),
    seconds=4.2,
)  # fmt: skip
