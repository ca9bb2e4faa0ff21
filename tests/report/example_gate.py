"""A result of the gate made by hand: a pass, a regression on two GPUs, a failure, an unknown, an informational row."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from hypothesis import strategies as st

from memplan.findings.records import Finding, Place
from memplan.gate.compare import compare
from memplan.gate.records import GateResult, Row
from memplan.measure.records import Advice, Estimate, Owner
from memplan.units import GIB
from tests.report.example_estimates import A100, FITS, H100, OOM, UNKNOWN

JOBS = ("bert", "llama-8b-sft", "llama-70b", "custom-op", "experiment")
GPUS = ("h100-80g", "a100-40g")
FILES = ("memplan.toml", "train/model.py")
MODULES = ("model.layers.0.mlp", "lm_head")
SENTENCES = (
    "peak grew by 12.00 GiB (+17.0 %), 10.59 GiB more than max-increase 2 % allows",
    "raise max-increase of job llama-8b-sft (memplan.toml:7). Ask #training.",
    "peak 70.49 GiB, 31.47 GiB over the 39.02 GiB usable",
    "custom op flash_attn::varlen",
    "the baseline has figures of jobs that are gone: gpt2",
    "--checkpoint full --batch-size 2",
    "max-peak 75.00 GiB is 1.3 times the upper end of the interval",
)
OUTSIDE = (*JOBS, *GPUS, *FILES, *MODULES, *SENTENCES)
"""Every text of the example that comes from outside of memplan."""


def example(text: Callable[[str], str] = str) -> GateResult:
    """The example, each of its ``OUTSIDE`` texts replaced by another."""
    h100, a100 = replace(H100, name=text("h100-80g")), replace(A100, name=text("a100-40g"))
    before = replace(FITS, owners=(), gpu=h100)
    place = Place(file=text("train/model.py"), line=41)
    table = Place(file=text("memplan.toml"), line=7)
    advice = (Advice(change=text("--checkpoint full --batch-size 2"), device_bytes=38 * GIB, slowdown=0.31),)
    oom = Finding(code="MP001", severity="error", message=text(SENTENCES[2]), place=place, fix=text(SENTENCES[5]))
    regressed = Finding(code="MP006", severity="error", message=text(SENTENCES[0]), place=place, fix=text(SENTENCES[1]))
    loose = Finding(code="MP008", severity="note", message=text(SENTENCES[6]), place=table)
    unknown = Finding(code="MP003", severity="warning", message=text(SENTENCES[3]), place=table)

    def row(job: str, estimate: Estimate, **fields: object) -> Row:
        shared = {"comparison": None, "findings": (), "limit": None, "outcome": "failed"}
        return Row(job=text(job), gpu=estimate.gpu.name, estimate=estimate, **shared | fields)

    grown, overflowing = (_grown(text, gpu) for gpu in (h100, a100))
    too_large = replace(OOM, gpu=a100, advice=advice)
    return GateResult(
        project=Path("memplan.toml"),
        baseline=Path("memplan-baseline.json"),
        rows=(
            row("bert", replace(FITS, gpu=h100), outcome="passed", findings=(loose,), limit=75 * GIB, cached=True),
            row("llama-8b-sft", grown, findings=(regressed,), comparison=compare(before, grown), limit=77 * 10**9),
            row("llama-8b-sft", overflowing, findings=(oom, regressed),
                comparison=compare(replace(before, gpu=a100), overflowing), limit=77 * 10**9),
            row("llama-70b", too_large, findings=(oom,)),
            row("custom-op", replace(UNKNOWN, gpu=h100), outcome="unknown", findings=(unknown,)),
            row("experiment", too_large, outcome="passed", findings=(replace(oom, severity="warning"),),
                informational=True),
        ),
        notes=(text(SENTENCES[4]),),
        seconds=12.34,
    )  # fmt: skip


def _grown(text: Callable[[str], str], gpu: object) -> Estimate:
    owners = (
        Owner(module=text(MODULES[0]), source=text("train/model.py") + ":41", category="activation", bytes=11 * GIB),
        Owner(module=text(MODULES[1]), source="", category="parameter", bytes=GIB),
    )
    peak = replace(FITS.peak, device_bytes=FITS.peak.device_bytes + 12 * GIB)
    breakdown = {**FITS.breakdown, "activation": 20 * GIB, "parameter": 16 * GIB}
    return replace(FITS, gpu=gpu, owners=owners, peak=peak, breakdown=breakdown)


FRAGMENTS = (
    "|", "`", "``", "\\", "\n", "\r\n", "\t", "<script>alert(1)</script>", "</details>", "<!--", "-->", "<br>", "]]>",
    "[x](https://e.org)", "![x](y)", "[^1]", "@team", "#12", "GH-12", "https://e.org", "www.e.org", ":tada:", "$x$",
    "::error::", "%0A", "%", ":", ",", "{0}", "{", "}", "]", "](", '"', "'", "&amp;", "*", "**", "_", "~~", "1. ", "- ",
    "# ", "===", "> ", " ", "..", "/", "C:/", "\x00", "\x1b[2J", "\u202e", "\ud800", "\u2028", "\ufffe", "é", "层",
    "😀",
)  # fmt: skip
"""What means something to somebody."""
HOSTILE = (
    st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=8), min_size=1, max_size=6)
    .map(lambda parts: "".join(parts)[:50])
    .filter(lambda text: text.split() != [])
)
"""Texts that are not blank."""


@st.composite
def renamings(draw: st.DrawFn) -> dict[str, str]:
    """Each text from outside → another; no two are alike."""
    texts = draw(st.lists(HOSTILE, min_size=len(OUTSIDE), max_size=len(OUTSIDE), unique=True))
    return dict(zip(OUTSIDE, texts, strict=True))
